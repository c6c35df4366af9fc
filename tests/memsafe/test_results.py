"""Integers are exact, sums are as accurate as the compiler's, and refusals give a reason."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

import memsafe
from memsafe import BudgetError
from tests.memsafe.budgets import ROOM, assert_same, pairs, peak_bytes, points, safe, weights

pytestmark = pytest.mark.usefixtures("doubles")


def test_integers_and_truths_come_out_exactly() -> None:
    def f(x: Array) -> Any:
        near = pairs(x)
        return near.argmin(1), (near > 0.5).sum(0), (near > 0.99).any(1), lax.top_k(near, 3)[1]

    for got, wanted in zip(safe(f)(points()), f(points()), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    assert peak_bytes(safe(f), points()) <= ROOM


def test_a_refusal_names_the_peak_what_stands_in_the_way_and_the_user_s_line() -> None:
    def f(x: Array) -> Array:
        return jnp.abs(jnp.fft.fft2(pairs(x))).sum()  # in the way

    with pytest.raises(BudgetError, match="in the way") as caught:
        safe(f)(points())
    error = caught.value
    assert error.budget == ROOM < error.smallest <= peak_bytes(f, points())
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(n for n, text in enumerate(source, 1) if "fft2(pairs(x))" in text)
    assert f"{Path(__file__).name}:{line}" in str(error)
    assert any("fft" in each for each in error.blockers)
    assert memsafe.memsafe(f, 1.01 * error.smallest)(points()) == pytest.approx(float(f(points())))


def test_sums_of_half_precision_are_as_good_as_the_compiler_s() -> None:
    def f(x: Array, v: Array) -> Array:
        return jnp.tanh(x[:, None] * x[None, :]) @ v

    x, v = (each.astype(jnp.bfloat16) for each in (weights(1024), weights(1024) + 1))
    exact = np.asarray(f(x.astype(jnp.float64), v.astype(jnp.float64)))
    within = memsafe.memsafe(f, 400_000)
    assert peak_bytes(f, x, v) > 400_000 >= peak_bytes(within, x, v)

    def error(result: Array) -> float:
        return float(np.abs(np.asarray(result, float) - exact).max())

    assert error(within(x, v)) <= error(jax.jit(f)(x, v))


def test_an_unused_result_of_an_equation_stops_no_plan() -> None:
    def f(x: Array) -> Array:
        order = jnp.argsort(jnp.cos(x[:, None] - x[None, :]), axis=1)
        return jnp.abs(jnp.fft.fft(order.astype(x.dtype))).sum()

    x = jnp.asarray(np.random.default_rng(0).standard_normal(512))
    assert_same(memsafe.memsafe(f, 0.9 * peak_bytes(f, x))(x), f(x))
