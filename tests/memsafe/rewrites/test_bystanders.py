"""Results that no slice makes are computed apart, bit for bit, so the others can be sliced."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.extend.core import ClosedJaxpr

from memsafe.rewrites import bystanders_apart, sums_apart
from memsafe.rules import factors_of
from tests.memsafe.rewrites.reading import program, same_bits

X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)


def counting(x: Array, w: Array) -> Any:
    """A loop that counts its steps."""
    step = lambda carry, _: ((jnp.tanh(carry[0] @ w), carry[1] + 1), carry[0])  # noqa: E731
    return lax.scan(step, (x, jnp.int32(0)), None, length=5)


def chosen(x: Array, w: Array) -> Any:
    """Two branches that read weights."""
    kinds = (lambda x: jnp.tanh(jnp.sin(x @ w) @ w), lambda x: jnp.cos(x @ w))
    return lax.cond(w[0, 0] > 0, *kinds, x)


def summing(x: Array, w: Array) -> Any:
    """A loop that adds over the batch."""
    step = lambda carry, _: ((jnp.tanh(carry[0] @ w), carry[1] + carry[0].sum()), None)  # noqa: E731
    return lax.scan(step, (x, jnp.float32(0)), None, length=5)


def sliced(closed: ClosedJaxpr) -> list[bool]:
    """Whether slices can make all results, for each loop or branch with results as large as `X`."""
    equations = closed.jaxpr.eqns
    read = {id(v) for v in (*closed.jaxpr.outvars, *(v for e in equations for v in e.invars))}
    return [
        any(factor.merge is None and factor.size == len(X) for factor in factors_of(equation))
        for equation in equations
        if equation.primitive.name in {"scan", "cond"}
        and any(id(v) in read and v.aval.shape == X.shape for v in equation.outvars)
    ]


@pytest.mark.parametrize("function", [counting, lambda x, w: jax.vjp(chosen, x, w)[0]])
def test_what_is_the_same_for_every_slice_is_apart(function: Callable[..., Any]) -> None:
    written = program(function, X, W)
    again = bystanders_apart(written).program
    assert all(sliced(again))
    assert same_bits(written, again, X, W)


def test_the_control_a_counter_keeps_a_loop_whole() -> None:
    assert not any(sliced(program(counting, X, W)))


def test_what_is_summed_is_apart() -> None:
    written = program(summing, X, W)
    assert not any(sliced(written))
    again = sums_apart(written).program
    assert all(sliced(again))
    assert same_bits(written, again, X, W)


def test_the_gradients_of_a_branch_are_apart() -> None:
    def gradients(x: Array, w: Array) -> Any:
        return jax.grad(lambda x, w: jnp.sum(chosen(x, w) ** 2), (0, 1))(x, w)

    written = bystanders_apart(program(gradients, X, W)).program
    assert not all(sliced(written))
    again = sums_apart(written).program
    assert all(sliced(again))
    assert same_bits(written, again, X, W)


@pytest.mark.parametrize("rewrite", [bystanders_apart, sums_apart])
def test_a_loop_whose_results_are_all_sliced_is_left(rewrite: Callable[..., Any]) -> None:
    def layers(x: Array, w: Array) -> Any:
        return lax.scan(lambda x, _: (jnp.tanh(x @ w), x), x, None, length=5)

    written = program(layers, X, W)
    assert rewrite(written).program is written
