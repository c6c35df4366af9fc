"""`dynamic_slice` and `dynamic_update_slice`, by pieces."""

import numpy as np
import pytest
from jax import lax

from tests.memsafe.pieces import (
    assert_pieces_give_the_whole,
    assert_stays_whole,
)
from tests.memsafe.tables import numbers

pytestmark = pytest.mark.exhaustive


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
