"""Forward mode, linear functions and their transposes keep the budget of a memsafe function."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array, lax

import memsafe
from tests.memsafe.budgets import (
    ROOM,
    assert_same,
    energy,
    pairs,
    points,
    product,
    safe,
    weights,
)

pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("doubles")]


def stretched(s: Array, x: Array, v: Array) -> Array:
    """The energy with the three coordinates of the points scaled."""
    return energy(x * s, v)


SCALES = (1.0, 0.5, 2.0)

FORWARD: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "jvp": lambda f: lambda s, x, v: jax.jvp(f, (s, x, v), (s + 1, jnp.cos(x), jnp.sin(v))),
    "jvp of some": lambda f: lambda s, x, v: jax.jvp(lambda x: f(s, x, v), (x,), (x,)),
    "jacfwd": jax.jacfwd,
    "hessian": jax.hessian,
    "jvp of grad": lambda f: lambda s, x, v: jax.jvp(jax.grad(lambda s: f(s, x, v)), (s,), (s,)),
    "grad of jvp": lambda f: jax.grad(
        lambda s, x, v: jax.jvp(lambda s: f(s, x, v), (s,), (jnp.sin(s),))[1]
    ),
    "linearize": lambda f: lambda s, x, v: jax.linearize(f, s, x, v)[1](s, x, v),
    "linearize twice": lambda f: (
        lambda s, x, v: jax.linearize(jax.linearize(lambda s: f(s, x, v), s)[1], s)[1](s)
    ),
    "transpose of linearize": lambda f: (
        lambda s, x, v: jax.linear_transpose(jax.linearize(lambda s: f(s, x, v), s)[1], s)(
            jnp.float64(2)
        )
    ),
    "vmap of jvp": lambda f: (
        lambda s, x, v: jax.vmap(lambda t: jax.jvp(lambda s: f(s, x, v), (s,), (t,)))(jnp.eye(3))
    ),
    "jvp of vmap": lambda f: (
        lambda s, x, v: jax.jvp(
            lambda s: jax.vmap(f, (0, None, None))(s * jnp.ones((2, 1)), x, v), (s,), (s,)
        )
    ),
    "vmap of linearize": lambda f: (
        lambda s, x, v: jax.vmap(jax.linearize(lambda s: f(s, x, v), s)[1])(jnp.eye(3))
    ),
}


def compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """The results of a function, and the bytes that its compiled program needs."""
    found = jax.jit(function).lower(*arguments).compile()
    taken = found.memory_analysis()
    own = taken.argument_size_in_bytes + taken.output_size_in_bytes - taken.alias_size_in_bytes
    return found(*arguments), taken.temp_size_in_bytes + own


def assert_within(
    transform: Any, function: Callable[..., Any], *arguments: Any, room: int = ROOM
) -> None:
    """Asserts equal values, a memsafe program within `room`, and a plain program above it."""
    got, ours = compiled(transform(safe(function)), *arguments)
    wanted, plain = compiled(transform(function), *arguments)
    assert_same(got, wanted)
    assert ours <= room < plain


@pytest.mark.parametrize("transform", FORWARD.values(), ids=FORWARD)
def test_a_derivative_is_the_functions_within_the_budget(transform: Any) -> None:
    assert_within(transform, stretched, jnp.asarray(SCALES), points(), weights())


@pytest.mark.parametrize("of", ["jvp", "jacfwd", "linearize"])
def test_outside_of_jit_a_derivative_is_the_same(of: str) -> None:
    arguments = jnp.asarray(SCALES), points(), weights()
    assert_same(FORWARD[of](safe(stretched))(*arguments), FORWARD[of](stretched)(*arguments))


def spread(x: Array, v: Array) -> Array:
    """Linear in the weights; a compiler stores the pairs, because it needs their running sums."""
    return jnp.cumsum(pairs(x) * v, 1) @ x


LINEAR: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "transpose": lambda f: lambda x, v: jax.linear_transpose(partial(f, x), v)(x),
    "transpose of the transpose": lambda f: (
        lambda x, v: jax.linear_transpose(
            lambda w: jax.linear_transpose(partial(f, x), v)(w)[0], x
        )(v)
    ),
    "batch of transposes": lambda f: (
        lambda x, v: jax.vmap(jax.linear_transpose(partial(f, x), v))(jnp.stack([x, jnp.cos(x)]))
    ),
    "transpose of a batch": lambda f: (
        lambda x, v: jax.linear_transpose(
            lambda v: jax.vmap(f, (None, 0))(x, jnp.stack([v, 2 * v])), v
        )(jnp.stack([x, x]))
    ),
}


@pytest.mark.parametrize("transform", LINEAR.values(), ids=LINEAR)
def test_a_transpose_is_the_functions_within_the_budget(transform: Any) -> None:
    assert_within(transform, spread, points(), weights())


def test_a_transpose_of_what_is_not_linear_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"Transpose rule .* for 'sin'"):
        jax.linear_transpose(safe(lambda v: jnp.sin(product(points(), v))), weights())(weights())


def equations(function: Callable[..., Any], *arguments: Any) -> list[str]:
    return [each.primitive.name for each in jax.make_jaxpr(function)(*arguments).jaxpr.eqns]


def test_values_and_tangents_are_one_program() -> None:
    arguments = points(), weights()
    pushed = equations(lambda *a: jax.jvp(safe(energy), a, a), *arguments)
    assert pushed.count("memsafe") == 1
    assert equations(safe(energy), *arguments).count("memsafe") == 1


def test_a_gradient_computes_the_values_and_one_program_more() -> None:
    reverse = equations(jax.value_and_grad(safe(energy)), points(), weights())
    assert reverse.count("memsafe") == 2


def in_scan(f: Callable[..., Any]) -> Callable[..., Any]:
    def steps(x: Array, v: Array) -> Array:
        def step(x: Array, _: None) -> tuple[Array, Array]:
            found = f(x, v)
            return x * (1 + 0.01 * jnp.tanh(found)), found

        return lax.scan(step, x, None, length=3)[1].sum()

    return steps


AROUND: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "scan": in_scan,
    "checkpoint": jax.checkpoint,
    "checkpoint that saves all": lambda f: jax.checkpoint(
        f, policy=jax.checkpoint_policies.everything_saveable
    ),
    "checkpoint of a scan": lambda f: jax.checkpoint(in_scan(f)),
    "cond": lambda f: lambda x, v: lax.cond(v[0] > 0, f, lambda x, v: x.sum() * v[0], x, v),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("transform", [jax.grad, jax.jacfwd], ids=["reverse", "forward"])
def test_within_other_transforms_derivatives_are_right(around: Any, transform: Any) -> None:
    def scaled(f: Callable[..., Any]) -> Callable[..., Any]:
        return transform(lambda s, x, v: around(f)(s * x, v))

    arguments = jnp.float64(1.1), points(), weights()
    assert_within(scaled, energy, *arguments, room=ROOM + 50_000)


def test_results_that_are_not_used_are_not_computed() -> None:
    def f(x: Array, v: Array) -> tuple[Array, Array]:
        return jnp.sum(x), jnp.abs(jnp.fft.fft2(pairs(x))).sum() + v.sum()

    with pytest.raises(memsafe.BudgetError):
        safe(f)(points(), weights())
    used = jax.jit(lambda x, v: safe(f)(x, v)[0])
    assert_same(used(points(), weights()), points().sum())


def test_a_derivative_beyond_its_budget_is_refused() -> None:
    within = memsafe.memsafe(stretched, 30_000)
    arguments = jnp.asarray(SCALES), points(), weights()
    assert_same(within(*arguments), stretched(*arguments))
    tangents = tuple(jnp.ones_like(each) for each in arguments)
    with pytest.raises(memsafe.BudgetError):
        jax.jvp(within, arguments, tangents)


@jax.custom_vjp
def only_in_reverse(x: Array) -> Array:
    return jnp.tanh(x)


only_in_reverse.defvjp(lambda x: (jnp.tanh(x), x), lambda x, g: (g * x,))


def test_what_has_no_forward_mode_is_refused_in_jaxs_words() -> None:
    def f(x: Array, v: Array) -> Array:
        return energy(only_in_reverse(x), v)

    assert_same(jax.grad(safe(f))(points(), weights()), jax.grad(f)(points(), weights()))
    for each in (f, safe(f)):
        with pytest.raises(TypeError, match="forward-mode"):
            jax.jvp(each, (points(), weights()), (points(), weights()))
