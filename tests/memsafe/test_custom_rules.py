"""Functions with rules of their own: what a derivative of a derivative follows, and where."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from tests.memsafe.budgets import assert_same, energy, points, product, safe, weights

pytestmark = pytest.mark.usefixtures("doubles")


@jax.custom_vjp
def in_reverse(x: Array) -> Array:
    return jnp.sin(x)


in_reverse.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x),))


@jax.custom_jvp
def straight_through(x: Array) -> Array:
    """A function whose rule is no derivative of it; its values come from elsewhere there."""
    return jnp.round(4 * x) / 4


straight_through.defjvp(lambda x, t: (x[0] ** 2, 3 * t[0]))

TWICE: dict[str, Callable[[Any], Any]] = {
    "hessian": jax.hessian,
    "jvp of grad": lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (jnp.cos(x),)),
    "grad of grad": lambda f: jax.grad(lambda x: jnp.sum(jax.grad(f)(x) ** 2)),
    "hessian of checkpoint": lambda f: jax.hessian(jax.checkpoint(f)),
}


@pytest.mark.parametrize("rule", [in_reverse, straight_through])
@pytest.mark.parametrize("twice", TWICE.values(), ids=TWICE)
def test_what_differentiates_again_follows_the_values_of_the_rule(
    rule: Callable[[Array], Array], twice: Callable[[Any], Any]
) -> None:
    def f(x: Array) -> Array:
        inside = lax.scan(lambda total, row: (total + rule(row) ** 2, None), x[0], x)[0]
        return jnp.sum(jnp.tanh(rule(x) * 2)) + jnp.sum(inside**2)

    x = points(4)
    assert_same(twice(safe(f))(x), twice(f)(x))


def test_a_rule_that_only_reverse_mode_has_keeps_the_budget() -> None:
    def f(s: Array, x: Array, v: Array) -> Array:
        return energy(in_reverse(x * s), v)

    arguments = jnp.float64(0.5), points(), weights()
    assert_same(jax.hessian(safe(f))(*arguments), jax.hessian(f)(*arguments))


def test_a_bounded_loop_inside_jit_has_a_gradient() -> None:
    @jax.jit
    def steps(x: Array, count: Any) -> Array:
        most = jnp.minimum(count, 9)
        return lax.while_loop(lambda s: s[0] < most, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[1]

    def by_hand(x: Array) -> Array:
        return jnp.sum(jnp.sin(jnp.sin(jnp.sin(x))))

    found = jax.grad(safe(lambda x, count: jnp.sum(steps(x, count))))(points(), 3)
    assert_same(found, jax.grad(by_hand)(points()))


def test_doubles_that_a_function_enables_itself_are_doubles_in_its_loops() -> None:
    def f(x: Array, v: Array) -> Array:
        with jax.enable_x64(new_val=True):
            return product(x.astype(jnp.float64), v.astype(jnp.float64)) + 1e9

    with jax.enable_x64(new_val=False):
        x, v = (each.astype(jnp.float32) for each in (points(), weights()))
        found, wanted = safe(f)(x, v), jax.jit(f)(x, v)
    assert found.dtype == wanted.dtype == np.float64
    assert_same(found, wanted)
