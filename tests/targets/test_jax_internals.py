"""Programs come out of jax as HloModuleProto, whichever compiler made them."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import jax
import pytest

from assay.targets import jax_internals, resolve

HLO = "HloModule tiny\nENTRY e { x = f32[4]{0} parameter(0) ROOT n = f32[4]{0} negate(x) }"


@pytest.mark.parametrize("name", ["cpu", "gpu-h100", "tpu-v5e:2x4"])
def test_an_executable_hands_its_modules_out(name: str) -> None:
    target = resolve(name)
    here = jax.sharding.SingleDeviceSharding(target.devices()[0])
    program = jax.jit(lambda x: x + 1, in_shardings=here, out_shardings=here)
    argument = jax.ShapeDtypeStruct((8, 128), "float32")  # type: ignore[no-untyped-call]
    lowered = program.trace(argument).lower(lowering_platforms=(target.platform,))
    (module,) = jax_internals.loaded_protos(lowered.compile().runtime_executable())
    assert b"jit__lambda" in module


def test_text_becomes_a_module() -> None:
    assert b"tiny" in jax_internals.module_of_text(HLO)


def test_a_text_that_is_no_hlo_is_refused() -> None:
    with pytest.raises(ValueError, match="got no HLO"):
        jax_internals.module_of_text("nonsense")


def test_a_jaxlib_without_the_parser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda _: SimpleNamespace())
    with pytest.raises(jax_internals.InternalsMoved, match="_hlo:hlo_module_from_text"):
        jax_internals.module_of_text(HLO)


def test_an_executable_without_modules_is_named() -> None:
    with pytest.raises(jax_internals.InternalsMoved, match="hlo_modules"):
        jax_internals.loaded_protos(object())
