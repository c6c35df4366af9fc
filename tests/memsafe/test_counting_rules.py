"""Counts of elements below pivots: the counts of pieces add up."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from memsafe.rules.counting import COUNT_BELOW, count_below
from tests.memsafe.pieces import assert_pieces_give_the_whole

KINDS = [np.uint8, np.uint16, np.uint32]


def drawn(dtype: Any) -> Array:
    """Numbers that include the two largest of their type."""
    largest = np.iinfo(dtype).max
    return jnp.asarray(
        np.random.default_rng(0).choice([0, 3, largest - 1, largest], (6, 1, 10)), dtype
    )


def pivots(dtype: Any) -> Array:
    return jnp.asarray([0, 3, 4, np.iinfo(dtype).max], dtype)


@pytest.mark.parametrize("dtype", KINDS)
def test_values_are_counted_along_every_dimension(dtype: Any) -> None:
    assert_pieces_give_the_whole(
        lambda x: COUNT_BELOW.bind(x, pivots(dtype)),
        drawn(dtype),
        expect=[((0, None), (None,), True), ((2, None), (None,), True)],
    )


def test_what_equals_a_pivot_is_not_below_it() -> None:
    x = drawn(np.uint8)
    wanted = [int(np.sum(np.asarray(x) < pivot)) for pivot in np.asarray(pivots(np.uint8))]
    assert list(map(int, count_below(x, pivots(np.uint8)))) == wanted


def test_a_batch_is_counted_each_for_itself() -> None:
    x = drawn(np.uint16)
    found = jax.vmap(lambda row: COUNT_BELOW.bind(row, pivots(np.uint16)))(x)
    np.testing.assert_array_equal(found, [count_below(row, pivots(np.uint16)) for row in x])
