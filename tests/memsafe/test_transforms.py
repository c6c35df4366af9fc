"""memsafe composes with JAX's transforms, and keeps its budget inside them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array
from jax.custom_batching import custom_vmap

import memsafe
from tests.memsafe.budgets import (
    ROOM,
    assert_same,
    energy,
    pairs,
    peak_bytes,
    points,
    safe,
    weights,
)

pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("doubles")]


OVER: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "nothing": lambda f: f,
    "jit": jax.jit,
    "grad": lambda f: jax.grad(f, (0, 1)),
    "value_and_grad": jax.value_and_grad,
    "jit of grad": lambda f: jax.jit(jax.grad(f)),
    "vjp": lambda f: lambda x, v: jax.vjp(f, x, v)[1](jnp.float64(2.0)),
}


@pytest.mark.parametrize("transform", OVER.values(), ids=OVER)
def test_transforms_of_memsafe_give_those_of_the_function(transform: Any) -> None:
    assert_same(
        transform(safe(energy))(points(), weights()), transform(energy)(points(), weights())
    )


@pytest.mark.parametrize("transform", OVER.values(), ids=OVER)
def test_memsafe_of_transforms_gives_those_of_the_function(transform: Any) -> None:
    assert_same(
        safe(transform(energy))(points(), weights()), transform(energy)(points(), weights())
    )


@pytest.mark.parametrize(
    "of",
    [
        safe(energy),
        safe(jax.jit(energy)),
        jax.grad(safe(energy), (0, 1)),
        jax.value_and_grad(safe(energy)),
        safe(jax.grad(energy)),
    ],
    ids=["forward", "of jit", "backward", "both", "of grad"],
)
def test_a_caller_s_own_jit_keeps_the_budget(of: Callable[..., Any]) -> None:
    assert peak_bytes(energy, points(), weights()) > 2 * ROOM
    assert peak_bytes(of, points(), weights()) <= ROOM


def test_a_second_derivative_through_memsafe_is_the_function_s() -> None:
    x, v = points(64), weights(64)

    def curvature(f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(lambda x: jnp.vdot(jax.grad(f)(x, v), jnp.cos(x)))

    assert_same(curvature(memsafe.memsafe(energy, 40_000))(x), curvature(energy)(x))
    assert peak_bytes(curvature(energy), x) > 60_000
    assert_same(memsafe.memsafe(curvature(energy), 60_000)(x), curvature(energy)(x))


BATCHED: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "vmap": lambda f: jax.vmap(f, in_axes=(0, None)),
    "vmap of grad": lambda f: jax.vmap(jax.grad(f), in_axes=(0, None)),
    "grad of vmap": lambda f: jax.grad(
        lambda x, v: jax.vmap(f, in_axes=(0, None))(x, v).sum(), (0, 1)
    ),
}


@pytest.mark.parametrize("transform", BATCHED.values(), ids=BATCHED)
def test_a_batch_is_within_the_budget_too(transform: Any) -> None:
    x, v = points().reshape(4, 64, 3), weights(64)
    budget = 100_000
    assert peak_bytes(transform(energy), x, v) > budget
    within = transform(memsafe.memsafe(energy, budget))
    assert_same(within(x, v), transform(energy)(x, v))
    assert peak_bytes(within, x, v) <= budget
    assert_same(memsafe.memsafe(transform(energy), budget)(x, v), transform(energy)(x, v))


def test_the_control_a_budget_that_is_not_kept_would_be_seen() -> None:
    with pytest.raises(AssertionError):
        assert peak_bytes(energy, points(), weights()) <= ROOM
    with pytest.raises(AssertionError):
        assert_same(energy(points(), weights()), energy(points(), weights()) * (1 + 1e-8))


def test_a_function_with_its_own_batching_rule_is_split_and_keeps_the_rule() -> None:
    @custom_vmap
    def sines(x: Array) -> Array:
        return jnp.sin(x)

    @sines.def_vmap
    def _twice(_: int, is_batched: list[bool], x: Array) -> tuple[Array, bool]:
        return 2 * jnp.sin(x), is_batched[0]

    def rows(x: Array) -> Array:
        return sines(pairs(x)).sum(1)

    x = points()
    batch = jnp.stack([x, 2 * x])
    assert_same(safe(rows)(x), rows(x))
    assert_same(jax.vmap(safe(rows))(batch), jax.vmap(rows)(batch))
    assert not jnp.allclose(jax.vmap(rows)(batch)[0], rows(x))
