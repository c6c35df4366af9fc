"""Sorts, the largest few and running sums, by pieces."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array, lax

from memsafe.rules import factors_of
from tests.memsafe.exact_merges import assert_merges_to_the_bit
from tests.memsafe.pieces import (
    assert_pieces_give_the_whole,
    assert_stays_whole,
    last_equation,
    written,
)

pytestmark = pytest.mark.exhaustive

AWKWARD = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1.0, -3.0], np.float32)

rows = st.lists(st.integers(0, len(AWKWARD) - 1), min_size=14, max_size=14).map(
    lambda places: AWKWARD[places].reshape(2, 7)
)
integers = st.lists(st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1]), min_size=14, max_size=14).map(
    lambda values: np.array(values, np.int32).reshape(2, 7)
)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_a_sort_of_several_arrays_is_cut_along_its_other_dimensions() -> None:
    assert_pieces_give_the_whole(
        lambda x, y: lax.sort((x, y), dimension=1, num_keys=1),
        np.round(numbers(4, 5, 6)),
        numbers(4, 5, 6),
        expect=[((0, 0), (0, 0), False), ((2, 2), (2, 2), False)],
    )


def test_a_sort_of_one_dimension_stays_whole() -> None:
    assert_stays_whole(lax.sort, numbers(8))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "running", [lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp]
)
def test_a_running_reduction_is_cut_along_its_other_dimensions(
    *, running: Callable[..., Array], reverse: bool
) -> None:
    assert_pieces_give_the_whole(
        lambda x: running(x, axis=1, reverse=reverse),
        numbers(4, 5, 6),
        expect=[((0,), (0,), False), ((2,), (2,), False)],
    )


def test_an_approximate_top_k_is_cut_along_its_other_dimensions() -> None:
    assert_pieces_give_the_whole(
        lambda x: lax.approx_max_k(x, 3), numbers(4, 20), expect=[((0,), (0, 0), False)]
    )


def test_a_top_k_is_cut_along_its_other_dimensions_and_merged_along_its_own() -> None:
    seen = last_equation(lambda x: lax.top_k(x, 3, axis=0), numbers(9, 4))
    others, own = factors_of(seen.equation)
    assert written(others) == (((1, 1),), ((1, 1), (1, 1)), False)
    assert written(own) == (((0, 1),), (None, None), True)
    assert (own.size, own.least) == (9, 3)


@pytest.mark.parametrize(("times", "least"), [(1, 5), (2, 3), (4, 2), (12, 1)])
def test_coarser_pieces_of_a_top_k_have_at_least_k_elements(times: int, least: int) -> None:
    seen = last_equation(lambda x: lax.top_k(x, 5), numbers(12))
    (own,) = factors_of(seen.equation)
    assert own.coarser(times).least == least


@pytest.mark.parametrize("k", [0, 6])
def test_a_top_k_of_nothing_or_of_everything_is_not_merged(k: int) -> None:
    assert_stays_whole(lambda x: lax.top_k(x, k), numbers(6))


@settings(max_examples=20)
@given(rows, st.integers(1, 4))
def test_a_top_k_by_pieces_keeps_order_ties_and_nan(array: np.ndarray, k: int) -> None:
    assert_merges_to_the_bit(lambda x: lax.top_k(x, k), array, merges=1)


@settings(max_examples=20)
@given(integers, st.integers(1, 4))
def test_a_top_k_of_integers_by_pieces_keeps_ties_with_the_lowest(
    array: np.ndarray, k: int
) -> None:
    assert_merges_to_the_bit(lambda x: lax.top_k(x, k), array, merges=1)


def test_places_in_blocks_are_counted_in_elements() -> None:
    array = AWKWARD[np.random.default_rng(1).integers(0, len(AWKWARD), (12, 3))]
    assert_merges_to_the_bit(lambda x: lax.top_k(x, 3, axis=0), array, merges=1, times=2)
    assert_merges_to_the_bit(lambda x: lax.argmax(x, 0, np.int32), array, merges=1, times=2)


@pytest.mark.parametrize("extreme", [lax.argmax, lax.argmin])
@settings(max_examples=20)
@given(rows)
def test_the_place_of_an_extreme_is_the_first_among_equals_or_the_first_nan(
    extreme: Callable[..., Array], array: np.ndarray
) -> None:
    assert_merges_to_the_bit(lambda x: extreme(x, 1, np.int32), array, merges=1)


@pytest.mark.parametrize("extreme", [lax.argmax, lax.argmin])
@settings(max_examples=20)
@given(integers)
def test_the_place_of_an_extreme_integer_is_the_first_among_equals(
    extreme: Callable[..., Array], array: np.ndarray
) -> None:
    assert_merges_to_the_bit(lambda x: extreme(x, 1, np.int32), array, merges=1)


@pytest.mark.parametrize("extreme", [lax.argmax, lax.argmin])
def test_the_place_of_an_extreme_is_cut_along_every_dimension(
    extreme: Callable[..., Array],
) -> None:
    assert_pieces_give_the_whole(
        lambda x: extreme(x, 1, np.int32),
        numbers(4, 6, 5),
        expect=[((0,), (0,), False), ((2,), (1,), False), ((1,), (None,), True)],
    )


def test_the_place_of_an_extreme_truth_is_merged() -> None:
    array = np.array([[False, False, True, True], [True] * 4, [False] * 4])
    for extreme in (lax.argmax, lax.argmin):
        assert_merges_to_the_bit(lambda x, of=extreme: of(x, 1, np.int32), array, merges=1)


def test_places_that_their_type_cannot_count_are_not_merged() -> None:
    assert_stays_whole(lambda x: lax.argmax(x, 0, np.int8), jnp.zeros(130))
