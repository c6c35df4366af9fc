"""`gather` at computed indices, by pieces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jax import Array, lax

from tests.memsafe.exact_merges import assert_merges_to_the_bit
from tests.memsafe.pieces import (
    assert_pieces_give_the_whole,
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


def rows_of(array: Array, indices: Array, mode: str) -> Array:
    """The rows at `indices`; negative indices do not count from the end."""
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
@settings(max_examples=10)
@given(vectors)
def test_rows_from_pieces_of_a_table_are_the_rows_to_the_bit(mode: str, at: np.ndarray) -> None:
    table = np.stack([AWKWARD, np.roll(AWKWARD, 1)], 1)
    assert_merges_to_the_bit(lambda x, at: rows_of(x, at, mode), table, at[..., None], merges=1)
    assert_merges_to_the_bit(
        lambda x, at: rows_of(x, at, mode), table, at[..., None], merges=1, times=2
    )


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=10)
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


def test_a_vmapped_dynamic_slice_is_cut_along_what_it_takes_whole() -> None:
    assert_pieces_give_the_whole(
        jax.vmap(lambda x, at: lax.dynamic_slice(x, (at, at), (2, 5))),
        numbers(3, ROWS, 5),
        np.array([-9, 3, 9], np.int32),
        primitive="gather",
        expect=[((0, 0), (0,), False), ((2, None), (2,), False)],
    )


def test_one_column_is_taken_from_every_row() -> None:
    assert_pieces_give_the_whole(
        lambda x, at: rows_of(x.T, at, "promise_in_bounds"),
        numbers(4, ROWS),
        np.array([2], np.int32),
        primitive="gather",
        expect=[((1, None), (0,), False), ((0, None), (None,), True)],
    )
