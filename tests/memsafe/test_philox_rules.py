"""Draws of `rbg` keys by pieces: each is a smaller draw from a later counter, on CPUs and GPUs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array, lax
from jax.extend.core import JaxprEqn, jaxpr_as_fun

from assay.targets import resolve
from memsafe import BudgetError, memsafe
from memsafe.factors import Piece
from memsafe.rewrites import counted_draws
from memsafe.rules import factors_of, rule_of
from memsafe.rules.philox import PHILOX_BITS
from tests.hlo.compilers import installed
from tests.memsafe.budgets import assert_same, peak_bytes
from tests.memsafe.pieces import assert_pieces_give_the_whole
from tests.memsafe.rewrites.reading import names, program, same_bits

pytestmark = pytest.mark.exhaustive

STATE = np.array([1, 2, 2**32 - 3, 7], np.uint32)
"""A state whose counter soon carries into its upper word."""

KINDS = ["uint8", "uint16", "uint32", "uint64"]


def equation(shape: tuple[int, ...], dtype: str) -> JaxprEqn:
    bind = lambda state: PHILOX_BITS.bind(state, shape=shape, dtype=np.dtype(dtype))  # noqa: E731
    (found,) = jax.make_jaxpr(bind)(STATE).jaxpr.eqns
    return found


@pytest.fixture(autouse=True)
def _doubles() -> Any:
    with jax.enable_x64(new_val=True):
        yield


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(6, 4), (1, 6, 3), (7, 5, 1), (9,)])
def test_a_draw_is_cut_along_its_first_dimension(shape: tuple[int, ...], dtype: str) -> None:
    dim = next(dim for dim, size in enumerate(shape) if size > 1)
    assert_pieces_give_the_whole(
        lambda state: PHILOX_BITS.bind(state, shape=shape, dtype=np.dtype(dtype)),
        STATE,
        expect=[((None,), (dim,), False)],
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_piece_of_a_draw_is_the_bits_of_the_whole(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    dtype = data.draw(st.sampled_from(KINDS))
    draw = equation(shape, dtype)
    for factor in factors_of(draw):
        start = data.draw(st.integers(0, factor.size - 1))
        length = data.draw(st.integers(1, factor.size - start))
        piece = Piece(start=jnp.int32(start), length=length)
        (own,) = rule_of(draw).apply(draw, factor, [jnp.asarray(STATE)], piece)
        _, whole = lax.rng_bit_generator(STATE, shape, dtype=dtype)
        (axis,) = factor.results
        wanted = lax.slice_in_dim(whole, start, start + length, axis=axis.dim)
        np.testing.assert_array_equal(own, wanted)


def test_a_piece_beyond_32_bits_of_elements_is_counted() -> None:
    """The last of 3 million rows of 3 million elements begins at a counter of 42 bits."""
    row, size = 2_999_999, 3_000_000
    draw = equation((size, size), "uint32")
    (factor,) = factors_of(draw)
    jaxpr = jax.make_jaxpr(
        lambda start: rule_of(draw).apply(
            draw, factor, [jnp.asarray(STATE)], Piece(start=start, length=1)
        )
    )(jnp.int32(row))
    (drawn,) = [one for one in jaxpr.jaxpr.eqns if one.primitive is PHILOX_BITS]
    later = counter(STATE) + row * size // 4
    (bits,) = jaxpr_as_fun(jaxpr)(jnp.int32(row))
    words = np.array([1, 2, later % 2**32, later >> 32], np.uint32)
    assert drawn.params["shape"] == (1, size)
    np.testing.assert_array_equal(bits[0], lax.rng_bit_generator(words, (size,))[1])


def counter(state: np.ndarray) -> int:
    return int(state[2]) + (int(state[3]) << 32)


def drawn(key: Array, shape: tuple[int, ...] = (40, 30)) -> Array:
    return jax.random.normal(key, shape, np.float32)


@pytest.mark.parametrize("implementation", ["rbg", "unsafe_rbg"])
def test_a_draw_of_an_rbg_key_keeps_its_bits(implementation: str) -> None:
    data = jax.random.key_data(jax.random.key(5, impl=implementation))
    closed = program(lambda data: drawn(jax.random.wrap_key_data(data, impl=implementation)), data)
    rewritten = counted_draws(closed)
    assert "rng_bit_generator" in names(closed)
    assert "rng_bit_generator" not in names(rewritten.program)
    assert same_bits(closed, rewritten.program, data)
    assert "[40, 30] drawn by counters" in rewritten.notes[0]


def as_algorithm(state: Array) -> Array:
    algorithm = lax.RandomAlgorithm.RNG_THREE_FRY
    return lax.rng_bit_generator(state, (8, 8), algorithm=algorithm)[1]


@pytest.mark.parametrize(
    "function",
    [as_algorithm, lambda state: lax.rng_bit_generator(state, (8, 8))],
    ids=["of an algorithm", "with its state"],
)
def test_a_draw_that_is_asked_for_otherwise_is_left(function: Any) -> None:
    assert counted_draws(program(function, STATE)).notes == ()


def noisy(key: Array, x: Array) -> Array:
    return jnp.tanh(drawn(key, (*x.shape, *x.shape)) + x[:, None] * x) @ x


@pytest.mark.parametrize("implementation", ["rbg", "unsafe_rbg"])
def test_a_matrix_of_draws_takes_a_quarter(implementation: str) -> None:
    key, x = jax.random.key(3, impl=implementation), jnp.linspace(0, 1, 600, dtype=np.float32)
    budget = peak_bytes(noisy, key, x) // 4
    safe = memsafe(noisy, budget)
    assert_same(safe(key, x), jax.jit(noisy)(key, x), 1e-6)
    assert peak_bytes(safe, key, x) <= budget
    with pytest.raises(BudgetError, match="use threefry2x32 keys"):
        memsafe(noisy, budget, rewrites=("redundant",))(key, x)


def noisy_of(data: Array, x: Array) -> Array:
    return noisy(jax.random.wrap_key_data(data, impl="rbg"), x)


GIVEN = (jax.ShapeDtypeStruct((4,), np.uint32), jax.ShapeDtypeStruct((8_000,), np.float32))


@pytest.mark.parametrize("target", installed("gpu-h100"))
def test_a_gpu_draws_by_the_same_philox(target: str) -> None:
    """The compiled module has no draw of the device, and multiplies by Philox's constants."""
    device = resolve(target).devices()[0]
    module = memsafe(noisy_of, "40MB", device=device).lower(*GIVEN).compile().as_text()
    assert "rng-bit-generator(" not in module
    assert all(str(constant) in module for constant in (3_528_531_795, 3_449_720_151))


@pytest.mark.parametrize("target", installed("tpu-v5e:2x4"))
def test_a_tpu_draws_in_hardware_which_no_slice_repeats(target: str) -> None:
    device = resolve(target).devices()[0]
    with pytest.raises(BudgetError, match="use threefry2x32 keys"):
        memsafe(noisy_of, "40MB", device=device).lower(*GIVEN)
