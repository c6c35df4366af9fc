"""Programs over several devices, each of which holds a part of the points.

As written, each device holds all pairs of its own points with the whole other set.
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
    """Points of ``width`` numbers in each set; by hand, each device takes ``rows`` at a time."""

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
    """A kernel product: each device sums over its own points, and `lax.psum` adds these sums."""
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
    """The loss of each point of `left`, whose partner has the same index in `right`."""
    scores = left @ right.T
    return jax.nn.logsumexp(scores, axis=1) - jnp.diagonal(scores)


def contrast_by_rows(rows: int, left: jax.Array, right: jax.Array) -> jax.Array:
    """`contrast`: each device gathers `right`, and takes ``rows`` of its own rows at a time."""

    def local(left: jax.Array, mine: jax.Array) -> jax.Array:
        right = lax.all_gather(mine, DEVICES, tiled=True)

        @jax.checkpoint
        def loss(point: jax.Array, partner: jax.Array) -> jax.Array:
            return jax.nn.logsumexp(right @ point) - point @ partner

        return lax.map(lambda pair: loss(*pair), (left, mine), batch_size=rows)

    return jax.shard_map(local, in_specs=(_PARTS, _PARTS), out_specs=_PARTS)(left, right)


def mapped(local: Function, *arguments: jax.Array) -> jax.Array:
    """Run ``local`` on each device with the whole first argument and its part of the others."""
    specs = (_WHOLE, _PARTS, _PARTS)
    found: jax.Array = jax.shard_map(local, in_specs=specs, out_specs=_WHOLE)(*arguments)
    return found


def mapped_within(budget_bytes: int, *arguments: jax.Array) -> jax.Array:
    """`mapped` of memsafe's `summed_product`, with the budget on each device."""
    from memsafe import memsafe

    return mapped(memsafe(summed_product, budget_bytes), *arguments)


def summed_product(x: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
    """A device's part of the product, plus all others': [N, D], [M, D], [M, 1] → [N, 1]."""
    return lax.psum(by_products(x, y, v), DEVICES)
