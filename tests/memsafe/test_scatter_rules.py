"""Elements written or added at computed places, by pieces."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jax import Array, lax

from memsafe.rules import factors_of
from tests.memsafe.exact_merges import assert_merges_to_the_bit
from tests.memsafe.pieces import (
    assert_pieces_give_the_whole,
    last_equation,
)
from tests.memsafe.tables import (
    AWKWARD,
    MODES,
    ROWS,
    numbers,
    some_places,
    vectors,
    whole_numbers,
)

pytestmark = pytest.mark.exhaustive


def with_rows(
    put: Callable[..., Array], array: Array, indices: Array, rows: Array, mode: str
) -> Array:
    """`array` with `rows` put at `indices`; negative indices do not count from the end."""
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(indices.ndim - 1,),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
    )
    return put(array, indices, rows, numbers, mode=mode)


ADDITIONS = {
    "scatter-add": lax.scatter_add,
    "scatter-sub": lax.scatter_sub,
    "scatter-min": lax.scatter_min,
    "scatter-max": lax.scatter_max,
}
ROWS_PUT = [((0, None, None), (0,), False), ((1, None, 2), (1,), False)]
ROWS_ADDED = [
    *ROWS_PUT,
    ((None, 0, 0), (None,), True),
    ((None, 1, 1), (None,), True),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ADDITIONS)
def test_rows_are_added_by_pieces_of_table_features_and_tokens(name: str, mode: str) -> None:
    assert_pieces_give_the_whole(
        lambda x, at, rows: with_rows(ADDITIONS[name], x, at, rows, mode),
        numbers(ROWS, 5),
        some_places(3, 4, 1),
        numbers(3, 4, 5) + 1,
        expect=ROWS_ADDED,
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [*ADDITIONS, "scatter-mul"])
@settings(max_examples=10)
@given(vectors)
def test_whole_numbers_are_added_exactly_wherever_they_fall(
    name: str, mode: str, at: np.ndarray
) -> None:
    put = {**ADDITIONS, "scatter-mul": lax.scatter_mul}[name]
    assert_merges_to_the_bit(
        lambda x, at, rows: with_rows(put, x, at, rows, mode),
        whole_numbers(ROWS, 2),
        at[..., None],
        whole_numbers(3, 4, 2) + 1,
        primitive=name,
        merges=2,
    )


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=4)
@given(vectors)
def test_rows_are_set_in_pieces_of_the_table_alone(mode: str, at: np.ndarray) -> None:
    assert_pieces_give_the_whole(
        lambda x, at, rows: with_rows(lax.scatter, x, at, rows, mode),
        numbers(ROWS, 2),
        at[..., None],
        numbers(3, 4, 2) + 1,
        expect=ROWS_PUT,
    )


@pytest.mark.parametrize("name", ["scatter-min", "scatter-max"])
def test_a_largest_or_smallest_that_is_nan_stays_nan(name: str) -> None:
    table = np.stack([AWKWARD, np.roll(AWKWARD, 1)], 1)
    rows = np.random.default_rng(3).choice(AWKWARD, (3, 4, 2))
    assert_pieces_give_the_whole(
        lambda x, at, rows: with_rows(ADDITIONS[name], x, at, rows, "fill"),
        table,
        some_places(3, 4, 1),
        rows,
        expect=ROWS_ADDED,
    )


def test_products_of_floats_are_merged_only_where_no_index_comes_twice() -> None:
    table, rows, at = numbers(ROWS, 2), numbers(4, 2), np.array([5, 0, 7, 2], np.int32)
    twice = last_equation(
        lambda x, at, y: x.at[at].mul(y), table, at, rows, primitive="scatter-mul"
    )
    assert all(factor.merge is None for factor in factors_of(twice.equation))
    assert_merges_to_the_bit(
        lambda x, at, y: x.at[at].mul(y, unique_indices=True),
        table,
        at,
        rows,
        primitive="scatter-mul",
        merges=1,
    )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_narrow_floats_are_added_in_float32_and_rounded_once(dtype: type) -> None:
    ones = jnp.ones((1000, 1), dtype)
    at = np.zeros(1000, np.int32)
    seen = last_equation(
        lambda x, at, y: with_rows(lax.scatter_add, x, at, y, "fill"), ones[:2], at[:, None], ones
    )
    (tokens,) = [factor for factor in factors_of(seen.equation) if factor.merge is not None]
    assert tokens.merge.state_avals(seen.equation)[0].dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, jnp.bfloat16])
@pytest.mark.parametrize("add", [lax.scatter_add, lax.scatter_sub])
def test_zeros_that_nothing_is_added_to_keep_their_sign(
    add: Callable[..., Array], dtype: type
) -> None:
    zeros = -jnp.zeros((5, 2), dtype)
    at, rows = np.array([1, 1, 3, 9])[:, None], jnp.asarray([[1, 2], [3, 4], [0, 5], [6, 7]], dtype)
    assert_merges_to_the_bit(
        lambda x, at, y: with_rows(add, x, at, y, "drop"), zeros, at, rows, merges=1
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint32])
def test_rows_are_put_at_indices_of_any_type(dtype: type, mode: str) -> None:
    limits = np.iinfo(dtype)
    at = np.array([limits.min, 0, 3, 127, 129, 199, limits.max]).clip(limits.min, limits.max)
    for array in (numbers(130, 1), numbers(5, 1)):
        assert_pieces_give_the_whole(
            lambda x, at, rows: with_rows(lax.scatter_add, x, at, rows, mode),
            array,
            at.astype(dtype)[:, None],
            numbers(7, 1),
            expect=[((0, None, None), (0,), False), ((None, 0, 0), (None,), True)],
        )


def test_a_window_that_crosses_the_end_is_dropped_as_a_whole() -> None:
    some = lax.ScatterDimensionNumbers(
        update_window_dims=(1, 2), inserted_window_dims=(), scatter_dims_to_operand_dims=(0, 1)
    )
    assert_pieces_give_the_whole(
        lambda x, at, y: lax.scatter_add(x, at, y, some, mode="drop"),
        numbers(ROWS, 5),
        np.array([[0, 0], [2, 0], [4, 0], [1, 1]], np.int32),
        numbers(4, 3, 5),
        expect=[((None, 0, 0), (None,), True)],
    )


def test_a_window_that_is_moved_within_is_cut_along_what_it_spans() -> None:
    def updated(x: Array, y: Array, at: Array) -> Array:
        return jax.vmap(lambda x, y, at: lax.dynamic_update_slice(x, y, (at, at)))(x, y, at)

    assert_pieces_give_the_whole(
        updated,
        numbers(3, ROWS, 5),
        numbers(3, 2, 5),
        np.array([-9, 3, 9], np.int32),
        primitive="scatter",
        expect=[((0, 0, 0), (0,), False), ((2, None, 2), (2,), False)],
    )


@pytest.mark.parametrize("name", [*ADDITIONS, "scatter-mul", "scatter"])
def test_one_index_in_each_stack_moves_into_no_other_piece(name: str) -> None:
    put = {**ADDITIONS, "scatter-mul": lax.scatter_mul, "scatter": lax.scatter}[name]
    stacked = lax.ScatterDimensionNumbers(
        update_window_dims=(0,),
        inserted_window_dims=(1,),
        scatter_dims_to_operand_dims=(1,),
        operand_batching_dims=(2, 3),
        scatter_indices_batching_dims=(2, 0),
    )
    assert_pieces_give_the_whole(
        lambda x, at, y: put(x, at, y, stacked, mode="drop"),
        numbers(4, ROWS, 2, 3),
        np.array([[[-1, 3]], [[0, 5]], [[6, 2]]], np.int32)[..., None],
        numbers(4, 3, 1, 2),
        expect=[
            ((2, 2, 3), (2,), False),
            ((3, 0, 1), (3,), False),
            ((0, None, 0), (0,), False),
            ((1, None, None), (1,), False),
        ],
    )


def test_a_column_set_at_one_place_is_cut_along_it_and_along_rows() -> None:
    assert_pieces_give_the_whole(
        lambda x, at, y: x.at[:, at].set(y),
        numbers(4, ROWS),
        np.int32(3),
        numbers(4),
        primitive="scatter",
        expect=[((0, None, 0), (0,), False), ((1, None, None), (1,), False)],
    )


def test_the_gradient_of_an_embedding_adds_tokens_up() -> None:
    def loss(table: Array, at: Array) -> Array:
        return (table[at] ** 2).sum()

    assert_pieces_give_the_whole(
        jax.grad(loss),
        numbers(ROWS, 5),
        some_places(3, 4) % ROWS,
        primitive="scatter-add",
        expect=ROWS_ADDED,
    )


def test_the_gradient_of_a_cross_entropy_stacks_its_tokens() -> None:
    def loss(scores: Array, labels: Array) -> Array:
        picked = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1)
        return -picked.sum()

    assert_pieces_give_the_whole(
        jax.grad(loss),
        numbers(4, ROWS),
        some_places(4) % ROWS,
        primitive="scatter-add",
        expect=[((0, 0, 0), (0,), False), ((1, None, None), (1,), False)],
    )


def test_the_gradient_of_a_median_is_put_back_row_by_row() -> None:
    assert_pieces_give_the_whole(
        jax.grad(lambda x: (jnp.median(x, axis=1) ** 2).sum()),
        numbers(4, 5),
        primitive="scatter-add",
        expect=[
            ((0, 0, 0), (0,), False),
            ((1, None, None), (1,), False),
            ((None, 1, 1), (None,), True),
        ],
    )
