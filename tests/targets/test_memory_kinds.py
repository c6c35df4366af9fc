"""Memory kinds of arguments and results reach the compiler, on topologies that list none too."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from assay.targets import emulation, jax_internals, resolve

BYTES = 4 * 1024 * 1024
TARGETS = ["gpu-h100:8", "tpu-v5e:2x4"]


def on_one(target: str, kind: str | None) -> Any:
    return SingleDeviceSharding(resolve(target).devices()[0], memory_kind=kind)


def on_many(target: str, kind: str | None) -> Any:
    mesh = Mesh(np.array(resolve(target).devices()), ("x",))
    return NamedSharding(mesh, PartitionSpec(), memory_kind=kind)


def lowered(target: str, source: Any, to: Any, donated: tuple[int, ...] = ()) -> Any:
    """The argument plus one in device memory, lowered: placed as ``source``, returned as ``to``."""
    shape = jax.ShapeDtypeStruct((1024, 1024), "float32", sharding=source)  # type: ignore[no-untyped-call]

    def plus_one(x: jax.Array) -> jax.Array:
        return jax.device_put(x, jax.memory.Space.Device) + 1

    jitted = jax.jit(plus_one, out_shardings=to, donate_argnums=donated)
    return jitted.trace(shape).lower(lowering_platforms=(resolve(target).platform,))


def memory(target: str, source: Any, to: Any) -> Any:
    return lowered(target, source, to).compile().memory_analysis()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("place", [on_one, on_many])
def test_a_host_argument_takes_no_device_memory(target: str, place: Any) -> None:
    stats = memory(target, place(target, "pinned_host"), place(target, "device"))
    assert stats.host_argument_size_in_bytes == BYTES
    assert stats.argument_size_in_bytes < BYTES
    assert stats.output_size_in_bytes == BYTES


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("place", [on_one, on_many])
def test_a_host_result_takes_no_device_memory(target: str, place: Any) -> None:
    stats = memory(target, place(target, None), place(target, "pinned_host"))
    assert stats.host_output_size_in_bytes == BYTES
    assert stats.output_size_in_bytes < BYTES
    assert stats.argument_size_in_bytes == BYTES


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("place", [on_one, on_many])
def test_a_kind_that_does_not_exist_is_refused(target: str, place: Any) -> None:
    with pytest.raises(ValueError, match="Got memory kind: fast"):
        place(target, "fast")


@pytest.mark.parametrize("target", TARGETS)
def test_a_donation_across_memories_is_refused(target: str) -> None:
    source, to = on_one(target, None), on_one(target, "pinned_host")
    with pytest.warns(UserWarning, match="donated buffers were not usable"):
        text = lowered(target, source, to, donated=(0,)).as_text()
    assert "tf.aliasing_output" not in text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["device", "pinned_host"])
def test_a_donation_within_one_memory_is_lowered(target: str, kind: str) -> None:
    here = on_one(target, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "tf.aliasing_output" in lowered(target, here, here, donated=(0,)).as_text()


@pytest.mark.parametrize("target", [*TARGETS, "cpu"])
def test_shardings_name_the_devices_of_the_target(target: str) -> None:
    device = resolve(target).devices()[0]
    here = SingleDeviceSharding(device)
    assert isinstance(here, SingleDeviceSharding)
    assert here == SingleDeviceSharding(device=device)
    assert here.device_set == {device}
    assert here != here.with_memory_kind("pinned_host")
    assert type(next(iter(here.device_set))) is type(device)


@pytest.mark.parametrize("target", TARGETS)
def test_a_program_without_kinds_is_lowered_without(target: str) -> None:
    assert "memory_kind" not in lowered(target, on_one(target, None), None).as_text()


def test_a_jaxlib_that_drops_kinds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    device = resolve("gpu-h100").devices()[0]
    drops = type(SingleDeviceSharding).__getattribute__(SingleDeviceSharding, "original")
    monkeypatch.setattr(jax.sharding, "SingleDeviceSharding", drops)
    with pytest.raises(jax_internals.InternalsMoved, match="keep memory kinds"):
        emulation.check_memory_kinds(device)
