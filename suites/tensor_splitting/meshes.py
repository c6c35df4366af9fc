"""Programs over several devices, each of which holds a part of the points.

As written, each device holds all pairs of its points with the others'.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from suites.tensor_splitting.kernels import by_products
from suites.tensor_splitting.problems import DEVICES, Function, Problem, array, normal_values
from suites.tensor_splitting.variants import INSIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSizes:
    """``points`` of ``width`` numbers on either side; by hand ``rows`` of each device at a time."""

    points: int
    width: int = 8
    rows: int = 16
    dtype: Any = np.float64


_PARTS, _WHOLE = PartitionSpec(DEVICES), PartitionSpec()


def contrast_problem(sizes: MeshSizes) -> Problem:
    """InfoNCE between two sets, both divided over the devices."""
    side = array(sizes.points, sizes.width, dtype=sizes.dtype)
    return Problem(
        plain=contrast,
        ways={"lax-map": partial(contrast_by_rows, sizes.rows)},
        arguments=(side, side),
        values=partial(normal_values, (side, side)),
        specs=(_PARTS, _PARTS),
    )


def mapped_problem(sizes: MeshSizes, budget_bytes: int) -> Problem:
    """A kernel product whose sums each device begins and `lax.psum` completes."""
    of = partial(array, dtype=sizes.dtype)
    side = of(sizes.points, sizes.width)
    arguments = (side, side, of(sizes.points, 1))
    return Problem(
        plain=partial(mapped, summed_product),
        ways={INSIDE: partial(mapped_within, budget_bytes)},
        arguments=arguments,
        values=partial(normal_values, arguments),
        specs=(_WHOLE, _PARTS, _PARTS),
    )


def contrast(left: jax.Array, right: jax.Array) -> jax.Array:
    """The loss of each point of `left`, which belongs to that of `right` with its number."""
    scores = left @ right.T
    return jax.nn.logsumexp(scores, axis=1) - jnp.diagonal(scores)


def contrast_by_rows(rows: int, left: jax.Array, right: jax.Array) -> jax.Array:
    """The same: each device gathers `right`, and takes some of its own rows at a time."""

    def local(left: jax.Array, mine: jax.Array) -> jax.Array:
        right = lax.all_gather(mine, DEVICES, tiled=True)

        @jax.checkpoint
        def loss(point: jax.Array, partner: jax.Array) -> jax.Array:
            return jax.nn.logsumexp(right @ point) - point @ partner

        return lax.map(lambda pair: loss(*pair), (left, mine), batch_size=rows)

    return jax.shard_map(local, in_specs=(_PARTS, _PARTS), out_specs=_PARTS)(left, right)


def mapped(local: Function, *arguments: jax.Array) -> jax.Array:
    """What each device computes of its part."""
    specs = (_WHOLE, _PARTS, _PARTS)
    found: jax.Array = jax.shard_map(local, in_specs=specs, out_specs=_WHOLE)(*arguments)
    return found


def mapped_within(budget_bytes: int, *arguments: jax.Array) -> jax.Array:
    """The same, where each device may take so much."""
    from memsafe import memsafe

    return mapped(memsafe(summed_product, budget_bytes), *arguments)


def summed_product(x: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
    """A device's part of the product and the others': [N, D], [M, D], [M, 1] → [N, 1]."""
    return lax.psum(by_products(x, y, v), DEVICES)
