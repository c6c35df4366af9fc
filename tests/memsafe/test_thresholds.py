"""eXLA's options: no tensor above a size, and the size of a slice."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array

import memsafe
from memsafe import BudgetError
from tests.memsafe.budgets import (
    COUNT,
    assert_same,
    in_libraries,
    pairs,
    peak_bytes,
    points,
    product,
    weights,
)

pytestmark = pytest.mark.usefixtures("doubles")

MATRIX = 8 * COUNT * COUNT
"""Bytes of the matrix of pairs: 524,288."""

WITHOUT_BUDGET: dict[str, Any] = {"tensor_size_threshold": MATRIX // 4}


def compiled(function: Any, *arguments: Any) -> str:
    return str(jax.jit(function).lower(*arguments).compile().as_text())


def turns(text: str) -> list[int]:
    """Number of steps of each loop of a compiled program."""
    return [int(n) for n in re.findall(r'known_trip_count":\{"n":"(\d+)"', text)]


def largest_bytes(text: str) -> int:
    """Bytes of the largest array of doubles outside of fusions; arrays in fusions do not exist."""
    entered = re.split(r"\n(?=%\S*fused|ENTRY|%)", text)
    outside = "\n".join(each for each in entered if not each.startswith("%fused"))
    shapes = re.findall(r"= f64\[([0-9,]+)\]", outside)
    return max(8 * int(jnp.prod(jnp.array([int(n) for n in s.split(",")]))) for s in shapes)


@pytest.mark.parametrize("share", [2, 4, 32])
def test_no_tensor_above_the_threshold_exists_and_values_are_the_same(share: int) -> None:
    threshold = MATRIX // share
    within = memsafe.memsafe(product, tensor_size_threshold=threshold)
    arguments = points(), weights()
    assert largest_bytes(compiled(product, *arguments)) == MATRIX
    assert largest_bytes(compiled(within, *arguments)) <= threshold
    own = sum(each.nbytes for each in arguments) + weights().nbytes
    assert peak_bytes(within, *arguments) - own <= 2 * threshold < peak_bytes(product, *arguments)
    assert_same(within(*arguments), product(*arguments))


def test_a_threshold_that_nothing_passes_changes_nothing() -> None:
    within = memsafe.memsafe(product, tensor_size_threshold=10 * MATRIX)
    assert turns(compiled(within, points(), weights())) == []
    # A rewrite computes the sum over coordinates without the library that may hold its terms.
    in_a_library = in_libraries(product, points(), weights())
    plain = peak_bytes(product, points(), weights()) - in_a_library
    assert peak_bytes(within, points(), weights()) == plain


@pytest.mark.parametrize("rows", [16, 32, 64])
def test_the_split_size_says_how_many_turns_a_loop_makes(rows: int) -> None:
    def f(x: Array) -> Array:
        return jnp.cos(x[:, None] * x[None, :]) @ x

    size = 1.25 * rows * MATRIX // COUNT  # A quarter more, for values beside a slice.
    within = memsafe.memsafe(f, tensor_size_threshold=MATRIX // 2, tensor_split_size=size)
    (count,) = turns(compiled(within, weights()))
    assert count == COUNT // rows
    assert_same(within(weights()), f(weights()))


def test_a_slice_larger_than_the_threshold_is_not_taken() -> None:
    within = memsafe.memsafe(product, **WITHOUT_BUDGET, tensor_split_size="1GB")
    assert largest_bytes(compiled(within, points(), weights())) <= MATRIX // 4


def test_within_a_budget_too_the_threshold_holds() -> None:
    arguments = points(), weights()
    room = 2 * peak_bytes(product, *arguments)
    within = memsafe.memsafe(product, room, **WITHOUT_BUDGET)
    assert largest_bytes(compiled(within, *arguments)) <= MATRIX // 4
    assert_same(within(*arguments), product(*arguments))


def test_a_threshold_whose_peak_is_over_the_budget_is_refused() -> None:
    arguments = points(), weights()
    needed = peak_bytes(memsafe.memsafe(product, **WITHOUT_BUDGET), *arguments)
    memsafe.memsafe(product, needed, **WITHOUT_BUDGET)(*arguments)
    with pytest.raises(BudgetError, match="in the way") as caught:
        memsafe.memsafe(product, needed - 1, **WITHOUT_BUDGET)(*arguments)
    assert (caught.value.budget, caught.value.smallest) == (needed - 1, needed)


def test_gradients_keep_the_threshold() -> None:
    def loss(x: Array) -> Array:
        return jnp.sum(jnp.tanh(pairs(x) @ x[:, 0]))

    within = jax.grad(memsafe.memsafe(loss, **WITHOUT_BUDGET))
    assert_same(within(points()), jax.grad(loss)(points()))
    assert largest_bytes(compiled(jax.grad(loss), points())) >= MATRIX
    assert largest_bytes(compiled(within, points())) <= MATRIX // 4


@pytest.mark.parametrize(
    ("words", "nbytes"),
    [("0.1MB", 100_000), ("100kB", 100_000), ("128 KiB", 2**17), ("1e+5", 100_000)],
)
def test_sizes_in_words_are_understood(words: str, nbytes: int) -> None:
    for option in ("tensor_size_threshold", "tensor_split_size"):
        others = {} if option in WITHOUT_BUDGET else WITHOUT_BUDGET
        told = memsafe.memsafe(product, **{option: words}, **others)
        given = memsafe.memsafe(product, **{option: nbytes}, **others)
        assert told._calls.options == given._calls.options
        assert told._calls.options != memsafe.memsafe(product, **others)._calls.options


@pytest.mark.parametrize("option", ["tensor_size_threshold", "tensor_split_size"])
@pytest.mark.parametrize("size", ["12 potatoes", "", 0, -1, True, float("nan"), float("inf"), []])
def test_a_size_that_is_none_is_refused_by_its_own_name(option: str, size: Any) -> None:
    wanted = rf"^got {option}=.*; wanted a positive number of bytes.*; do this: .*{option}="
    with pytest.raises(ValueError, match=wanted):
        memsafe.memsafe(product, **{option: size})


def test_a_split_size_alone_asks_for_no_loop() -> None:
    within = memsafe.memsafe(product, tensor_split_size="1MB")
    assert turns(compiled(within, points(), weights())) == []
