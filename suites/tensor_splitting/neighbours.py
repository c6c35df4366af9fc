"""The nearest neighbours of each query, by brute force: all distances, then the smallest of each.

The paper's tables have L2, L1 and cosine distance, ten thousand queries, and up to a million points
and more. Stock JAX and TensorFlow run out of memory at a million.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from suites.tensor_splitting.problems import Problem, array, normal_values

NEIGHBOURS = 10
Distances = Callable[[jax.Array, jax.Array], jax.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourSizes:
    """Queries, points and their dimensions; a loop by hand takes ``rows`` queries at a time."""

    points: int
    queries: int = 10_000
    dimensions: int = 100
    rows: int = 8
    dtype: Any = np.float32


def neighbour_problem(sizes: NeighbourSizes, distances: Distances) -> Problem:
    """The search at these sizes by one of this module's distances."""
    of = partial(array, dtype=sizes.dtype)
    arguments = (of(sizes.queries, sizes.dimensions), of(sizes.points, sizes.dimensions))
    return Problem(
        plain=partial(nearest, distances),
        ways={"lax-map": partial(mapped, distances, sizes.rows)},
        arguments=arguments,
        values=partial(normal_values, arguments),
    )


def nearest(
    distances: Distances, queries: jax.Array, points: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Distances and indices of the nearest points: [Q, D], [N, D] → [Q, 10] each."""
    closeness, indices = lax.top_k(-distances(queries, points), NEIGHBOURS)
    return -closeness, indices


def mapped(
    distances: Distances, rows: int, queries: jax.Array, points: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`nearest` in a loop that takes ``rows`` queries at a time."""

    def of_one(query: jax.Array) -> tuple[jax.Array, jax.Array]:
        found, indices = nearest(distances, query[None], points)
        return found[0], indices[0]

    return lax.map(of_one, queries, batch_size=rows)


def l2(queries: jax.Array, points: jax.Array) -> jax.Array:
    """Squared Euclidean distances from the differences of all pairs."""
    return jnp.sum((queries[:, None, :] - points[None, :, :]) ** 2, axis=-1)


def l2_by_products(queries: jax.Array, points: jax.Array) -> jax.Array:
    """Squared Euclidean distances from a matrix product, as the paper's own benchmark does."""
    of_queries, of_points = jnp.sum(queries**2, -1)[:, None], jnp.sum(points**2, -1)[None, :]
    return of_queries - 2 * queries @ points.T + of_points


def l1(queries: jax.Array, points: jax.Array) -> jax.Array:
    """Sums of absolute differences."""
    return jnp.sum(jnp.abs(queries[:, None, :] - points[None, :, :]), axis=-1)


def cosine(queries: jax.Array, points: jax.Array) -> jax.Array:
    """One minus the cosine of the angle between each pair."""
    of_queries = jnp.linalg.norm(queries, axis=-1)[:, None]
    of_points = jnp.linalg.norm(points, axis=-1)[None, :]
    return 1 - queries @ points.T / (of_queries * of_points)
