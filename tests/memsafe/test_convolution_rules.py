"""Convolutions and reductions of windows, by pieces."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from tests.memsafe.pieces import assert_pieces_give_the_whole

pytestmark = pytest.mark.exhaustive

LAYOUTS = ("NHWC", "HWIO", "NHWC")


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def convolved(images: jax.Array, kernel: jax.Array, **options: int) -> jax.Array:
    return lax.conv_general_dilated(
        images,
        kernel,
        window_strides=(2, 1),
        padding="SAME",
        rhs_dilation=(1, 2),
        dimension_numbers=LAYOUTS,
        **options,
    )


def test_a_convolution_is_cut_along_images_features_and_space() -> None:
    assert_pieces_give_the_whole(
        convolved,
        numbers(5, 7, 6, 4),
        numbers(3, 2, 4, 6),
        expect=[
            ((0, None), (0,), False),
            ((None, 3), (3,), False),
            ((3, 2), (None,), True),
        ],
        halos=(1, 2),
        rounds=True,
    )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_input_features_of_narrow_floats_are_added_in_float32(dtype: type) -> None:
    assert_pieces_give_the_whole(
        lambda x, y: lax.conv(x, y, (1,), "VALID"),
        numbers(1, 6, 8, dtype=dtype),
        numbers(1, 6, 3, dtype=dtype),
        expect=[((1, 1), (None,), True)],
        halos=(2,),
    )


def test_a_pixel_that_is_counted_and_not_finite_is_counted_once() -> None:
    images = numbers(1, 5, 4)
    images[0, 3] = np.inf
    assert_pieces_give_the_whole(
        lambda x, y: lax.conv(x, y, (1,), "VALID"),
        images,
        np.abs(numbers(1, 5, 2)),
        expect=[((1, 1), (None,), True)],
        halos=(2,),
    )


def test_grouped_features_leave_the_images_and_space_apart() -> None:
    assert_pieces_give_the_whole(
        lambda x, y: convolved(x, y, feature_group_count=2),
        numbers(4, 5, 6, 4),
        numbers(3, 2, 2, 6),
        expect=[((0, None), (0,), False)],
        halos=(1, 2),
        rounds=True,
    )


def test_grouped_images_are_cut_along_input_features_and_space() -> None:
    assert_pieces_give_the_whole(
        lambda x, y: convolved(x, y, batch_group_count=2),
        numbers(4, 5, 6, 4),
        numbers(3, 2, 4, 6),
        expect=[((3, 2), (None,), True)],
        halos=(1, 2),
        rounds=True,
    )


def test_the_gradient_of_a_kernel_sums_over_images() -> None:
    def loss(kernel: jax.Array, images: jax.Array) -> jax.Array:
        return (convolved(images, kernel) ** 2).sum()

    assert_pieces_give_the_whole(
        jax.grad(loss),
        numbers(3, 2, 4, 6),
        numbers(5, 7, 6, 4),
        primitive="conv_general_dilated",
        expect=[
            ((3, None), (2,), False),
            ((None, 3), (3,), False),
            ((0, 0), (None,), True),
            ((None, 1), (None,), True),
            ((None, 2), (None,), True),
        ],
        halos=(0, 1),
        rounds=True,  # The library's order of sums depends on the number of channels and processor.
    )


def test_the_gradient_of_a_kernel_for_each_feature_sums_over_images() -> None:
    def loss(kernel: jax.Array, images: jax.Array) -> jax.Array:
        return (convolved(images, kernel, feature_group_count=4) ** 2).sum()

    assert_pieces_give_the_whole(
        jax.grad(loss),
        numbers(3, 2, 1, 4),
        numbers(5, 7, 6, 4),
        primitive="conv_general_dilated",
        expect=[((0, 0), (None,), True), ((None, 1), (None,), True), ((None, 2), (None,), True)],
        halos=(0, 1),
        rounds=True,
    )


WINDOWS = {"window_dimensions": (1, 2, 3, 1), "window_strides": (1, 2, 1, 1)}


@pytest.mark.parametrize(("reduction", "initial"), [(lax.max, -np.inf), (lax.add, 0.0)])
def test_windows_are_reduced_by_pieces_of_what_no_window_spans(
    reduction: Callable[..., Array], initial: float
) -> None:
    assert_pieces_give_the_whole(
        lambda x: lax.reduce_window(x, np.float32(initial), reduction, **WINDOWS, padding="VALID"),
        numbers(3, 6, 6, 5),
        expect=[((0,), (0,), False), (((1, 2),), (1,), False), ((3,), (3,), False)],
        halos=(2,),
        rounds=True,
    )


def test_a_reduction_of_windows_by_any_function_is_cut_as_well() -> None:
    def larger(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(jnp.abs(x) > jnp.abs(y), x, y)

    assert_pieces_give_the_whole(
        lambda x: lax.reduce_window(x, np.float32(0), larger, **WINDOWS, padding="SAME"),
        numbers(3, 6, 6, 1),
        primitive="reduce_window",
        expect=[((0, None), (0,), False)],
    )


@pytest.mark.parametrize(
    ("options", "expect", "halos"),
    [
        ({"padding": ((1, 0), (0, 0))}, [], (0, 1)),
        ({"padding": "VALID", "base_dilation": (2, 1)}, [((0,), ((0, 2),), False)], (1,)),
        ({"padding": "VALID", "window_strides": (2, 1)}, [], (0, 1)),
    ],
)
def test_a_dimension_is_cut_in_steps_of_its_stride_or_dilation(
    options: dict[str, Any], expect: Any, halos: tuple[int, ...]
) -> None:
    options = {"window_strides": (1, 1), "window_dimensions": (1, 2), **options}
    assert_pieces_give_the_whole(
        lambda x: lax.reduce_window(x, np.float32(0), lax.add, **options),
        numbers(4, 6),
        expect=expect,
        halos=halos,
    )


def test_the_gradient_of_a_largest_of_windows_is_cut_along_all_dimensions() -> None:
    def loss(x: jax.Array) -> jax.Array:
        pooled = lax.reduce_window(x, np.float32(-np.inf), lax.max, **WINDOWS, padding="VALID")
        return (pooled**2).sum()

    assert_pieces_give_the_whole(
        jax.grad(loss),
        numbers(3, 6, 6, 5),
        primitive="select_and_scatter_add",
        expect=[
            ((0, 0), (0,), False),
            ((1, (1, 2)), ((1, 2),), False),
            ((None, None), (2,), False),
            ((3, 3), (3,), False),
        ],
    )
