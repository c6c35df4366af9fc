"""Values reduced to extremes in several directions are computed for each, if the budget asks.

Coordinates are whole numbers here. Therefore many distances are equal, and none is rounded.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.extend.core import ClosedJaxpr, Literal

import memsafe
from memsafe.options import REWRITES
from memsafe.programs import evaluate
from memsafe.rewrites import one_direction_each, redundant
from tests.memsafe.budgets import peak_bytes
from tests.memsafe.rewrites.reading import program

pytestmark = pytest.mark.exhaustive

X = np.random.default_rng(0).integers(0, 6, (40, 2)).astype(float)
Y = np.random.default_rng(1).integers(0, 6, (56, 2)).astype(float)


@pytest.fixture(autouse=True)
def _doubles() -> Any:
    with jax.enable_x64(new_val=True):
        yield


def distances(x: Array, y: Array) -> Array:
    return jnp.sum(jnp.abs(x[:, None] - y[None]), axis=-1)


def chamfer(x: Array, y: Array) -> Array:
    d = distances(x, y)
    return d.min(axis=0).sum() + d.min(axis=1).sum()


def hausdorff(x: Array, y: Array) -> Array:
    d = distances(x, y)
    return jnp.maximum(d.min(axis=0).max(), d.min(axis=1).max())


def farthest_and_nearest(x: Array, y: Array) -> Array:
    d = distances(x, y)
    return (d.max(axis=0) ** 2).sum() - 3 * d.min(axis=1).sum()


def with_terms_of_all(x: Array, y: Array) -> Array:
    """Cotangents of no direction come before, between and after those of the directions."""
    d = distances(x, y)
    return 5 * d.sum() + d.min(axis=0).sum() + (d * d).sum() + 2 * d.min(axis=1).sum() - d.sum()


def chosen(x: Array, y: Array) -> Array:
    d = jnp.where(x[:, :1] > y[:, 0], distances(x, y), 7.0)
    return d.min(axis=0).sum() + d.min(axis=1).sum()


def turned(x: Array, y: Array) -> Array:
    d = (2 * distances(x, y) / 4 - 1).T
    return d.min(axis=0).sum() - d.max(axis=1).sum()


def of_three(x: Array, y: Array) -> Array:
    d = distances(x, y)[:, :, None] + jnp.arange(6.0) * x[:, 0, None, None]
    return d.min(axis=0).sum() + d.max(axis=1).sum() + d.min(axis=2).sum()


APART = [chamfer, hausdorff, farthest_and_nearest, with_terms_of_all, chosen, turned, of_three]


def prepared(function: Callable[..., Any]) -> ClosedJaxpr:
    return redundant(program(function, X, Y)).program


def most_ways(closed: ClosedJaxpr) -> int:
    """Maximum number of directions in which one value is reduced to its extremes."""
    found = {
        (equation.invars[0], equation.params["axes"])
        for equation in closed.jaxpr.eqns
        if equation.primitive.name in ("reduce_min", "reduce_max")
        and not isinstance(equation.invars[0], Literal)
    }
    return max(Counter(value for value, _ in found).values())


@pytest.mark.parametrize("function", APART)
def test_a_gradient_in_several_directions_is_one_in_each(function: Callable[..., Any]) -> None:
    gradient = jax.value_and_grad(function, (0, 1))
    written = prepared(gradient)
    rewritten = one_direction_each(written)
    assert most_ways(written) > 1
    assert most_ways(rewritten.program) == 1
    assert "times, for its extremes" in rewritten.notes[0]
    results = evaluate(rewritten.program, (X, Y))
    for got, wanted in zip(results, jax.tree.leaves(gradient(X, Y)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-13)


def mutual(x: Array, y: Array) -> Array:
    """Pairs that are nearest to each other: the result is no sum of the two directions."""
    d = distances(x, y)
    both = (d == d.min(axis=0)) & (d == d.min(axis=1, keepdims=True))
    return jnp.sum(jnp.where(both, d, 0.0))


def multiplied(x: Array, y: Array) -> Array:
    d = distances(x, y)
    first = (d == d.min(axis=0)).astype(float)
    second = (d == d.min(axis=1, keepdims=True)).astype(float)
    return jnp.sum((first + 1) * (second + 2) * d)


def given_back(x: Array, y: Array) -> Array:
    d = distances(x, y)
    return (d == d.min(axis=0)).astype(float) + (d == d.min(axis=1, keepdims=True))


def within_a_bit(x: Array, y: Array) -> tuple[Array, Array]:
    """`d <= d.min(axis=0)` finds the minimum only if no copy of `d` is rounded differently."""

    def loss(x: Array) -> Array:
        d = distances(x, y)
        return d.min(axis=0).sum() + d.min(axis=1).sum() + jnp.sum(d <= d.min(axis=0))

    return jax.value_and_grad(loss)(x)


def one_way(x: Array, y: Array) -> Array:
    return jax.grad(lambda x: distances(x, y).min(axis=0).sum())(x)


@pytest.mark.parametrize(
    "function", [mutual, multiplied, given_back, within_a_bit, one_way, chamfer]
)
def test_others_stay_as_they_are(function: Callable[..., Any]) -> None:
    written = prepared(function)
    assert one_direction_each(written).program is written


def test_both_directions_keep_a_budget_that_one_matrix_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x, y = np.tile(X, (20, 1)), np.tile(Y, (20, 1))
    gradient = jax.value_and_grad(chamfer, (0, 1))
    plain = peak_bytes(gradient, x, y)
    safe = memsafe.memsafe(gradient, plain // 20)
    assert peak_bytes(safe, x, y) <= plain // 20
    for got, wanted in zip(
        *(jax.tree.leaves(each(x, y)) for each in (safe, gradient)), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-13)
    others = [name for name in REWRITES if name not in ("directions", "distances")]
    with pytest.raises(memsafe.BudgetError, match="compared with what another loop makes"):
        memsafe.memsafe(gradient, plain // 20, rewrites=others)(x, y)
    memsafe.explain(gradient, plain // 20)(x, y)
    assert "[800, 1120] made 2 times, for its extremes 2 ways" in capsys.readouterr().out
    memsafe.explain(gradient, plain - 1)(x, y)
    assert "made 2 times" not in capsys.readouterr().out
