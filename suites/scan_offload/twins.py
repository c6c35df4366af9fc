"""Programs that must break a claim: each is run beside the arms that keep it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from assay import Program
from suites.scan_offload.programs import mesh_of

_MORE_THAN_ANY_DEVICE_BYTES = 2**43


def does_not_trace(_devices: Sequence[Any]) -> Program:
    """A program whose shapes do not fit together."""

    def mismatched(x: jax.Array) -> jax.Array:
        return x + jnp.zeros(x.shape[0] + 1)

    return Program(function=mismatched, arguments=(jax.ShapeDtypeStruct((8,), jnp.float32),))


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


def oversized(devices: Sequence[Any]) -> Program:
    """A program whose argument alone is 8 TiB, 1 TiB on each of eight devices."""
    mesh = mesh_of(devices)
    rows = NamedSharding(mesh, PartitionSpec(("data", "model"), None))
    wide = jax.ShapeDtypeStruct((_MORE_THAN_ANY_DEVICE_BYTES // 2**20 // 4, 2**20), jnp.float32)
    return Program(
        function=lambda x: x * 2, arguments=(wide,), in_shardings=(rows,), out_shardings=rows
    )


def wrong_gradient(build: Callable[[Sequence[Any]], Program], devices: Sequence[Any]) -> Program:
    """A program whose gradients are off by one part in a thousand, its loss right."""
    right = build(devices)
    assert right.observe is not None
    return replace(right, observe=partial(_off_by_a_little, right.observe))


def step_twice(build: Callable[[Sequence[Any]], Program], devices: Sequence[Any]) -> Program:
    """A program that is traced, and does its step, twice."""
    once = build(devices)
    assert once.function is not None
    return replace(once, function=partial(_twice, once.function))


def _twice(step: Callable[..., Any], params: Any, *batch: jax.Array) -> Any:
    params, _ = step(params, *batch)
    return step(params, *batch)


def _off_by_a_little(observe: Callable[..., Any], *arguments: Any) -> Any:
    loss, gradients = observe(*arguments)
    return loss, jax.tree.map(lambda gradient: gradient * 1.001, gradients)
