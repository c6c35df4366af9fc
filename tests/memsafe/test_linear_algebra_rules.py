"""Decompositions and solves of stacks of matrices, by pieces."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.memsafe.pieces import assert_pieces_give_the_whole, assert_stays_whole

pytestmark = pytest.mark.exhaustive


def matrices(*stack: int) -> np.ndarray:
    values = np.random.default_rng(0).normal(size=(*stack, 4, 4)).astype(np.float32)
    return values @ np.swapaxes(values, -1, -2) + 4 * np.eye(4, dtype=np.float32)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


DECOMPOSITIONS = {
    "cholesky": (lax.linalg.cholesky, 1),
    "eigh": (lax.linalg.eigh, 2),
    "householder_product": (
        lambda x: lax.linalg.householder_product(x, x[..., 0]),
        1,
    ),
    "lu": (lax.linalg.lu, 3),
    "qr": (lambda x: lax.linalg.qr(x, full_matrices=False), 2),
    "schur": (lax.linalg.schur, 2),
    "svd": (lambda x: lax.linalg.svd(x, full_matrices=False), 3),
    "symmetric_product": (lambda x: lax.linalg.symmetric_product(x, x, beta=2.0), 1),
}


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_a_decomposition_is_cut_along_its_stack(name: str) -> None:
    decomposed, results = DECOMPOSITIONS[name]
    operands = 2 if name in {"householder_product", "symmetric_product"} else 1
    assert_pieces_give_the_whole(
        decomposed,
        matrices(2, 3),
        primitive=name,
        expect=[((dim,) * operands, (dim,) * results, False) for dim in (0, 1)],
    )


def test_singular_values_alone_are_cut_along_the_stack() -> None:
    assert_pieces_give_the_whole(
        lambda x: lax.linalg.svd(x, compute_uv=False), matrices(5), expect=[((0,), (0,), False)]
    )


def test_one_matrix_is_decomposed_whole() -> None:
    assert_stays_whole(lax.linalg.cholesky, matrices(), primitive="cholesky")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize(("left", "free"), [(True, 2), (False, 1)])
def test_a_triangular_solve_is_cut_along_its_right_hand_sides(
    *, left: bool, free: int, lower: bool, transposed: bool
) -> None:
    assert_pieces_give_the_whole(
        lambda a, b: lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=transposed
        ),
        matrices(3),
        numbers(3, 4, 6) if left else numbers(3, 6, 4),
        expect=[((0, 0), (0,), False), ((None, free), (free,), False)],
        rounds=True,  # BLAS chooses its kernel, and so the order of sums, by width and processor.
    )


def test_a_gradient_through_cholesky_is_cut_along_its_stack() -> None:
    def loss(x: jax.Array) -> jax.Array:
        return lax.linalg.cholesky(x, symmetrize_input=False).sum()

    assert_pieces_give_the_whole(
        jax.grad(loss),
        matrices(6),
        primitive="triangular_solve",
        expect=[((0, 0), (0,), False), ((None, 1), (1,), False)],
    )


def test_a_tridiagonal_solve_is_cut_along_its_stack() -> None:
    diagonals = [numbers(3, 5) * 0.1, 4 + numbers(3, 5), numbers(3, 5) * 0.1]
    assert_pieces_give_the_whole(
        lax.linalg.tridiagonal_solve,
        *diagonals,
        numbers(3, 5, 2),
        expect=[((0, 0, 0, 0), (0,), False)],
    )


def test_pivots_become_permutations_row_by_row() -> None:
    pivots = np.array([[1, 1, 3], [2, 2, 2], [0, 1, 3]], np.int32)
    assert_pieces_give_the_whole(
        lambda x: lax.linalg.lu_pivots_to_permutation(x, 5), pivots, expect=[((0,), (0,), False)]
    )


@pytest.mark.parametrize("transform", [jnp.fft.fft, jnp.fft.rfft, jnp.fft.irfft])
def test_a_fourier_transform_is_cut_along_its_stack(transform: Callable[..., Any]) -> None:
    assert_pieces_give_the_whole(
        transform,
        numbers(4, 6, 8).astype(jnp.complex64 if transform is jnp.fft.irfft else jnp.float32),
        primitive="fft",
        expect=[((0,), (0,), False), ((1,), (1,), False)],
    )


def test_a_fourier_transform_of_two_dimensions_is_cut_along_the_others() -> None:
    assert_pieces_give_the_whole(
        jnp.fft.rfft2, numbers(6, 4, 8), primitive="fft", expect=[((0,), (0,), False)]
    )
