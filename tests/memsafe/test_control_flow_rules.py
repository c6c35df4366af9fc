"""The rules of loops and branches: pieces run all steps, or the branch that is taken."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from .pieces import assert_pieces_give_the_whole, assert_stays_whole

pytestmark = pytest.mark.usefixtures("doubles")

BATCH, WIDTH, STEPS = 6, 4, 3


def normal(*shape: int) -> Any:
    return 0.5 * np.random.default_rng(len(shape)).standard_normal(shape)


X, W, STACK = normal(BATCH, WIDTH), normal(WIDTH, WIDTH), normal(STEPS, WIDTH, WIDTH)


def test_a_loop_over_layers_is_split_along_the_batch() -> None:
    def layers(x: Array, weights: Array) -> Array:
        return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    expect = [((0, None), (0,), False)]
    assert_pieces_give_the_whole(layers, X, STACK, expect=expect, rounds=True)


def test_what_a_loop_stacks_is_sliced_behind_the_steps() -> None:
    def layers(x: Array, weights: Array) -> tuple[Array, Array]:
        return lax.scan(lambda x, w: (jnp.tanh(x @ w), jnp.sin(x).T), x, weights)

    expect = [((0, None), (0, 2), False)]
    assert_pieces_give_the_whole(layers, X, STACK, expect=expect, rounds=True)


def test_what_a_loop_adds_over_the_batch_is_merged() -> None:
    def summed(x: Array, weights: Array, start: Array) -> tuple[Array, Array]:
        def step(carry: tuple[Array, Array], w: Array) -> tuple[tuple[Array, Array], Array]:
            x, total = carry
            return (jnp.tanh(x @ w), total + 2 * jnp.sum(x)), (x.T @ x).T

        (_, total), products = lax.scan(step, (x, start), weights)
        return total, products

    def f(x: Array, weights: Array) -> tuple[Array, Array]:
        return summed(x, weights, x.dtype.type(7))

    assert_pieces_give_the_whole(
        f, X, STACK, expect=[((0, None, None), (None, None, None), True)], primitive="scan"
    )


def test_a_loop_in_reverse_is_split_along_the_batch() -> None:
    def backwards(x: Array, rows: Array) -> Array:
        return lax.scan(lambda h, r: (jnp.tanh(h + r), h * r), x, rows, reverse=True)[1]

    rows = normal(STEPS, BATCH, WIDTH)
    expect = [((0, 1), (0, 1), False), ((1, 2), (1, 2), False)]
    assert_pieces_give_the_whole(backwards, X, rows, expect=expect, primitive="scan")


def gradient_of(f: Callable[..., Array]) -> Callable[..., Any]:
    return jax.grad(f, (0, 1))


def layered(weights: Array, x: Array) -> Array:
    return jnp.sum(lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0] ** 2)


def recurrent(w: Array, rows: Array) -> Array:
    last, _ = lax.scan(lambda h, r: (jnp.tanh(h @ w + r), None), jnp.zeros_like(rows[0]), rows)
    return jnp.sum(last**2)


def picked(weights: Array, x: Array) -> Array:
    """Layers of two matrices each: their gradients are padded with zeros, and added."""

    def step(x: Array, w: Array) -> tuple[Array, None]:
        return jnp.tanh(x @ w[0]) @ w[1], None

    return jnp.sum(lax.scan(step, x, jnp.stack((weights, weights), 1))[0] ** 2)


@pytest.mark.parametrize("f", [layered, recurrent, picked])
def test_the_gradient_of_a_loop_is_split_along_the_batch(f: Callable[..., Array]) -> None:
    arguments = (W, normal(STEPS, BATCH, WIDTH)) if f is recurrent else (STACK, X)
    seen = last_factors(gradient_of(f), arguments, "scan")
    assert any(merged for *_, merged in seen)
    assert_pieces_give_the_whole(gradient_of(f), *arguments, expect=seen, primitive="scan")


def last_factors(f: Callable[..., Any], arguments: Any, primitive: str) -> Any:
    from memsafe.rules import factors_of

    from .pieces import last_equation, written

    equation = last_equation(f, *arguments, primitive=primitive).equation
    return [written(factor) for factor in factors_of(equation)]


def test_both_branches_are_split_along_the_same_axis() -> None:
    def chosen(flag: Array, x: Array, w: Array) -> Array:
        return lax.cond(flag, lambda x: jnp.tanh(x @ w), lambda x: x * 2, x)

    given = (jnp.array(True), X, W)  # noqa: FBT003 - an array's value
    expect = [((None, None, 0), (0,), False)]
    assert_pieces_give_the_whole(chosen, *given, expect=expect, primitive="cond", rounds=True)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_branch_that_adds_nothing_adds_zeros(number: int) -> None:
    def chosen(number: Array, x: Array, w: Array) -> tuple[Array, Array]:
        return lax.switch(
            number,
            [
                lambda: (x @ w, x.T @ x),
                lambda: (jnp.zeros_like(x), jnp.ones_like(w)),
                lambda: (x, jnp.zeros_like(w)),
            ],
        )

    given = (jnp.int32(number), X, W)
    seen = last_factors(chosen, given, "cond")
    assert [(operands, merged) for operands, _, merged in seen if merged]
    assert_pieces_give_the_whole(chosen, *given, expect=seen, primitive="cond")


def test_a_loop_that_mixes_the_batch_stays_whole() -> None:
    def mixed(x: Array, weights: Array) -> Array:
        return lax.scan(lambda x, w: (jnp.tanh(x.T @ x @ w), None), x, weights)[0]

    assert_stays_whole(mixed, normal(WIDTH, WIDTH), STACK, primitive="scan")


@pytest.mark.parametrize(
    "made",
    [
        lambda x: jnp.tanh(jnp.sum(x)),
        lambda x: jnp.sum(x) ** 2,
        lambda x: jnp.sum(x) * jnp.sum(x),
        lambda x: jnp.maximum(jnp.sum(x), 0),
        lambda x: 1 / jnp.sum(x),
        lambda x: jnp.sum(x).astype(jnp.int32),
        jnp.max,
    ],
)
def test_what_is_not_linear_in_a_sum_is_not_split(made: Callable[[Array], Array]) -> None:
    def f(x: Array) -> Array:
        return lax.scan(lambda c, _: (c, made(x[:, 0])), 0.0, None, length=STEPS)[1]

    assert_stays_whole(f, X, primitive="scan")


def test_an_integer_part_of_a_sum_is_not_split() -> None:
    def f(x: Array) -> Array:
        def step(count: Array, _: None) -> tuple[Array, None]:
            return count + jnp.sum(x[:, 0], dtype=jnp.uint32) // jnp.uint32(3), None

        return lax.scan(step, jnp.uint32(0), None, length=3)[0]

    assert_stays_whole(f, jnp.arange(24, dtype=jnp.uint32).reshape(8, 3), primitive="scan")


@pytest.mark.parametrize(
    ("made_of", "dtype"),
    [
        pytest.param(
            lambda parts: lax.dot_general(
                parts[0], jnp.int8(3), (((), ()), ((), ())), preferred_element_type=jnp.int32
            ),
            jnp.int8,
            id="integers that wrap later",
        ),
        pytest.param(lambda parts: parts[0].astype(jnp.float16), jnp.float32, id="half precision"),
    ],
)
def test_a_sum_in_a_type_that_its_parts_do_not_fit_is_not_split(
    made_of: Callable[[Array], Array], dtype: Any
) -> None:
    def f(x: Array) -> Array:
        def step(count: Array, _: None) -> tuple[Array, Array]:
            return count, made_of(lax.reduce_sum(x, (0,)))

        return lax.scan(step, 0.0, None, length=3)[1]

    assert_stays_whole(f, jnp.ones((8, 3), dtype), primitive="scan")


@pytest.mark.parametrize(("dtype", "count"), [(jnp.float16, 0), (jnp.bfloat16, 1)])
def test_a_product_over_the_batch_is_not_split_where_parts_may_be_too_large(
    dtype: Any, count: int
) -> None:
    """In half precision, a part may be infinite although the sum is finite."""

    def f(x: Array, start: Array, rows: Array) -> Array:
        return lax.scan(lambda total, w: (total + (x * w).T @ x, None), start, rows)[0]

    arguments = (X, np.zeros((WIDTH, WIDTH)), np.ones(STEPS))
    factors = last_factors(f, [jnp.asarray(each, dtype) for each in arguments], "scan")
    assert len(factors) == count


def test_a_sum_in_a_type_as_large_is_split() -> None:
    def f(x: Array) -> Array:
        def step(count: Array, _: None) -> tuple[Array, None]:
            return count + lax.reduce_sum(x, (0,)).astype(jnp.bfloat16), None

        return lax.scan(step, jnp.zeros((), jnp.bfloat16), None, length=3)[0]

    x = jnp.ones(8, jnp.float32)
    expect = [((0, None), (None,), True)]
    assert_pieces_give_the_whole(f, x, expect=expect, primitive="scan")


def test_a_loop_that_draws_anew_is_not_split() -> None:
    def f(x: Array) -> Array:
        return lax.scan(lambda c, row: (c, row * lax.rng_uniform(0.0, 1.0, ())), 0.0, x)[1]

    assert_stays_whole(f, X, primitive="scan")


def test_rows_that_a_loop_adds_over_the_batch_are_merged() -> None:
    def f(x: Array, weights: Array) -> Array:
        def step(state: tuple[Array, Array], at: Array) -> tuple[tuple[Array, Array], None]:
            x, stack = state
            before = lax.dynamic_index_in_dim(stack, at, keepdims=False)
            row = before + x.T @ x
            x = jnp.tanh(x @ weights[0])
            return (x, lax.dynamic_update_index_in_dim(stack, row, at + 1, 0)), None

        start = (x, jnp.concatenate([weights, weights[:1]]))
        return lax.scan(step, start, jnp.arange(STEPS))[0][1]

    expect = [((None, 0, None, None), (None, None), True)]
    assert_pieces_give_the_whole(f, X, STACK, expect=expect, primitive="scan")


def test_a_row_that_the_batch_chooses_is_not_split() -> None:
    def f(x: Array, weights: Array) -> Array:
        def step(stack: Array, at: Array) -> tuple[Array, None]:
            place = (at + jnp.sum(x).astype(jnp.int32)) % STEPS
            return lax.dynamic_update_index_in_dim(stack, x.T @ x, place, 0), None

        return lax.scan(step, weights, jnp.arange(STEPS))[0]

    assert_stays_whole(f, X, STACK, primitive="scan")
