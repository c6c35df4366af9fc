"""Values that loops in a slice keep for its gradient are computed again, if they do not fit."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.extend.core import ClosedJaxpr

from memsafe import BudgetError, explain, memsafe
from memsafe.emit import emitted
from memsafe.graph import Graph
from memsafe.options import DEFAULT_REWRITES, REWRITES, Options
from memsafe.plan import Plan
from memsafe.planner import Planner
from memsafe.preparations import checkpointed_steps, for_slices
from memsafe.programs import evaluate, flattened
from memsafe.rewrites import Rewritten
from tests.memsafe.budgets import assert_same, compiled_bytes, peak_bytes

pytestmark = pytest.mark.usefixtures("doubles")

LAYERS, BATCH, LENGTH, WIDTH = 8, 8, 256, 32


@jax.grad
def gradient(weights: tuple[Array, Array], x: Array) -> Array:
    """Layers as a scan. Because of the means over the sequence, only the batch can be sliced."""

    def layer(x: Array, weights: tuple[Array, Array]) -> tuple[Array, None]:
        up, down = weights
        hidden = jnp.tanh((x - x.mean(1, keepdims=True)) @ up)
        return x + hidden @ down, None

    return jnp.mean(lax.scan(layer, x, weights)[0] ** 2)


def given(batch: int = BATCH) -> tuple[tuple[Array, Array], Array]:
    keys = jax.random.split(jax.random.key(0), 3)
    up = jax.random.normal(keys[0], (LAYERS, WIDTH, 4 * WIDTH)) / 8
    down = jax.random.normal(keys[1], (LAYERS, 4 * WIDTH, WIDTH)) / 16
    return (up, down), jax.random.normal(keys[2], (batch, LENGTH, WIDTH))


def budget(share: float) -> int:
    """Bytes of the arguments, the results, and a share of the rest."""
    own = sum(leaf.nbytes for leaf in jax.tree.leaves((given(), given()[0])))
    return int(own + share * (peak_bytes(gradient, *given()) - own))


def test_a_slice_of_the_batch_computes_its_loop_again(capsys: pytest.CaptureFixture[str]) -> None:
    explain(gradient, budget(1 / 8))(*given())
    told = capsys.readouterr().out
    assert f"loop over {BATCH} in {BATCH} slices of 1" in told
    assert f"{LAYERS} steps of a scan computed once more for its gradient" in told
    compiled = memsafe(gradient, budget(1 / 8)).lower(*given()).compile()
    assert compiled_bytes(compiled) <= budget(1 / 8)
    assert_same(compiled(*given()), gradient(*given()))


def test_slices_alone_keep_more() -> None:
    rewrites = [name for name in DEFAULT_REWRITES if name != "checkpoints"]
    with pytest.raises(BudgetError):
        memsafe(gradient, budget(1 / 8), rewrites=rewrites).lower(*given()).compile()


def step() -> ClosedJaxpr:
    """The gradient of one example."""
    return flattened(jax.make_jaxpr(gradient)(*given(batch=1)))


def plan_of(step: ClosedJaxpr, share: float) -> Plan:
    planner = Planner(slice_bytes=16e6, recompute=checkpointed_steps, least=1.0)
    whole = planner.plan(step, float("inf"))
    return planner.plan_of_step(step, share * whole.predicted, ())


@pytest.mark.parametrize(("share", "is_again"), [(1.0, False), (0.5, True)])
def test_what_is_computed_again_is_work(share: float, *, is_again: bool) -> None:
    plan = plan_of(step(), share)
    assert bool(plan.notes) == is_again
    assert (plan.share_again > 0.1) == is_again


def test_the_work_counts_over_the_step_as_written() -> None:
    plan = plan_of(step(), 0.5)
    assert isinstance(plan.written, Graph)
    more = plan.graph.costs.work / plan.written.costs.work - 1
    assert plan.share_again == pytest.approx(more)


def test_steps_are_rewritten_only_as_far_as_asked() -> None:
    made: list[int] = []

    def recompute(step: ClosedJaxpr) -> Iterator[Any]:
        for each in checkpointed_steps(step):
            made.append(len(made))
            yield each

    written = step()
    planner = Planner(slice_bytes=16e6, recompute=recompute, least=1.0)
    whole = planner.plan(written, float("inf")).predicted
    planner.plan_of_step(written, 0.7 * whole, ())
    planner.plan_of_step(written, 0.7 * whole, ())
    assert made == [0]


def test_a_step_without_loops_in_pairs_is_left() -> None:
    without = flattened(jax.make_jaxpr(jnp.tanh)(1.0))
    assert not list(checkpointed_steps(without))
    assert list(checkpointed_steps(step()))


@pytest.mark.parametrize(("without", "has_pairs"), [("offload", True), ("checkpoints", False)])
def test_loops_stay_in_pairs_only_where_they_can_be_cut(without: str, *, has_pairs: bool) -> None:
    options = Options.checked(None, {"rewrites": [n for n in DEFAULT_REWRITES if n != without]})
    pairs = options.prepared_as_written(step(), "cpu").notes
    assert (pairs in [each.notes for each in for_slices(options, step(), "cpu")]) == has_pairs
    alone = flattened(jax.make_jaxpr(jnp.tanh)(1.0))
    assert len(for_slices(options, alone, "cpu")) == 1


@pytest.mark.parametrize(("room", "tries"), [(1.0, False), (0.99, True)])
def test_a_step_that_fits_is_not_improved_at_length(
    monkeypatch: pytest.MonkeyPatch, room: float, *, tries: bool
) -> None:
    """In an eighth of its memory, this gradient takes 1.8 times its work."""

    @jax.grad
    def gradient(x: Array) -> Array:
        for _ in range(2):
            x = x + jax.nn.softmax(x @ x.T) @ x
        return jnp.sum(x**2)

    written = flattened(jax.make_jaxpr(gradient)(jnp.ones((256, 16))))
    whole = Planner(slice_bytes=1e12).plan(written, float("inf")).predicted
    improved: list[int] = []

    def improve(planner: Planner, _: Any, plan: Plan, *_rest: Any) -> Plan:
        improved.append(planner.depth)  # Steps inside a step have a lower depth, and may not fit.
        return plan

    monkeypatch.setattr(Planner, "_improved", improve)
    planner = Planner(slice_bytes=whole / 64, depth=3)
    plan = planner.plan_of_step(written, room * whole, ())
    assert (planner.depth in improved) == tries
    assert plan.is_as_written != tries
    assert planner.plan(written, whole / 8).work > 1.5 * plan.graph.costs.work


def test_a_rewrite_is_done_once_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    rewritten: list[ClosedJaxpr] = []

    def rewrite(program: ClosedJaxpr) -> Rewritten:
        rewritten.append(program)
        return Rewritten(program=program, notes=())

    monkeypatch.setitem(REWRITES, "online", rewrite)
    options, program, known = Options.checked(None, {}), step(), {}
    first = for_slices(options, program, "cpu", known)
    assert len(rewritten) == len(set(rewritten)) > 1
    before = len(rewritten)
    again = for_slices(options, program, "cpu", known)
    assert len(rewritten) == before
    assert [each.notes for each in again] == [each.notes for each in first]
    for_slices(options, program, "cpu")
    assert len(rewritten) > before


@pytest.mark.parametrize(("slice_bytes", "products"), [(1e12, 2), (2_000, 3)])
def test_a_single_slice_is_the_program_itself_which_no_compiler_merges_with_others(
    slice_bytes: float, products: int
) -> None:
    """Slices compute the kernel by rows and again by columns: three products instead of two."""

    def f(x: Array) -> Array:
        kernel = jnp.exp(-(x @ x.T))
        return (kernel + kernel.T) @ x

    x = jax.random.normal(jax.random.key(0), (32, 8))
    closed = flattened(jax.make_jaxpr(f)(x))
    function = emitted(Planner(slice_bytes=slice_bytes).split_above(closed, 1_000))
    text, is_single = str(jax.make_jaxpr(function)(x)), products == 2
    assert text.count("dot_general") == products
    assert ("optimization_barrier" in text) is is_single
    assert_same(function(x)[0], f(x))
    if is_single:
        assert np.array_equal(function(x)[0], evaluate(closed, [x])[0])
