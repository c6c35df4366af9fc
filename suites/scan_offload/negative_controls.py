"""Programs that must fail a claim: each is run beside the variants that pass it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from assay import Program
from suites.scan_offload.programs import mesh_of

_MORE_THAN_ANY_DEVICE_BYTES = 2**43


def oversized(devices: Sequence[Any]) -> Program:
    """A program whose argument alone is 8 TiB, 1 TiB on each of eight devices."""
    mesh = mesh_of(devices)
    rows = NamedSharding(mesh, PartitionSpec(("data", "model"), None))
    wide = jax.ShapeDtypeStruct((_MORE_THAN_ANY_DEVICE_BYTES // 2**20 // 4, 2**20), jnp.float32)
    return Program(
        function=lambda x: x * 2, arguments=(wide,), in_shardings=(rows,), out_shardings=rows
    )


def oversized_temporaries(devices: Sequence[Any]) -> Program:
    """A program of 4 MiB that keeps temporaries of 8 TiB on one device."""
    row = jax.ShapeDtypeStruct((2**20,), jnp.float32)
    rows = _MORE_THAN_ANY_DEVICE_BYTES // (2**20 * 4)

    def hold(x: jax.Array) -> jax.Array:
        # What a barrier hands on is an array, of which no fusion makes a sum as it goes.
        return lax.optimization_barrier(x * jnp.ones((rows, 1))).sum(axis=0)

    return Program(function=hold, arguments=(row,), in_shardings=SingleDeviceSharding(devices[0]))


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
