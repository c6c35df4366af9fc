"""Loops, branches, random keys and prints stay what they are, and are split inside."""

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
import jax.scipy.sparse.linalg
import numpy as np
import pytest
from jax import Array, lax
from jax.extend.core import jaxpr_as_fun

import memsafe
from memsafe.programs import flattened
from tests.memsafe.budgets import (
    COUNT,
    ROOM,
    assert_same,
    energy,
    pairs,
    peak_bytes,
    points,
    product,
    safe,
    turned,
    weights,
)

pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("doubles")]


def layers(x: Array, scales: Array, *, remat: bool) -> Array:
    def layer(x: Array, scale: Array) -> tuple[Array, None]:
        return turned(x * scale), None

    return jnp.sum(lax.scan(jax.checkpoint(layer) if remat else layer, x, scales)[0] ** 2)


@pytest.mark.parametrize("remat", [False, True])
def test_bodies_of_a_scan_over_layers_are_split_forward_and_backward(
    remat: bool,  # noqa: FBT001 - a parameter
) -> None:
    def f(x: Array, scales: Array) -> Array:
        return layers(x, scales, remat=remat)

    scales = jnp.linspace(0.5, 1.0, 4)
    assert_same(safe(f)(points(), scales), f(points(), scales))
    assert peak_bytes(safe(f), points(), scales) <= ROOM < peak_bytes(f, points(), scales)
    if remat:
        wanted = jax.grad(f, (0, 1))(points(), scales)
        assert_same(jax.grad(safe(f), (0, 1))(points(), scales), wanted)
        assert_same(safe(jax.grad(f, (0, 1)))(points(), scales), wanted)
        assert peak_bytes(jax.grad(safe(f), (0, 1)), points(), scales) <= ROOM


def test_a_loop_that_ends_by_its_values_is_split_inside() -> None:
    def f(x: Array) -> Any:
        def turn(state: tuple[Array, Array]) -> tuple[Array, Array]:
            x, count = state
            return turned(x), count + 1

        return lax.while_loop(lambda state: state[1] < 3, turn, (x, 0))

    assert_same(safe(f)(points()), f(points()))
    assert peak_bytes(safe(f), points()) <= ROOM < peak_bytes(f, points())


def test_a_batch_of_loops_ends_when_the_last_does() -> None:
    def f(x: Array) -> Any:
        def root(number: Array) -> Any:
            def far(state: tuple[Array, int]) -> Array:
                return jnp.abs(state[0] ** 2 - number) > 1e-9 * number

            def nearer(state: tuple[Array, int]) -> tuple[Array, int]:
                return (state[0] + number / state[0]) / 2, state[1] + 1

            return lax.while_loop(far, nearer, (number, 0))

        return jax.vmap(root)(1 + turned(x).sum(1) ** 2)

    (roots, turns), wanted = safe(f)(points()), f(points())
    assert_same((roots, turns), wanted)
    assert len(np.unique(turns)) > 1
    assert peak_bytes(safe(f), points()) <= ROOM < peak_bytes(f, points())


def test_what_a_linear_solver_does_is_split() -> None:
    def f(x: Array, v: Array) -> Array:
        return jax.scipy.sparse.linalg.cg(lambda v: product(x, v) + v, v, maxiter=3)[0]

    assert_same(safe(f)(points(), weights()), f(points(), weights()))
    assert peak_bytes(safe(f), points(), weights()) <= ROOM < peak_bytes(f, points(), weights())
    gradient = jax.grad(lambda x, v: f(x, v).sum())
    for within in (safe(gradient), jax.grad(safe(lambda x, v: f(x, v).sum()))):
        assert_same(within(points(), weights()), gradient(points(), weights()))


def test_both_branches_are_split_inside() -> None:
    def f(flag: Any, x: Array) -> Array:
        return lax.cond(flag, turned, lambda x: turned(jnp.cos(x)), x)

    for flag in (True, False):
        assert_same(safe(f)(flag, points()), f(flag, points()))
    assert peak_bytes(safe(f), np.True_, points()) <= ROOM < peak_bytes(f, np.True_, points())


def test_random_keys_are_arguments_and_give_the_same_numbers() -> None:
    def f(key: Array, x: Array) -> Array:
        return jnp.sum(pairs(x) * jax.random.normal(key, (COUNT, COUNT)), 1)

    key = jax.random.key(3)
    assert_same(safe(f)(key, points()), f(key, points()))
    assert peak_bytes(safe(f), key, points()) <= ROOM < peak_bytes(f, key, points())
    old = jax.random.PRNGKey(3)
    assert_same(safe(f)(old, points()), f(old, points()))

    def loss(x: Array, key: Array) -> Array:
        return jnp.sum(f(key, x) ** 2)

    assert_same(jax.grad(safe(loss))(points(), key), jax.grad(loss)(points(), key))


def test_prints_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Array, v: Array) -> Array:
        result = energy(x, v)
        jax.debug.print("energy {}", result)
        return result

    for within in (safe(f), jax.jit(safe(f)), jax.value_and_grad(safe(f))):
        within(points(), weights())
        jax.effects_barrier()
        assert capsys.readouterr().out.count("energy") == 1
    assert peak_bytes(safe(f), points(), weights()) <= ROOM


def test_a_branch_of_another_platform_is_not_lowered() -> None:
    def f(x: Array) -> Array:
        def kernel(x: Any, result: Any) -> None:
            result[...] = x[...] * 2

        def on_tpu(x: Array) -> Array:
            return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

        return jax.lax.platform_dependent(x, tpu=on_tpu, default=lambda x: x * 2)

    flat = jaxpr_as_fun(flattened(jax.make_jaxpr(f)(points())))
    assert_same(jax.jit(flat)(points())[0], 2 * points())


def test_a_checkpoint_keeps_apart_the_operands_that_it_names_alone() -> None:
    def f(x: Array, y: Array) -> Array:
        return jnp.sum(jnp.sin(jnp.cos(x) * y))

    def barriers(apart: Any) -> int:
        step = jax.grad(jax.checkpoint(f, prevent_cse=apart))
        flat = flattened(jax.make_jaxpr(step)(jnp.ones(3), jnp.ones(3)))
        return sum(each.primitive.name == "optimization_barrier" for each in flat.jaxpr.eqns)

    found = [barriers(each) for each in ((False, False), (False, True), (True, True))]
    assert found == [1, 2, 3]  # One is for the cotangent, which JAX always keeps apart.


def printing_steps(x: Array) -> Array:
    def step(x: Array, row: Array) -> tuple[Array, None]:
        jax.debug.print("again {}", x[0])
        return x * row, None

    return jnp.sum(lax.scan(step, x, jnp.arange(1.0, 4.0))[0])


def printing_branches(x: Array) -> Array:
    def branch(x: Array) -> Array:
        jax.debug.print("again {}", x[0])
        return jnp.sin(x)

    return lax.cond(x[0] < 5, branch, jnp.cos, jax.jit(branch)(jnp.cos(jax.jit(branch)(x)))).sum()


@pytest.mark.parametrize("function", [printing_steps, printing_branches])
def test_prints_inside_loops_branches_and_calls_are_printed_once(
    capsys: pytest.CaptureFixture[str], function: Callable[[Array], Array]
) -> None:
    x = jnp.linspace(0.1, 1.0, 5)
    assert_same(jax.grad(memsafe.memsafe(function, "1GB"))(x), jax.grad(function)(x))
    jax.effects_barrier()
    memsafe_and_jax = capsys.readouterr().out.count("again")
    assert memsafe_and_jax == 2 * 3


def test_ordered_prints_keep_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Array) -> tuple[Array, Array]:
        near = pairs(x)
        sums = jnp.sum(near, 1)
        jax.debug.print("first {}", sums[0], ordered=True)
        jax.debug.print("second {}", x[0, 0], ordered=True)
        return sums, jnp.sum(near * near, 1)

    assert_same(safe(f)(points()), f(points()))
    jax.effects_barrier()
    said = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert said == ["first", "second"] * 2
    assert peak_bytes(safe(f), points()) <= ROOM < peak_bytes(f, points())
