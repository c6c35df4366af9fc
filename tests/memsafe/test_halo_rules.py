"""The rules of stencils, shifts and convolutions: a piece has a halo."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from memsafe import BudgetError, memsafe, rules
from memsafe.rules import convolutions
from memsafe.rules.rolls import ROLL
from tests.exhaustive import nightly

from .budgets import assert_same, peak_bytes
from .pieces import assert_pieces_give_the_whole

pytestmark = pytest.mark.usefixtures("doubles")


def normal(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape)


@pytest.mark.parametrize(("start", "stop", "stride"), [(0, 7, 1), (2, 9, 1), (1, 9, 2), (0, 9, 3)])
def test_a_slice_is_cut_along_its_own_dimension(start: int, stop: int, stride: int) -> None:
    assert_pieces_give_the_whole(
        lambda x: lax.slice(x, (start, 0), (stop, 4), (stride, 1)),
        normal(9, 4),
        expect=[((None,), (0,), False), ((1,), (1,), False)],
    )


@pytest.mark.parametrize("ends", [(1, 2), (3, 0), (0, 4), (9, 9), (-2, 1), (1, -3)])
def test_padding_is_cut_with_what_fills_it(ends: tuple[int, int]) -> None:
    assert_pieces_give_the_whole(
        lambda x: lax.pad(x, x.dtype.type(7), ((*ends, 0), (0, 0, 0))),
        normal(6, 4),
        expect=[((None, None), (0,), False), ((1, None), (1,), False)],
    )


@pytest.mark.parametrize("ends", [(3, 0), (4, -2), (-1, 5)])
@pytest.mark.parametrize("between", [1, 2])
def test_padding_between_elements_is_cut_in_blocks(ends: tuple[int, int], between: int) -> None:
    assert_pieces_give_the_whole(
        lambda x: lax.pad(x, x.dtype.type(7), ((*ends, between), (0, 0, 0))),
        normal(6, 4),
        expect=[((None, None), ((0, between + 1),), False), ((1, None), (1,), False)],
    )


@pytest.mark.parametrize("parts", [(2, 5), (5, 2), (1, 1, 6), (3, 1, 1, 1, 1)])
def test_what_is_joined_is_cut_of_each_part(parts: tuple[int, ...]) -> None:
    def joined(*arrays: Array) -> Array:
        return jnp.concatenate(arrays)

    whole, along = (None,) * len(parts), (1,) * len(parts)
    assert_pieces_give_the_whole(
        joined,
        *(normal(size, 4) for size in parts),
        expect=[(whole, (0,), False), (along, (1,), False)],
        primitive="concatenate",
    )


@pytest.mark.parametrize("padding", [[(3, 1)], nightly("SAME"), nightly("VALID")])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_an_image_is_cut_with_its_halo(padding: Any, stride: int, dilation: int) -> None:
    def convolved(image: Array, kernel: Array) -> Array:
        return lax.conv_general_dilated(
            image,
            kernel,
            (stride,),
            padding,
            rhs_dilation=(dilation,),
            dimension_numbers=("NWC", "WIO", "NWC"),
        )

    expect = [
        ((0, None), (0,), False),
        ((None, 2), (2,), False),
        ((2, 1), (None,), True),
        ((None, None), (1,), False),
    ]
    assert_pieces_give_the_whole(
        convolved, normal(2, 19, 3), normal(4, 3, 2), expect=expect, rounds=True
    )


@pytest.mark.parametrize("padding", [(-1, 4), nightly((0, 0)), nightly((1, 2)), nightly((3, 3))])
@pytest.mark.parametrize(("gaps", "dilation"), [(2, 1), (3, 1), (2, 2)])
def test_a_dilated_image_is_cut_in_blocks(
    padding: tuple[int, int], gaps: int, dilation: int
) -> None:
    def convolved(image: Array, kernel: Array) -> Array:
        return lax.conv_general_dilated(
            image,
            kernel,
            (1,),
            [padding],
            lhs_dilation=(gaps,),
            rhs_dilation=(dilation,),
            dimension_numbers=("NWC", "WIO", "NWC"),
        )

    expect = [
        ((0, None), (0,), False),
        ((None, 2), (2,), False),
        ((2, 1), (None,), True),
        ((None, None), ((1, gaps),), False),
    ]
    assert_pieces_give_the_whole(
        convolved, normal(2, 9, 3), normal(4, 3, 2), expect=expect, rounds=True
    )


@pytest.mark.parametrize("padding", [(0, 2), nightly((0, 0)), nightly((1, 1)), nightly((2, 0))])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_kernels_gradient_is_summed_along_its_image(padding: Any, stride: int) -> None:
    def convolved(image: Array, kernel: Array) -> Array:
        numbers = ("NWC", "WIO", "NWC")
        return lax.conv_general_dilated(
            image, kernel, (stride,), [padding], dimension_numbers=numbers
        )

    image, kernel = normal(2, 19, 3), normal(3, 3, 5)
    cotangent = normal(*jax.eval_shape(convolved, image, kernel).shape)
    assert_pieces_give_the_whole(
        lambda image, cotangent: jax.vjp(partial(convolved, image), kernel)[1](cotangent)[0],
        image,
        cotangent,
        primitive="conv_general_dilated",
        expect=[
            ((2, None), (1,), False),
            ((None, 2), (2,), False),
            ((0, 0), (None,), True),
            ((None, 1), (None,), True),
            ((None, None), (0,), False),
        ],
        rounds=True,
    )


def test_what_lies_between_windows_is_given_no_gradient() -> None:
    def pooled(x: Array) -> Array:
        return lax.reduce_window(x, -np.inf, lax.max, (2, 1), (3, 1), "VALID")

    assert_pieces_give_the_whole(
        lambda x, cotangent: jax.vjp(pooled, x)[1](cotangent)[0],
        normal(12, 4),
        normal(4, 4),
        primitive="select_and_scatter_add",
        expect=[((0, None), ((0, 3),), False), ((1, 1), (1,), False)],
    )


@pytest.mark.parametrize("operation", [lax.max, nightly(lax.min)])
@pytest.mark.parametrize("padding", [((2, 1), (0, 0)), nightly("SAME"), nightly("VALID")])
@pytest.mark.parametrize(("span", "stride"), [(3, 1), (3, 2), (4, 3)])
def test_the_gradient_of_a_maximum_is_cut(
    operation: Any, padding: Any, span: int, stride: int
) -> None:
    start = {lax.max: -np.inf, lax.min: np.inf}[operation]

    def pooled(x: Array) -> Array:
        return lax.reduce_window(x, start, operation, (span, 1), (stride, 1), padding)

    cotangent = normal(*jax.eval_shape(pooled, normal(12, 4)).shape)
    assert_pieces_give_the_whole(
        lambda x, cotangent: jax.vjp(pooled, x)[1](cotangent)[0],
        normal(12, 4),
        cotangent,
        primitive="select_and_scatter_add",
        expect=[((None, None), ((0, stride),), False), ((1, 1), (1,), False)],
        rounds=True,
    )


@pytest.mark.parametrize("operation", [lax.max, lax.min, lax.add])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_windows_are_reduced_with_their_halo(operation: Any, padding: str) -> None:
    start = {lax.max: -np.inf, lax.min: np.inf, lax.add: 0.0}[operation]
    assert_pieces_give_the_whole(
        lambda x: lax.reduce_window(x, start, operation, (3, 1), (2, 1), padding),
        normal(11, 4),
        expect=[((None,), (0,), False), ((1,), (1,), False)],
        rounds=True,
    )


@pytest.mark.parametrize("shift", [1, -2])
def test_a_roll_has_the_same_values_in_pieces(shift: int) -> None:
    assert_pieces_give_the_whole(
        lambda x: jnp.roll(x, shift, 0),
        normal(9, 4),
        expect=[((None, None), (0,), False), ((1, 1), (1,), False)],
        primitive="concatenate",
    )


@pytest.mark.parametrize("offset", [1, -2, 4])
def test_a_roll_wraps_around(offset: int) -> None:
    def rolled(x: Array) -> Array:
        found: Array = ROLL.bind(x, dim=0, offset=offset)
        return found

    x = normal(9, 4)
    np.testing.assert_array_equal(jax.jit(rolled)(x), np.roll(x, -offset, 0))
    assert_pieces_give_the_whole(rolled, x, expect=[((None,), (0,), False), ((1,), (1,), False)])


def test_whole_numbers_beyond_an_end_are_filled() -> None:
    x = jnp.arange(6, dtype=jnp.int8)
    assert_pieces_give_the_whole(
        lambda x: lax.pad(x, jnp.int8(-5), ((2, 3, 0),)), x, expect=[((None, None), (0,), False)]
    )


def tallest(image: Array, kernel: Array) -> Array:
    """Sorts the features of an image: neither images nor features can be sliced."""
    numbers = ("NHWC", "HWIO", "NHWC")
    features = lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=numbers)
    return jnp.sum(jnp.sin(jnp.sort(features, axis=-1)) * jnp.arange(32.0))


def test_one_large_image_fits_an_eighth() -> None:
    given = (jnp.asarray(normal(1, 96, 96, 2)), jnp.asarray(normal(3, 3, 2, 32)))
    budget = peak_bytes(tallest, *given) // 8
    safe = memsafe(tallest, budget)
    assert_same(safe(*given), tallest(*given))
    assert peak_bytes(safe, *given) <= budget


def test_the_control_without_windows_the_image_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = (jnp.asarray(normal(1, 96, 96, 2)), jnp.asarray(normal(3, 3, 2, 32)))
    budget = peak_bytes(tallest, *given) // 8
    monkeypatch.setattr(rules, "RULES", {**rules.RULES, **convolutions.RULES})
    with pytest.raises(BudgetError, match="conv_general_dilated"):
        memsafe(tallest, budget)(*given)
