"""Derivatives of programs that memsafe splits equal those of the function, by any rule."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.experimental import io_callback

import memsafe
from memsafe.graph import Graph
from memsafe.programs import flattened
from memsafe.storing import stored
from tests.memsafe.budgets import (
    COUNT,
    ROOM,
    assert_same,
    pairs,
    peak_bytes,
    points,
    product,
    safe,
    weights,
)

pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("doubles")]


def test_results_that_are_no_floats_have_no_derivative_and_stop_none() -> None:
    def f(x: Array, v: Array) -> Any:
        values = product(x, v)
        return jnp.sum(values**2), (values.argmax(), values > 0)

    got = jax.grad(safe(f), has_aux=True)(points(), weights())
    assert_same(got, jax.grad(f, has_aux=True)(points(), weights()))


def test_integer_arguments_are_differentiated_around() -> None:
    def f(x: Array, at: Array) -> Array:
        return jnp.sum(pairs(x)[at].sum(0) ** 2)

    at = jnp.arange(0, COUNT, 2)
    assert_same(jax.grad(safe(f))(points(), at), jax.grad(f)(points(), at))
    got, none = jax.grad(safe(f), (0, 1), allow_int=True)(points(), at)
    assert none.dtype == jax.dtypes.float0
    assert_same(got, jax.grad(f)(points(), at))


@jax.custom_vjp
def thrice(x: Array) -> Array:
    return jnp.tanh(x)


thrice.defvjp(lambda x: (thrice(x), ()), lambda _, g: (3 * g,))


def test_a_derivative_that_the_user_wrote_is_the_one_used() -> None:
    def f(x: Array, v: Array) -> Array:
        return thrice(pairs(x)).sum(0) @ v

    def meant(x: Array, v: Array) -> Array:
        return 3 * pairs(x).sum(0) @ v

    wanted = jax.grad(meant)(points(), weights())
    assert_same(jax.grad(safe(f))(points(), weights()), wanted)
    assert_same(safe(jax.grad(f))(points(), weights()), wanted)
    assert peak_bytes(jax.grad(safe(f)), points(), weights()) <= ROOM


def test_the_derivative_of_a_maximum_is_right_where_slices_round_otherwise() -> None:
    """It compares the maximum with values computed again, maybe by a product of another size."""

    def f(x: Array) -> Array:
        attended = jax.nn.softmax(x @ x.T, axis=1) @ x
        return attended.max(0).sum() + (jnp.tanh(x @ x.T) + x[:, :1]).max(0)[:37].sum()

    x = jnp.asarray(np.random.default_rng(0).standard_normal((300, 37)))
    assert_same(memsafe.memsafe(jax.grad(f), 2_250_000)(x), jax.jit(jax.grad(f))(x))
    with pytest.raises(memsafe.BudgetError, match="compared with what another loop makes of it"):
        memsafe.memsafe(jax.grad(f), 700_000)(x)


def test_a_maximum_has_its_derivative_where_its_operand_is_rounded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """XLA uses a fused multiply-add for the product and sum in one fusion, and not in another."""

    def f(x: Array, y: Array, z: Array) -> Array:
        costs = x[:, None] * y
        return jnp.sum((costs + z).max(1) ** 2) + jnp.mean(jnp.tanh(costs))

    derivative = jax.grad(f, (0, 1, 2))
    arguments = np.random.default_rng(0).standard_normal((3, 1000))
    with jax.disable_jit():
        wanted = derivative(*arguments)

    def is_right(made: Callable[..., Any]) -> bool:
        pairs = zip(made(*arguments), wanted, strict=True)
        return all(np.allclose(one, other) for one, other in pairs)

    def safely(*args: Any) -> Any:
        return memsafe.memsafe(partial(derivative), "2MB")(*args)

    assert is_right(safely)
    if is_right(jax.jit(derivative)):
        pytest.skip("jax.jit is right here, so XLA does not round the operand in two ways")
    monkeypatch.setattr(Graph, "stored", frozenset())
    assert not is_right(safely)


@pytest.mark.parametrize(
    ("compared", "is_tied"),
    [
        (lambda x: jnp.equal(y := jnp.sin(x), y.max(0)), True),
        (lambda x: jnp.equal((y := jnp.sin(x)).T, y.max(1)), True),
        (lambda x: jnp.equal((y := jnp.sin(x))[None, ::-1], y.reshape(-1).max()), True),
        (lambda x: jnp.equal(jnp.sin(x), jnp.cos(x).max(0)), False),
        (lambda x: jnp.equal(x[1:3].T, x[1:3].max(1)), False),
    ],
)
def test_what_is_compared_with_its_own_maximum_is_found_in_any_order(
    compared: Callable[[Array], Array], *, is_tied: bool
) -> None:
    closed = flattened(jax.make_jaxpr(compared)(np.ones((5, 5))))
    assert bool(Graph(closed).stored) is is_tied


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_compilers_for_other_devices_store_behind_a_barrier(platform: str) -> None:
    def lowered(*, everywhere: bool) -> str:
        function = partial(stored, everywhere=everywhere)
        traced = jax.jit(function).trace(jax.ShapeDtypeStruct((4,), "float32"))
        return str(traced.lower(lowering_platforms=(platform,)).as_text())

    assert "optimization_barrier" in lowered(everywhere=True)
    assert "optimization_barrier" not in lowered(everywhere=False)


def test_what_another_run_would_give_otherwise_is_not_computed_again() -> None:
    """A backward pass with another batch or other random numbers belongs to another function."""
    calls: list[int] = []

    def batch() -> np.ndarray[Any, Any]:
        calls.append(1)
        return np.float64(len(calls))

    def loaded(x: Array) -> Array:
        kind = jax.ShapeDtypeStruct((), "float64")
        return jnp.sin(x) * jax.jit(lambda: io_callback(batch, kind, ordered=True))()

    def drawn(x: Array) -> Array:
        return (jnp.sin(x) * lax.rng_uniform(0.0, 1.0, (4,))).sum()

    for function in (loaded, drawn):
        inside = memsafe.memsafe(jax.value_and_grad(function), "1GB")
        outside = memsafe.memsafe(function, "1GB")
        pushed = jax.jvp(outside, (1.2,), (1.0,))
        for value, slope in (inside(1.2), pushed):
            np.testing.assert_allclose(value / np.sin(1.2), slope / np.cos(1.2))
        with pytest.raises(ValueError, match=r"do this: differentiate inside, memsafe\(jax\."):
            jax.value_and_grad(outside)(1.2)
    assert len(calls) == 2


def test_what_checkpoints_keep_is_not_computed_again_to_print(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def shown(x: Array) -> Array:
        jax.debug.print("ran with {}", x)
        return jnp.sin(x) * x

    slope = jax.grad(lambda x: (jnp.sin(x) * x) ** 2)(1.2)
    for policy, times in (("everything_saveable", 1), ("nothing_saveable", 2)):
        saved = getattr(jax.checkpoint_policies, policy)
        kept = jax.checkpoint(memsafe.memsafe(shown, "1GB"), policy=saved)
        np.testing.assert_allclose(jax.grad(lambda x, f=kept: f(x) ** 2)(1.2), slope)
        jax.effects_barrier()
        assert capsys.readouterr().out.count("ran with") == times
