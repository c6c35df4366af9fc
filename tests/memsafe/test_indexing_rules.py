"""Elements taken from, put to, and sliced at computed places, by pieces."""

from collections.abc import Callable

import jax
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
)

MODES = ("fill", "clip", "promise_in_bounds")
ROWS = 6
AWKWARD = np.array([np.nan, -np.inf, np.inf, 0.0, -0.0, 1.5], np.float32)
OUT_OF_BOUNDS = [-(2**31), -ROWS - 1, -1, ROWS, ROWS + 1, 2**31 - 1]
places = st.integers(0, ROWS - 1) | st.sampled_from(OUT_OF_BOUNDS)
vectors = st.lists(places, min_size=12, max_size=12).map(
    lambda values: np.array(values, np.int32).reshape(3, 4)
)


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def whole_numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape, np.int32)


def some_places(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-ROWS, 2 * ROWS, shape, np.int32)


def rows_of(array: Array, indices: Array, mode: str) -> Array:
    """The rows at `indices`, which negative ones do not count from the end."""
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(indices.ndim - 1,), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    size = (1, array.shape[1])
    return lax.gather(array, indices, numbers, size, mode=mode)


def elements_of(array: Array, rows: Array, columns: Array, mode: str) -> Array:
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(), collapsed_slice_dims=(0, 1), start_index_map=(1, 0)
    )
    return lax.gather(array, jnp.stack([columns, rows], -1), numbers, (1, 1), mode=mode)


def with_rows(
    put: Callable[..., Array], array: Array, indices: Array, rows: Array, mode: str
) -> Array:
    """`array` with `rows` put at `indices`, which negative ones do not count from the end."""
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(indices.ndim - 1,),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
    )
    return put(array, indices, rows, numbers, mode=mode)


EMBEDDING = [
    ((None, 0), (0,), False),
    ((None, 1), (1,), False),
    ((1, None), (2,), False),
    ((0, None), (None,), True),
]


@pytest.mark.parametrize("mode", MODES)
def test_an_embedding_is_cut_along_tokens_features_and_vocabulary(mode: str) -> None:
    assert_pieces_give_the_whole(
        lambda x, at: rows_of(x, at, mode), numbers(ROWS, 5), some_places(3, 4, 1), expect=EMBEDDING
    )


@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None, max_examples=40)
@given(vectors)
def test_rows_from_pieces_of_a_table_are_the_rows_to_the_bit(mode: str, at: np.ndarray) -> None:
    table = np.stack([AWKWARD, np.roll(AWKWARD, 1)], 1)
    assert_merges_to_the_bit(lambda x, at: rows_of(x, at, mode), table, at[..., None], merges=1)
    assert_merges_to_the_bit(
        lambda x, at: rows_of(x, at, mode), table, at[..., None], merges=1, times=2
    )


@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None, max_examples=40)
@given(vectors, vectors)
def test_elements_from_pieces_of_either_dimension_are_the_elements(
    mode: str, rows: np.ndarray, columns: np.ndarray
) -> None:
    array = np.random.default_rng(0).choice(AWKWARD, (ROWS, ROWS - 2))
    assert_merges_to_the_bit(
        lambda x, i, j: elements_of(x, i, j, mode),
        array,
        rows,
        columns,
        primitive="gather",
        merges=2,
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint32])
def test_indices_of_any_type_are_found_in_pieces(dtype: type, mode: str) -> None:
    limits = np.iinfo(dtype)
    at = np.array([limits.min, 0, 3, 127, 129, 199, limits.max]).clip(limits.min, limits.max)
    for array in (numbers(130, 1), numbers(5, 1)):
        assert_pieces_give_the_whole(
            lambda x, at: rows_of(x, at, mode),
            array,
            at.astype(dtype)[:, None],
            expect=[((None, 0), (0,), False), ((0, None), (None,), True)],
        )


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.complex64, jnp.bfloat16])
def test_what_is_taken_may_be_of_any_type(dtype: type) -> None:
    array = whole_numbers(ROWS, 2).astype(dtype)
    assert_merges_to_the_bit(
        lambda x, at: rows_of(x, at, "fill"), array, some_places(9, 1), merges=1
    )


def test_keys_are_not_searched_for_piece_by_piece() -> None:
    keys = jax.random.split(jax.random.key(0), (ROWS, 2))
    assert_pieces_give_the_whole(
        lambda keys, at: rows_of(keys, at, "clip"),
        keys,
        some_places(3, 1),
        expect=[((None, 0), (0,), False), ((1, None), (1,), False)],
    )


def test_a_window_of_some_rows_is_taken_from_the_whole() -> None:
    some = lax.GatherDimensionNumbers(
        offset_dims=(1, 2), collapsed_slice_dims=(), start_index_map=(0, 1)
    )
    assert_pieces_give_the_whole(
        lambda x, at: lax.gather(x, at, some, (3, 5), mode="fill"),
        numbers(ROWS, 5),
        np.array([[0, 0], [2, 0], [4, 0], [1, 1]], np.int32),
        expect=[((None, 0), (0,), False), ((1, None), (2,), False)],
    )


@pytest.mark.parametrize("mode", MODES)
def test_take_along_axis_is_cut_along_both_dimensions(mode: str) -> None:
    assert_pieces_give_the_whole(
        lambda x, at: jnp.take_along_axis(x, at, 1, mode=mode),
        numbers(4, ROWS),
        some_places(4, 3),
        primitive="gather",
        expect=[
            ((0, 0), (0,), False),
            ((None, 1), (1,), False),
            ((1, None), (None,), True),
        ],
    )


def test_take_along_a_middle_axis_stacks_the_others() -> None:
    assert_pieces_give_the_whole(
        lambda x, at: jnp.take_along_axis(x, at, 1),
        numbers(4, ROWS, 3),
        some_places(4, 2, 3),
        primitive="gather",
        expect=[
            ((0, 0), (0,), False),
            ((2, 2), (2,), False),
            ((None, 1), (1,), False),
            ((1, None), (None,), True),
        ],
    )


def test_take_along_a_last_axis_is_cut_in_its_window() -> None:
    assert_pieces_give_the_whole(
        lambda x, at: jnp.take(x, at, axis=1, mode="clip"),
        numbers(4, ROWS),
        some_places(2, 3),
        primitive="gather",
        expect=[
            ((None, 0), (1,), False),
            ((None, 1), (2,), False),
            ((0, None), (0,), False),
            ((1, None), (None,), True),
        ],
    )


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
@settings(deadline=None, max_examples=20)
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
@settings(deadline=None, max_examples=10)
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


def test_a_vmapped_dynamic_slice_is_cut_along_what_it_takes_whole() -> None:
    assert_pieces_give_the_whole(
        jax.vmap(lambda x, at: lax.dynamic_slice(x, (at, at), (2, 5))),
        numbers(3, ROWS, 5),
        np.array([-9, 3, 9], np.int32),
        primitive="gather",
        expect=[((0, 0), (0,), False), ((2, None), (2,), False)],
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


def test_one_column_is_taken_from_every_row() -> None:
    assert_pieces_give_the_whole(
        lambda x, at: rows_of(x.T, at, "promise_in_bounds"),
        numbers(4, ROWS),
        np.array([2], np.int32),
        primitive="gather",
        expect=[((1, None), (0,), False), ((0, None), (None,), True)],
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


@pytest.mark.parametrize("start", [-9, -1, 0, 2, 4, 99])
def test_a_dynamic_slice_is_cut_along_what_it_takes_whole(start: int) -> None:
    assert_pieces_give_the_whole(
        lambda x, at: lax.dynamic_slice(x, (at, at, at), (4, 3, 6)),
        numbers(4, 5, 6),
        np.int32(start),
        primitive="dynamic_slice",
        expect=[
            ((0, None, None, None), (0,), False),
            ((2, None, None, None), (2,), False),
        ],
    )


@pytest.mark.parametrize("start", [-9, -1, 0, 2, 4, 99])
def test_a_dynamic_update_is_cut_along_what_it_updates_whole(start: int) -> None:
    assert_pieces_give_the_whole(
        lambda x, y, at: lax.dynamic_update_slice(x, y, (at, at, at)),
        numbers(4, 5, 6),
        numbers(4, 3, 6) + 1,
        np.int32(start),
        primitive="dynamic_update_slice",
        expect=[
            ((0, 0, None, None, None), (0,), False),
            ((2, 2, None, None, None), (2,), False),
        ],
    )


def test_a_dynamic_slice_of_part_of_every_dimension_stays_whole() -> None:
    assert_stays_whole(
        lambda x, at: lax.dynamic_slice(x, (at,), (3,)),
        numbers(5),
        np.int32(1),
        primitive="dynamic_slice",
    )
