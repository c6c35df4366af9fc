"""A kernel whose bandwidth is the median of all squared distances, and a quantile of these.

Kernel tests choose the bandwidth in this way. JAX sorts all pairs to read the two in the middle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from suites.tensor_splitting.problems import Function, Problem, array, normal_values


@dataclass(frozen=True, slots=True, kw_only=True)
class MedianSizes:
    """Points and their dimensions; a loop by hand takes ``rows`` rows of the pairs at a time."""

    points: int
    dimensions: int = 3
    rows: int = 16
    dtype: Any = np.float32


def median_problem(sizes: MedianSizes, plain: Function) -> Problem:
    """The problem of ``plain``, which is `heuristic` or `quantile`, at these sizes."""
    arguments = (array(sizes.points, sizes.dimensions, dtype=sizes.dtype),)
    by_hand = heuristic_in_rows if plain is heuristic else quantile_in_rows
    return Problem(
        plain=plain,
        ways={"lax-map": partial(by_hand, sizes.rows)},
        arguments=arguments,
        values=partial(normal_values, arguments),
    )


def heuristic(x: jax.Array) -> jax.Array:
    """The mean of a kernel whose bandwidth is the median; no gradient goes through the median."""
    pairs = _squared_distances(x, x)
    return jnp.mean(jnp.exp(-pairs / lax.stop_gradient(jnp.median(pairs))))


def quantile(x: jax.Array) -> jax.Array:
    """The 0.9 quantile of all squared distances; its gradient goes to two pairs."""
    return jnp.quantile(_squared_distances(x, x), 0.9)


def heuristic_in_rows(rows: int, x: jax.Array) -> jax.Array:
    """`heuristic` in loops over rows: one per bit of each middle distance, and one for the mean."""
    width = lax.stop_gradient(sum(_middle(rows, x)) / 2)

    @jax.checkpoint
    def row(point: jax.Array) -> jax.Array:
        return jnp.sum(jnp.exp(-_squared_distances(point[None], x) / width))

    return jnp.sum(lax.map(row, x, batch_size=rows)) / len(x) ** 2


def quantile_in_rows(rows: int, x: jax.Array) -> jax.Array:
    """`quantile` from the two pairs that loops over rows find."""
    place = 0.9 * (len(x) ** 2 - 1)
    low, high = (_pair(rows, x, int(each)) for each in (np.floor(place), np.ceil(place)))
    share = place - np.floor(place)
    return low * (1 - share) + high * share


def _squared_distances(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sum((x[:, None] - y[None]) ** 2, axis=-1)


def _middle(rows: int, x: jax.Array) -> list[jax.Array]:
    last = len(x) ** 2 - 1
    return [_of_rank(rows, x, rank) for rank in (last // 2, -(-last // 2))]


def _pair(rows: int, x: jax.Array, rank: int) -> jax.Array:
    """The squared distance of that rank, from its pair of points; equals rank in row order."""
    value = _of_rank(rows, lax.stop_gradient(x), rank)
    less = _counted(rows, x, lambda pairs: pairs < value)
    before = jnp.cumsum(jnp.concatenate([jnp.zeros(1, less.dtype), _equal(rows, x, value)]))
    first = jnp.sum(before <= rank - jnp.sum(less)) - 1
    equal = _squared_distances(x[first][None], x)[0] == value
    wanted = rank - jnp.sum(less) - before[first]
    second = jnp.sum(jnp.cumsum(equal) <= wanted)
    return jnp.sum((x[first] - x[second]) ** 2)


def _equal(rows: int, x: jax.Array, value: jax.Array) -> jax.Array:
    return _counted(rows, x, lambda pairs: pairs == value)


def _of_rank(rows: int, x: jax.Array, rank: int) -> jax.Array:
    """The squared distance of that rank, found bit by bit.

    No squared distance is negative, so its bits as an integer are not negative either.
    """
    kind = np.dtype(f"int{8 * x.dtype.itemsize}")

    def bit(found: jax.Array, shift: jax.Array) -> tuple[jax.Array, None]:
        asked = found + (jnp.ones((), kind) << shift)
        below = _counted(rows, x, lambda pairs: lax.bitcast_convert_type(pairs, kind) < asked)
        return jnp.where(jnp.sum(below) <= rank, asked, found), None

    shifts = jnp.arange(8 * kind.itemsize - 2, -1, -1, dtype=kind)
    return lax.bitcast_convert_type(lax.scan(bit, jnp.zeros((), kind), shifts)[0], x.dtype)


def _counted(rows: int, x: jax.Array, asked: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Number of pairs in each row for which ``asked`` holds."""
    x = lax.stop_gradient(x)
    return lax.map(
        lambda point: jnp.sum(asked(_squared_distances(point[None], x))), x, batch_size=rows
    )
