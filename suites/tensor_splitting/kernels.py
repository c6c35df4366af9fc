"""Kernel matrix times vector: GPflow's squared exponential kernel between two sets of points.

The matrix has a row for each point of one set and a column for each point of the other. For the
paper's million points, it takes 8 TB in double precision.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from suites.tensor_splitting.problems import Function, Problem, array, normal_values


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSizes:
    """Points of both sets, their dimensions, and the rows that a loop by hand takes at a time."""

    points: int
    others: int
    dimensions: int = 10
    rows: int = 16
    dtype: Any = np.float32


def kernel_problem(sizes: KernelSizes, plain: Function) -> Problem:
    """One of this module's products at these sizes."""
    of = partial(array, dtype=sizes.dtype)
    arguments = (
        of(sizes.points, sizes.dimensions),
        of(sizes.others, sizes.dimensions),
        of(sizes.others, 1),
    )
    return Problem(
        plain=plain,
        ways={"lax-map": partial(mapped, sizes.rows)},
        arguments=arguments,
        values=partial(normal_values, arguments),
    )


def by_differences(x: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
    """exp(−|x − y|² / 2) v from the differences of all pairs: [N, D], [M, D], [M, 1] → [N, 1]."""
    squared_distances = jnp.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)
    return jnp.exp(-0.5 * squared_distances) @ v


def by_products(x: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
    """The same product from |x|² + |y|² − 2xy, as GPflow writes it."""
    squared_distances = jnp.sum(x**2, -1)[:, None] + jnp.sum(y**2, -1)[None, :] - 2 * x @ y.T
    return jnp.exp(-0.5 * squared_distances) @ v


def mapped(rows: int, x: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
    """The same product in a loop that takes ``rows`` rows of the matrix at a time."""

    @jax.checkpoint
    def row(point: jax.Array) -> jax.Array:
        return jnp.exp(-0.5 * jnp.sum((point - y) ** 2, axis=-1)) @ v

    return lax.map(row, x, batch_size=rows)
