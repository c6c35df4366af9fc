"""Programs that fail at a known stage: negative controls of every suite."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from assay import Program


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
