"""Products of several matrices run in the cheapest order, where that is worth it."""

import functools
import itertools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsafe.rewrites import matrix_chains
from tests.memsafe.rewrites.reading import flops, largest, outputs, program

RANDOM = np.random.default_rng(0)


def normal(*shape: Any) -> Any:
    return RANDOM.standard_normal(shape)


def rewritten(function: Any, *arguments: Any) -> Any:
    with jax.enable_x64(new_val=True):
        before = program(function, *arguments)
        after = matrix_chains(before)
        for ours, theirs in zip(
            outputs(after.program, *arguments), outputs(before, *arguments), strict=True
        ):
            scale = np.abs(theirs).max()
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12 * scale)
        assert before.out_avals == after.program.out_avals
        return before, after


def least_flops(sizes: Any) -> Any:
    """Operations of the cheapest order, found by trying all orders."""

    @functools.cache
    def least(first: Any, last: Any) -> Any:
        return min(
            (
                least(first, at) + least(at, last) + 2 * sizes[first] * sizes[at] * sizes[last]
                for at in range(first + 1, last)
            ),
            default=0,
        )

    return least(0, len(sizes) - 1)


@st.composite
def chains(draw: Any) -> Any:
    """Sizes, which factors are stored transposed, and an order of products, each maybe transposed.

    The order is a list of places: at each step the two neighbours at that place are multiplied.
    """
    count = draw(st.integers(2, 6))
    sizes = draw(st.lists(st.integers(1, 9), min_size=count + 1, max_size=count + 1))
    stored = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    order = [draw(st.integers(0, left - 2)) for left in range(count, 1, -1)]
    flips = draw(st.lists(st.booleans(), min_size=count - 1, max_size=count - 1))
    return sizes, stored, order, flips


@settings(max_examples=15)
@given(chains())
def test_any_chain_through_transposes_costs_the_least_or_stays_as_written(chain: Any) -> None:
    sizes, stored, order, flips = chain

    def product(*arrays: Any) -> Any:
        parts = [x.T if flip else x for x, flip in zip(arrays, stored, strict=True)]
        for at, flip in zip(order, flips, strict=True):
            left, right = parts[at : at + 2]
            parts[at : at + 2] = [(right.T @ left.T).T if flip else left @ right]
        return parts[0]

    straight = [normal(*shape) for shape in itertools.pairwise(sizes)]
    arrays = [x.T if flip else x for x, flip in zip(straight, stored, strict=True)]
    before, after = rewritten(product, *arrays)
    wanted = functools.reduce(np.matmul, straight)
    (got,) = with_x64(outputs, after.program, *arrays)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12 * np.abs(wanted).max())
    least = least_flops(tuple(sizes))
    if after.notes:
        assert flops(after.program) == least < 0.9 * flops(before)
    else:
        assert after.program is before
        assert least >= 0.9 * flops(before)


def with_x64(function: Any, *arguments: Any) -> Any:
    with jax.enable_x64(new_val=True):
        return function(*arguments)


def test_a_kernel_times_a_vector_never_makes_the_kernel() -> None:
    before, after = rewritten(
        lambda a, b, v: (a @ b.T) @ v, normal(50, 3), normal(60, 3), normal(60)
    )
    assert largest(before) == (50, 60)
    assert largest(after.program) == (3, 60)
    assert flops(after.program) == 2 * (3 * 60 + 50 * 3)


def test_the_note_names_the_line_the_order_and_the_flops() -> None:
    _, after = rewritten(lambda a, b, v: (a @ b) @ v, normal(9, 8), normal(8, 9), normal(9))
    (note,) = after.notes
    place, text = note.split(": ", 1)
    assert "test_matrix_chains.py:" in place
    assert text == "(a @ b) @ c as a @ (b @ c), 2.9e+02 flops instead of 1.5e+03"


def test_batched_products_keep_their_batch() -> None:
    arrays = normal(2, 5, 20, 3), normal(2, 5, 3, 20), normal(2, 5, 20, 2)
    before, after = rewritten(lambda a, b, c: (a @ b) @ c, *arrays)
    assert largest(before) == (2, 5, 20, 20)
    assert flops(after.program) == 10 * 2 * 2 * (3 * 20 * 2)


def test_several_row_dimensions_in_any_order_come_back_in_theirs() -> None:
    def product(a: Any, b: Any, c: Any) -> Any:
        return jnp.einsum(
            "xyzk,kw->xyzw", jnp.einsum("iyxz,ik->zxyk", a, b).transpose(1, 2, 0, 3), c
        )

    arrays = normal(3, 4, 5, 6), normal(3, 40), normal(40, 2)
    before, after = rewritten(product, *arrays)
    assert after.notes
    assert flops(after.program) < flops(before)


def test_a_bilinear_form_is_a_chain() -> None:
    before, after = rewritten(
        lambda x, a, b, y: x @ ((a @ b) @ y), normal(30), normal(30, 20), normal(20, 30), normal(30)
    )
    assert flops(after.program) < flops(before) / 5


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda a, b, v: ((p := a @ b) @ v, p), id="a result of the program"),
        pytest.param(lambda a, b, v: (p := a @ b) @ v + p[:, 0], id="read twice"),
        pytest.param(lambda a, b, v: jnp.sin(a @ b) @ v, id="not a product of products"),
        pytest.param(lambda a, b, v: a @ (b @ v), id="cheapest as written"),
        pytest.param(
            lambda a, b, v: jnp.matmul(a @ b, v, precision="highest"), id="of another precision"
        ),
        pytest.param(
            lambda a, b, v: jax.lax.optimization_barrier(a @ b) @ v, id="behind a barrier"
        ),
    ],
)
def test_a_chain_stays_as_written_where_the_inner_product_is(function: Any) -> None:
    before = with_x64(program, function, normal(30, 3), normal(3, 30), normal(30))
    after = with_x64(matrix_chains, before)
    assert after.program is before
    assert after.notes == ()


def test_orders_of_equal_cost_stay_as_written() -> None:
    square = [normal(7, 7) for _ in range(4)]
    before, after = rewritten(lambda a, b, c, d: (a @ b) @ (c @ d), *square)
    assert after.program is before


def test_a_gain_of_a_few_percent_is_not_worth_another_rounding() -> None:
    before, after = rewritten(
        lambda a, b, c: (a @ b) @ c, normal(20, 19), normal(19, 20), normal(20, 19)
    )
    assert flops(before) > least_flops((20, 19, 20, 19)) > 0.9 * flops(before)
    assert after.program is before


def test_types_and_precisions_are_kept() -> None:
    arrays = [normal(40, 3).astype(jnp.bfloat16), normal(3, 40).astype(jnp.bfloat16)]
    vector = normal(40).astype(jnp.bfloat16)
    multiply = functools.partial(jnp.matmul, precision="highest")
    before = program(lambda a, b, v: multiply(multiply(a, b), v), *arrays, vector)
    after = matrix_chains(before).program
    written, *_ = before.jaxpr.eqns
    assert flops(after) < flops(before)
    for equation in after.jaxpr.eqns:
        assert equation.params["precision"] == written.params["precision"]
        assert equation.params["preferred_element_type"] == jnp.bfloat16


def test_an_inner_product_of_a_wider_type_stays() -> None:
    def product(a: Any, b: Any, v: Any) -> Any:
        return jnp.matmul(a, b, preferred_element_type=np.float32) @ v

    arrays = normal(40, 3).astype(np.float16), normal(3, 40).astype(np.float16)
    before = program(product, *arrays, normal(40).astype(np.float32))
    assert matrix_chains(before).program is before


@pytest.mark.parametrize(("kind", "is_changed"), [("float16", False), ("bfloat16", True)])
def test_sums_too_large_for_half_precision_are_not_made(kind: str, *, is_changed: bool) -> None:
    """Linear attention: the product of keys and values is a sum over all positions."""
    scales = (1 / 1024, 16, 16)
    q, k, v = (jnp.asarray(scale * RANDOM.uniform(1, 2, (1024, 8)), kind) for scale in scales)
    before = program(lambda q, k, v: (q @ k.T) @ v, q, k, v)
    after = matrix_chains(before).program
    assert (after is not before) == is_changed
    (got,), (wanted,) = outputs(after, q, k, v), outputs(before, q, k, v)
    np.testing.assert_allclose(np.float64(got), np.float64(wanted), rtol=0.05)


def test_long_chains_take_time_linear_in_their_length() -> None:
    sizes = [int(size) for size in RANDOM.integers(1, 4, 1201)]
    arrays = [np.ones(shape) for shape in itertools.pairwise(sizes)]
    before = program(lambda *arrays: functools.reduce(jnp.matmul, arrays), *arrays)
    start = time.perf_counter()
    after = matrix_chains(before)
    assert time.perf_counter() - start < 25
    assert flops(after.program) <= flops(before)
