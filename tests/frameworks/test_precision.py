"""Values are compared in the precision of their type, unless somebody asked for another."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import jax
import numpy as np
import pytest

from assay import Program
from assay.frameworks.jax import JaxFramework

X = np.ones((8, 8), np.float32)


def _precision(platform: str, context: Any = None) -> Any:
    """The precision of a product in the program that is run for its values."""
    seen: list[Any] = []

    def observe(x: jax.Array) -> jax.Array:
        traced = jax.make_jaxpr(lambda x: x @ x)(x)
        seen.append(traced.eqns[0].params["precision"])
        return x @ x

    program = Program(function=observe, values=lambda: (X,), observe=observe, context=context)
    JaxFramework(jax.local_devices(backend="cpu"), platform).execute(program)
    return seen[-1] and seen[-1][0]


def _low() -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = jax.default_matmul_precision("bfloat16")
    return context


@contextmanager
def _asked(precision: str) -> Iterator[None]:
    jax.config.update("jax_default_matmul_precision", precision)
    try:
        yield
    finally:
        jax.config.update("jax_default_matmul_precision", None)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_an_accelerator_multiplies_f32_in_f32(platform: str) -> None:
    assert _precision(platform) is jax.lax.Precision.HIGHEST


def test_a_cpu_does_so_without_being_asked() -> None:
    assert _precision("cpu") is None


def test_the_programs_own_precision_stays() -> None:
    assert _precision("cuda", _low) is jax.lax.Precision.DEFAULT


def test_the_users_own_precision_stays() -> None:
    with _asked("bfloat16"):
        assert _precision("cuda") is jax.lax.Precision.DEFAULT
