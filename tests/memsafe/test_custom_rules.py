"""Custom derivative rules, also in second derivatives; bounded loops and doubles in a function."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from tests.memsafe.budgets import (
    ROOM,
    assert_same,
    energy,
    peak_bytes,
    points,
    product,
    safe,
    weights,
)

pytestmark = pytest.mark.usefixtures("doubles")


@jax.custom_vjp
def in_reverse(x: Array) -> Array:
    return jnp.sin(x)


in_reverse.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x),))


@jax.custom_jvp
def straight_through(x: Array) -> Array:
    """A function whose rule has other values, and a derivative that is not that of the function."""
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
        return jnp.tanh(rule(x) * 2) + inside

    def squares(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """The gradient reads the values of `f`, so a second gradient differentiates them."""
        return lambda x: jnp.sum(f(x) ** 2)

    x = points(4)
    assert_same(twice(squares(safe(f)))(x), twice(squares(f))(x))


def test_second_derivatives_of_a_split_function_follow_the_rule() -> None:
    def f(s: Array, x: Array, v: Array) -> Array:
        return energy(in_reverse(x * s), v)

    arguments = jnp.float64(0.5), points(), weights()
    assert peak_bytes(safe(f), *arguments) <= ROOM < peak_bytes(f, *arguments)
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
