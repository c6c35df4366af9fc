"""Slices are as long as fits, also if predicted memory is not linear in their length."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array

from memsafe.device_model import TPU
from memsafe.emit import emitted
from memsafe.fit import planner_for
from memsafe.options import Options
from memsafe.plan import Loop, Plan
from memsafe.planner import Planner
from memsafe.programs import flattened
from memsafe.sub_jaxprs import sub_jaxprs_of


def discrepancy(x: Array, y: Array) -> Array:
    both, n = jnp.concatenate([x, y]), len(x)
    k = jnp.exp(-jnp.sum((both[:, None] - both[None]) ** 2, axis=-1) / 4)
    return k[:n, :n].mean() + k[n:, n:].mean() - 2 * k[:n, n:].mean()


@pytest.mark.parametrize("budget", [10e6, 5e6, 2e6, 1e6, 3e5])
def test_a_plan_fits_where_two_indices_seem_to_take_less_than_one(budget: float) -> None:
    """A slice of one index has other values fused than a slice of two, and seems to take more."""
    points = jax.ShapeDtypeStruct((800, 6), jnp.float32)
    plan = planned(jax.grad(discrepancy, (0, 1)), points, points, budget=budget)
    assert plan.predicted <= budget
    assert not plan.is_plain


REGRESSION = tuple(
    jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((128, 3), (3,), (8192, 3))
)


@pytest.mark.parametrize("budget", [20.5e6, 16e6, 10e6])
def test_a_solve_is_kept_where_what_is_made_of_it_fits_in_shorter_slices(budget: float) -> None:
    """Two indices seem to need no more memory than one; all indices need twice what is left."""
    plan = planned(jax.grad(projected, (0, 1)), *REGRESSION, budget=budget)
    assert plan.predicted <= budget
    assert not plan.is_plain
    assert plan.work <= 1.05 * plan.graph.costs.work


def test_a_solve_is_made_twice_rather_than_called_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the solve is kept, only short slices fit, and each slice calls a solve."""
    plan = planned(jax.grad(projected, (0, 1)), *REGRESSION, budget=5e6)
    monkeypatch.setattr("memsafe.region_costs.SOLVE_CALL", 0.0)
    kept = planned(jax.grad(projected, (0, 1)), *REGRESSION, budget=5e6)
    assert max(loop.count for loop in plan.loops) <= 8
    assert max(loop.count for loop in kept.loops) >= 64


@jax.grad
def encoder(layers: list[list[Array]], x: Array) -> Array:
    """Gradient of attention in 8 heads and a feed-forward part, normalised after each part."""

    def normal(x: Array) -> Array:
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)

    for q, k, v, o, up, down in layers:
        queries, keys, values = (jnp.reshape(x @ w, (len(x), 8, -1)) for w in (q, k, v))
        scores = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", queries, keys) / 8)
        x = normal(x + jnp.einsum("hqk,khd->qhd", scores, values).reshape(x.shape) @ o)
        x = normal(x + jax.nn.relu(x @ up) @ down)
    return jnp.mean(x**2)


@pytest.mark.parametrize("soft", [None, math.inf])
def test_more_room_in_a_loop_over_heads_is_not_more_work(
    monkeypatch: pytest.MonkeyPatch, soft: float | None
) -> None:
    """A step in slices of 1 GB does less work than in slices of all that is left of 30 GB."""

    def weight(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    layer = [*[weight(512, 512)] * 4, weight(512, 2048), weight(2048, 512)]
    closed = flattened(jax.make_jaxpr(encoder)([layer] * 2, weight(65_536, 512)))
    if soft is not None:
        monkeypatch.setattr(Planner, "soft", soft)
    planner = Planner(slice_bytes=TPU.slice_bytes, model=TPU)
    more, less = (planner.plan(closed, budget).work for budget in (30e9, 8e9))
    assert (more <= 1.001 * less) == (soft is None)


def projected(inducing: Array, scale: Array, data: Array) -> Array:
    """Terms of a sparse Gaussian process: the data's kernel, projected on the inducing points."""

    def kernel(x: Array, y: Array) -> Array:
        x, y = x / scale, y / scale
        squares = jnp.sum(x**2, -1)[:, None] + jnp.sum(y**2, -1)[None] - 2 * x @ y.T
        return jnp.exp(-jnp.maximum(squares, 0))

    unit = jnp.eye(len(inducing))
    own = jnp.linalg.cholesky(kernel(inducing, inducing) + unit)
    held = jax.scipy.linalg.solve_triangular(own, kernel(inducing, data), lower=True)
    return jnp.linalg.slogdet(held @ held.T + unit)[1] + jnp.sum(held**2)


def test_a_slice_of_one_index_is_summed_without_its_dimension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """XLA's library for CPUs is slow at sums that keep a dimension of one index."""
    x, y = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4, 512, 64), (4, 512, 1)))
    found = planned(norms_of_pairs, x, y, budget=1.5e6)
    assert [loop.length for loop in found.loops] == [1]
    sums = kept_of_one_index(found, x, y)
    monkeypatch.setattr("memsafe.merges._kept_ones", lambda *_: [])
    as_written = kept_of_one_index(found, x, y)
    assert len(sums) == len(as_written)
    assert not any(sums)
    assert any(as_written)


def norms_of_pairs(x: Array, y: Array) -> Array:
    """For each point, the sum over all points of the kernel times their `y`."""
    kernel = jnp.exp(x @ x.swapaxes(1, 2))
    return jnp.sum(kernel * y, 1)


def kept_of_one_index(plan: Plan, *arguments: object) -> list[bool]:
    """Whether each sum of a planned program keeps a dimension of one index."""

    def inside(jaxpr: Any) -> Iterator[bool]:
        for equation in jaxpr.eqns:
            if equation.primitive.name == "reduce_sum":
                shape, axes = equation.invars[0].aval.shape, equation.params["axes"]
                yield any(size == 1 and at not in axes for at, size in enumerate(shape))
            for body in sub_jaxprs_of(equation).values():
                yield from inside(body.jaxpr)

    return list(inside(jax.make_jaxpr(emitted(plan))(*arguments).jaxpr))


def planned(function: Callable[..., Array], *arguments: object, budget: float) -> Plan:
    program = flattened(jax.make_jaxpr(function)(*arguments))
    options = Options.checked(None, {})
    prepared = options.prepared(program, "cpu").program
    return planner_for(jax.devices("cpu")[0], options).plan(prepared, budget)


@pytest.mark.parametrize(
    ("steps", "batch", "slices"), [(1024, 64, 4), (8, 64 * 128, 16)], ids=["many", "few"]
)
def test_slices_that_run_many_steps_are_as_long_as_fits(
    steps: int, batch: int, slices: int
) -> None:
    """Each slice runs all the steps of a scan, which cost time however short the slice is."""
    states = jax.ShapeDtypeStruct((steps, batch, 128), jnp.float32)
    weights = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    plan = planned(jax.grad(recurrent), weights, states, budget=60e6)
    assert [step.count for step in plan.steps if isinstance(step, Loop)] == [slices]


def recurrent(weights: Array, inputs: Array) -> Array:
    def step(state: Array, x: Array) -> tuple[Array, Array]:
        after = jnp.tanh(x + state @ weights)
        return after, after

    states = jax.lax.scan(step, inputs[0], inputs)[1]
    return jnp.sum(jnp.tanh(states @ weights) ** 2)
