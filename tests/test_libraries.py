"""``benchmarks.libraries``: what passes within a share of a program's memory, and what does not."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.experts import measured
from benchmarks.experts.measured import Way
from benchmarks.libraries import __main__ as benchmark
from benchmarks.libraries.__main__ import difference, within
from memsafe import BudgetError

POINTS = (np.linspace(0.0, 1.0, 300, dtype=np.float32),)


def pairs(points: Any) -> Any:
    return jnp.sin(points[:, None] * points[None]).sum(1)


TRUTH = jax.device_get([pairs(*map(jnp.asarray, POINTS))])


def test_a_program_passes_that_keeps_values_and_budget() -> None:
    found = within(300_000, pairs, POINTS, TRUTH)
    assert found.is_good
    assert isinstance(found.found, Way)


@pytest.mark.parametrize(
    "safe",
    [
        pytest.param(lambda points: pairs(points) * 1.01, id="a wrong value"),
        pytest.param(lambda points: jnp.sort(pairs(points)[::-1]) + 0 / points, id="no number"),
        pytest.param(lambda points: points.no_such_thing, id="a crash"),
    ],
)
def test_what_memsafe_makes_wrong_fails(
    monkeypatch: pytest.MonkeyPatch, safe: Callable[..., Any]
) -> None:
    monkeypatch.setattr(measured, "memsafe", lambda *_: safe)
    assert not within(300_000, pairs, POINTS, TRUTH).is_good


def test_a_budget_that_is_not_kept_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "memsafe", lambda function, _: function)
    assert not within(100, pairs, POINTS, TRUTH).is_good


def test_a_refusal_passes_and_keeps_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: Any) -> Any:
        raise BudgetError(budget=100, smallest=200)

    monkeypatch.setattr(measured, "memsafe", refusing)
    found = within(100, pairs, POINTS, TRUTH)
    assert found.is_good
    assert "wanted 100 B" in str(found.found)


def test_a_gradient_that_is_rounding_counts_as_nothing() -> None:
    assert difference([np.array([1e-12])], [np.array([-1e-12])]) < benchmark.DIFFERENCE_AT_MOST
    assert difference([np.array([1.01])], [np.array([1.0])]) > benchmark.DIFFERENCE_AT_MOST
