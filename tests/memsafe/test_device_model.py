"""Costs of a program on a device: bytes in memory, kernels, and times too short to notice."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array, lax

from memsafe import BudgetError, memsafe, recomputation
from memsafe.device_model import CPU, GPU, TPU, DeviceModel
from memsafe.graph import Graph
from memsafe.plan import Loop
from memsafe.planner import Planner
from memsafe.program_costs import Costs
from memsafe.programs import flattened
from tests.memsafe.budgets import assume, points, product, weights

pytestmark = pytest.mark.usefixtures("doubles")

SIDE = 32
MATRIX = 8 * SIDE * SIDE
"""Bytes of one matrix."""


def costs_of(function: Callable[..., Any], model: DeviceModel = GPU) -> Costs:
    matrix = jax.ShapeDtypeStruct((SIDE, SIDE), jnp.float64)
    return Graph(flattened(jax.make_jaxpr(function)(matrix)), model=model).costs


def fused(x: Array) -> Array:
    return jnp.sum(jnp.sin(jnp.cos(x)))


def product_of(x: Array) -> Array:
    return jnp.sin(x) @ x


def scanned(x: Array) -> Array:
    return lax.scan(lambda carry, _: (carry @ x, None), x, length=7)[0]


def cut(x: Array) -> Array:
    return lax.dynamic_slice(x, (0, 0), (1, SIDE))


@pytest.mark.parametrize(
    ("function", "nbytes"),
    [
        (fused, MATRIX + 8),
        (product_of, 5 * MATRIX),
        (scanned, 7 * 3 * MATRIX),
        (cut, 2 * MATRIX / SIDE),
    ],
)
def test_bytes_of_fused_values_do_not_count(function: Callable[..., Any], nbytes: float) -> None:
    assert sum(costs_of(function).traffic) == nbytes


@pytest.mark.parametrize(
    ("function", "kernels"), [(fused, 1), (product_of, 2), (scanned, 7), (cut, 1)]
)
def test_what_is_fused_starts_no_kernel(function: Callable[..., Any], kernels: float) -> None:
    assert sum(costs_of(function).kernels) == kernels


def test_bytes_count_where_the_memory_of_a_device_is_the_limit() -> None:
    costs = costs_of(product_of)
    everything = sum(costs.operations) + GPU.byte * sum(costs.traffic)
    assert costs.work == pytest.approx(everything)
    assert costs_of(product_of, CPU).work == sum(costs.operations)


@pytest.mark.parametrize("model", [CPU, GPU, TPU])
def test_equal_sums_of_costs_are_equal_in_any_order(model: DeviceModel) -> None:
    works = costs_of(product_of, model).works * 3 + costs_of(fused, model).works
    assert sum(works) == sum(works[::-1]) == sum(sorted(works))
    assert model.byte.is_integer()


def test_steps_of_a_scan_and_kernels_in_it_take_time() -> None:
    costs = costs_of(scanned, CPU)
    assert costs.overhead == pytest.approx(7 * (CPU.step + CPU.kernel))


@jax.grad
def attended(x: Array) -> Array:
    """Two layers of attention; the derivative of the second needs scores of the first again."""
    for _ in range(2):
        scores = jax.nn.softmax(x @ x.swapaxes(1, 2))
        x = jnp.tanh(scores @ x)
    return jnp.mean(x**2)


def test_what_loops_inside_of_loops_compute_again_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = flattened(jax.make_jaxpr(attended)(jax.ShapeDtypeStruct((4, 256, 8), jnp.float64)))
    plan = Planner(slice_bytes=1e5).plan(closed, 2e5)
    inside = [(turns, one.again) for step in plan.steps for turns, one in step.inside(plan.graph)]
    again = sum(turns * work for turns, (work, _) in inside)
    assert again > 0.1 * plan.graph.costs.work
    monkeypatch.setattr(Loop, "inside", lambda *_: [])
    without = Planner(slice_bytes=1e5).plan(closed, 2e5)
    assert [step.count for step in without.loops] == [step.count for step in plan.loops]
    assert plan.work - without.work == pytest.approx(again)
    assert 0 < plan.time - without.time < again


@pytest.mark.parametrize(
    ("kernel_s", "noticed", "is_refused"),
    [(1.0, 0.01, True), (1e-6, 0.01, False), (1e-6, 0.0, True)],
)
def test_the_steps_of_loops_count_in_max_slowdown_where_they_are_noticed(
    monkeypatch: pytest.MonkeyPatch, kernel_s: float, noticed: float, *, is_refused: bool
) -> None:
    assume(monkeypatch, kernel_s=kernel_s, slice_bytes=1e3)
    monkeypatch.setattr(recomputation, "_NOTICED", noticed)
    x, v = points(512), weights(512)
    within = memsafe(jax.grad(lambda x, v: jnp.sum(product(x, v) ** 2)), 200_000)
    if is_refused:
        with pytest.raises(BudgetError, match="times as long"):
            within(x, v)
    else:
        assert within(x, v).shape == x.shape
