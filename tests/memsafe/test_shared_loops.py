"""Uses of a value share a loop, unless that saves little and adds many equations to the loop."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax import Array

from memsafe.device_model import CPU
from memsafe.graph import Graph
from memsafe.keeping import values_above
from memsafe.plan import Loop, Plan
from memsafe.planner import Planner
from memsafe.programs import flattened
from memsafe.splitting import Splitting
from tests.memsafe.budgets import pairs

COUNT = 2048
BETWEEN = 40
ANY_LENGTH = replace(CPU, multiple=1)


def two_uses(x: Array, weights: Array, elsewhere: int) -> Array:
    """Uses pairs of points twice, with many steps on small values between, and does other work."""
    near = pairs(x)
    row = near.sum(1)
    for _ in range(BETWEEN):
        row = jnp.tanh(row)
    for _ in range(elsewhere):
        weights = jnp.tanh(weights @ weights)
    return jnp.sum(near * row[:, None]) + weights.sum()


def loops(elsewhere: int) -> tuple[Plan, list[Loop]]:
    def f(x: Array, weights: Array) -> Array:
        return two_uses(x, weights, elsewhere)

    x, weights = jax.ShapeDtypeStruct((COUNT, 3), float), jax.ShapeDtypeStruct((512, 512), float)
    closed = flattened(jax.make_jaxpr(f)(x, weights))
    room = 5 * COUNT**2  # A pair takes 8 bytes.
    plan = Planner(slice_bytes=room / 4, model=ANY_LENGTH).plan(closed, room)
    assert plan.predicted <= room
    return plan, [step for step in plan.steps if isinstance(step, Loop)]


@pytest.mark.usefixtures("doubles")
def test_what_is_much_work_to_make_again_is_made_in_one_loop() -> None:
    plan, (loop,) = loops(elsewhere=1)
    assert len(loop.region.factors) > BETWEEN
    assert plan.work == plan.graph.costs.work


@pytest.mark.usefixtures("doubles")
def test_a_loop_takes_in_no_steps_to_save_little() -> None:
    plan, found = loops(elsewhere=60)
    assert [len(loop.region.factors) < BETWEEN for loop in found] == [True, True]
    assert plan.work <= 1.08 * plan.graph.costs.work


def crossed(x: Array, y: Array, z: Array) -> tuple[Array, ...]:
    """Sums of two tables of pairs, which wait for sums of the other table or for a sine."""
    one, other = pairs(x), pairs(y)
    first = one.sum(1)
    between = other.sum(1)
    last = (one * between).sum(1)
    z = jnp.sin(z)
    return first, between, last, (other * z).sum(1)


@pytest.mark.parametrize("is_remembered", [True, False])
def test_a_closed_loop_is_behind_what_came_before_it(*, is_remembered: bool) -> None:
    x, z = jax.ShapeDtypeStruct((8, 3), jnp.float32), jax.ShapeDtypeStruct((8,), jnp.float32)
    graph = Graph(flattened(jax.make_jaxpr(crossed)(x, x, z)))
    splitting = Splitting(graph, values_above(graph, 8 * 8 * 4))
    first, between, last, others = (graph.definition[v] for v in graph.closed.jaxpr.outvars)
    (sine,) = (at for at, one in enumerate(graph.equations) if one.primitive.name == "sin")
    for sinks in ([first, last], [between, others]):
        loop = splitting.grown(sinks[0], splitting.seeds(sinks[0])[0])
        assert splitting.merge(loop, sinks[1:])
        splitting.close(loop)
        if not is_remembered:
            splitting.closed.clear()
    # The second loop waits for the sine, so the first, which waits for the second, does too.
    assert first < between
    assert bool(splitting.above[first] >> sine & 1) == is_remembered


def test_what_is_much_work_is_kept_rather_than_what_is_little() -> None:
    def f(lower: Array, x: Array) -> Array:
        near = jnp.tanh(x)
        high, low = near > 0.5, near < -0.5
        solved = jax.scipy.linalg.solve_triangular(lower, near, lower=True)
        means = (solved @ solved.T) @ solved
        return jnp.where(high, means, 0).sum() + jnp.where(low, means**2, 0).sum()

    lower = jax.ShapeDtypeStruct((256, 256), "float32")
    x = jax.ShapeDtypeStruct((256, 8192), "float32")
    closed = flattened(jax.make_jaxpr(f)(lower, x))
    matrix = 4 * 256 * 8192
    plan = Planner(slice_bytes=matrix / 32, model=ANY_LENGTH).plan(closed, 1.3 * matrix)
    assert plan.predicted <= 1.3 * matrix  # The solution and both masks take 1.5 matrices.
    assert plan.work <= 1.1 * plan.graph.costs.work


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("is_constant", [True, False])
def test_a_constant_mask_is_no_reason_to_share_a_loop(*, is_constant: bool) -> None:
    def f(x: Array, y: Array) -> Array:
        index = jnp.arange(COUNT) if is_constant else jnp.round(x[:, 0])
        mask = index[:, None] >= index
        return jnp.sum(jnp.where(mask, pairs(x), 0.0)) + jnp.sum(jnp.where(mask, pairs(y), 0.0))

    point = jax.ShapeDtypeStruct((COUNT, 3), float)
    closed = flattened(jax.make_jaxpr(f)(point, point))
    room = 5 * COUNT**2
    plan = Planner(slice_bytes=room / 4, model=ANY_LENGTH).plan(closed, room)
    assert len([step for step in plan.steps if isinstance(step, Loop)]) == (2 if is_constant else 1)


def nested(least: float) -> list[Loop]:
    """All loops of a plan, in little room, for the gradient of attention with two heads."""

    def loss(x: Array) -> Array:
        q = x.reshape(256, 2, 16).swapaxes(0, 1)
        for _ in range(2):
            q = jnp.tanh(jax.nn.softmax(q @ q.swapaxes(1, 2)) @ q)
        return jnp.sum(q**2)

    x = jax.ShapeDtypeStruct((256, 32), "float32")
    closed = flattened(jax.make_jaxpr(jax.grad(loss))(x))
    planner = Planner(slice_bytes=16e6, least=least)
    return list(planner.plan(closed, ROOM).all_loops())


ROOM = 30_000.0
"""Bytes: less than one array of 32 kB, while more than one is alive."""


def finest(least: float) -> float:
    """The bytes of the smallest slice."""
    return min(one.transient for one in nested(least) if one.inner is None)


def test_slices_of_loops_in_loops_fill_a_256th_of_the_budget() -> None:
    assert finest(0.0) > ROOM / 256 / 2  # Half of it, because slices have whole indices.


def test_slices_of_loops_in_loops_were_of_8_bytes_without() -> None:
    assert finest(1.0) == 8


def test_a_budget_of_nothing_has_the_smallest_plan() -> None:
    def product(x: Array) -> Array:
        return jnp.tanh(x @ x.T) @ x

    closed = flattened(jax.make_jaxpr(product)(jax.ShapeDtypeStruct((256, 4), jnp.float32)))
    plan = Planner(slice_bytes=16e6).plan(closed, 0.0)
    assert plan.loops


@pytest.mark.parametrize(("is_seen", "along"), [(True, "queries"), (False, "points")])
def test_an_argument_in_another_shape_is_no_value_to_slice(
    monkeypatch: pytest.MonkeyPatch, *, is_seen: bool, along: str
) -> None:
    sizes = {"queries": 64, "points": 20_000}
    if not is_seen:
        monkeypatch.setattr(Graph, "views", {})

    def nearest(queries: Array, points: Array) -> Array:
        closest, _ = jax.lax.top_k(-((queries[:, None] - points[None]) ** 2).sum(-1), 10)
        return closest

    shapes = [jax.ShapeDtypeStruct((size, 16), "float32") for size in sizes.values()]
    closed = flattened(jax.make_jaxpr(nearest)(*shapes))
    plan = Planner(slice_bytes=1e5, model=ANY_LENGTH).plan(closed, 4e5)
    (loop,) = [step for step in plan.steps if isinstance(step, Loop)]
    assert loop.region.size == sizes[along]
