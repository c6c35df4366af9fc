"""Programs that fail at a known stage: negative controls of every suite."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from assay import FailureKind, Program, Variant

_Made = TypeVar("_Made", bound=Variant)


def failing_controls(variant: Callable[..., _Made]) -> tuple[_Made, ...]:
    """A negative control for each stage; ``variant(name=, program=, fails_with=)`` makes it."""
    stages = (
        ("trace", does_not_trace, FailureKind.TRACE),
        ("compile", does_not_compile, FailureKind.COMPILER),
        ("run", does_not_run, FailureKind.EXECUTION),
    )
    return tuple(
        variant(name=f"negative-does-not-{stage}", program=program, fails_with=kind)
        for stage, program, kind in stages
    )


def does_not_trace(_devices: Sequence[Any]) -> Program:
    """A program whose shapes do not fit together."""

    def mismatched(x: jax.Array) -> jax.Array:
        return x + jnp.zeros(x.shape[0] + 1)

    return Program(function=mismatched, arguments=(jax.ShapeDtypeStruct((8,), jnp.float32),))


def does_not_compile(devices: Sequence[Any]) -> Program:
    """A program that traces and lowers, and calls what no compiler has."""
    shape = jax.ShapeDtypeStruct((8,), jnp.float32)
    return Program(
        function=jax.ffi.ffi_call("assay_no_such_call", shape),
        arguments=(shape,),
        in_shardings=SingleDeviceSharding(devices[0]),
    )


def does_not_run(_devices: Sequence[Any]) -> Program:
    """A program that compiles, and fails when it runs."""

    def fails(x: jax.Array) -> jax.Array:
        return jax.pure_callback(_refuse, x, x)

    return Program(
        function=lambda x: x * 2,
        arguments=(jax.ShapeDtypeStruct((8,), jnp.float32),),
        values=lambda: (jnp.ones(8, jnp.float32),),
        observe=fails,
    )


def _refuse(_x: Any) -> Any:
    raise RuntimeError("this program must not run")
