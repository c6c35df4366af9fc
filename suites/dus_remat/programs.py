"""A loop as a program: what it is compiled for, run on, observed by, and timed at two lengths."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import SingleDeviceSharding

from assay import Growth, Program
from suites.dus_remat.stacks import Loop, Next, Repeated, StackSizes

_SAMPLES = 1009  # of each row; a prime, so that no stride of a view is met again and again


def stack_program(sizes: StackSizes, loop: Loop, count: int, devices: Sequence[Any]) -> Program:
    """The loop on ``count`` donated stacks, for one device."""
    return Program(
        function=partial(_run, loop, sizes),
        arguments=_shapes(sizes, count),
        in_shardings=SingleDeviceSharding(devices[0]),
        donate_argnums=tuple(range(count)),
        values=partial(random_values, sizes, count) if sizes.executed else None,
        observe=partial(_observed, loop, sizes),
        growth=_growth(sizes, loop, count) if sizes.timed_at else None,
    )


def _growth(sizes: StackSizes, loop: Loop, count: int) -> Growth | None:
    """The iterations alone on stacks of the lengths; None for a loop that has more to it."""
    if not isinstance(loop, Repeated):
        return None
    return Growth(
        lengths=sizes.timed_at,
        build=partial(_of_length, sizes, loop, count),
        donate_argnums=tuple(range(count)),
    )


def _of_length(
    sizes: StackSizes, loop: Repeated, count: int, length: int
) -> tuple[Callable[..., Next], Callable[[], tuple[Any, ...]]]:
    sizes = replace(sizes, length=length, iterations=min(sizes.timed_at))

    def values() -> tuple[Any, ...]:
        *stacks, row, weight = random_values(sizes, count)
        carried = (loop.carried.there(sizes, jnp.asarray(stack)) for stack in stacks)
        # A buffer that numpy still owns cannot be given away: the run would copy it first.
        return (*map(jnp.copy, carried), row, weight)

    return partial(_run, loop.iterate, sizes), values


def random_values(sizes: StackSizes, count: int) -> tuple[Any, ...]:
    """Normal values of a fixed seed; the weight is scaled so that products keep their size."""
    generator = np.random.default_rng(0)
    # Drawn from the last one on: variants on any number of stacks then get the same row and weight.
    weight, row, *stacks = (
        generator.standard_normal(shape.shape, dtype=np.float32)
        for shape in reversed(_shapes(sizes, count))
    )
    return (*stacks, row, weight * np.float32(sizes.row[-1] ** -0.5))


def _shapes(sizes: StackSizes, count: int) -> tuple[jax.ShapeDtypeStruct, ...]:
    f32 = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    width = sizes.row[-1]
    return (*[f32(sizes.stack)] * count, f32(sizes.row), f32((width, width)))


def _run(loop: Loop, sizes: StackSizes, *arguments: jax.Array) -> Next:
    *stacks, row, weight = arguments
    return loop(sizes, tuple(stacks), row, weight)


def _observed(loop: Loop, sizes: StackSizes, *arguments: jax.Array) -> dict[str, Any]:
    # Fenced off, so that the sums are not computed inside the loop's own fusions.
    stacks, row = lax.optimization_barrier(_run(loop, sizes, *arguments))
    return {"row": row, "stacks": [_digest(stack) for stack in stacks]}


def _digest(stack: jax.Array) -> dict[str, jax.Array]:
    rows = stack.reshape(stack.shape[0], -1)
    stride = max(1, rows.shape[1] // _SAMPLES)
    return {"sum": rows.sum(axis=1), "largest": rows.max(axis=1), "sample": rows[:, ::stride]}
