"""Which plans are tried first, and which are not tried, if a program does not fit."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import pytest
from jax import Array

from memsafe import BudgetError, explain, fit, memsafe, search
from memsafe.compiled_plan import Fit
from memsafe.device_model import CPU, DeviceModel
from memsafe.measure import Measured
from memsafe.planner import Planner
from memsafe.prospects import TOO_FAR, Prospects
from memsafe.recomputation import Recomputation
from memsafe.rewrites import Rewritten
from tests.exhaustive import nightly
from tests.memsafe.budgets import assert_same, assume, balanced, peak_bytes, points

pytestmark = pytest.mark.usefixtures("doubles")

WIDTH, LAYERS, BATCH = 16, 8, 2**16


@jax.grad
def gradient(weights: list[Array], x: Array) -> Array:
    """Gradient of layers, which slices of the batch compute without recomputation."""
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return jnp.mean(x**2)


def given() -> tuple[list[Array], Array]:
    keys = jax.random.split(jax.random.key(0), LAYERS + 1)
    return [jax.random.normal(key, (WIDTH, WIDTH)) for key in keys[1:]], jax.random.normal(
        keys[0], (BATCH, WIDTH)
    )


def test_a_long_program_is_sliced_where_that_takes_less_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(search, "LONG", 1)
    explain(gradient, int(0.9 * peak_bytes(gradient, *given())))(*given())
    assert "computed again, in" not in capsys.readouterr().out


@pytest.mark.parametrize(("element", "is_whole"), [(0.5, False), (8.0, True)])
def test_whole_values_come_first_where_slices_are_slower(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    element: float,
    *,
    is_whole: bool,
) -> None:
    assume(monkeypatch, cached=element)
    explain(gradient, int(0.9 * peak_bytes(gradient, *given())))(*given())
    assert ("computed again, in" in capsys.readouterr().out) == is_whole


@jax.grad
def in_steps(weight: Array, x: Array) -> Array:
    """Gradient of a scan. Each slice of the batch runs all steps."""
    return jnp.mean(jax.lax.scan(lambda x, _: (jnp.tanh(x @ weight), None), x, length=64)[0] ** 2)


@pytest.mark.parametrize(("step_s", "is_whole"), [(CPU.step_s, True), (0.0, False)])
def test_each_step_of_a_scan_in_slices_takes_time(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    step_s: float,
    *,
    is_whole: bool,
) -> None:
    assume(monkeypatch, step_s=step_s)
    weights, _ = given()
    arguments = weights[0], jnp.ones((2**12, WIDTH))
    explain(in_steps, int(0.3 * peak_bytes(in_steps, *arguments)))(*arguments)
    assert ("computed once more" in capsys.readouterr().out) == is_whole


def compilations(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """Number of compilations until a program fits or is refused."""
    count = 0
    measured = fit.measured

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        return measured(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(fit, "measured", counted)
        with suppress(BudgetError):
            call()
    return count


@pytest.mark.parametrize(("close", "is_one"), [(search.CLOSE, True), (1e6, False)])
def test_what_should_not_fit_is_compiled_once(
    monkeypatch: pytest.MonkeyPatch, close: float, *, is_one: bool
) -> None:
    monkeypatch.setattr(search, "CLOSE", close)
    within = memsafe(jax.grad(balanced), 20_000, max_slowdown=1e6)
    as_written = 1
    plans = compilations(lambda: within(points()), monkeypatch) - as_written
    assert (plans == 1) == is_one


def test_a_plan_far_too_slow_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(times: float) -> int:
        monkeypatch.setattr(search, "FAR", times)
        within = memsafe(jax.grad(balanced), 100_000, max_slowdown=1.0)
        return compilations(lambda: within(points()), monkeypatch)

    assert compiled(0.5) < compiled(1e6)


def test_a_long_program_is_refused_after_fewer_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(long: int) -> int:
        monkeypatch.setattr(search, "LONG", long)
        within = memsafe(jax.grad(balanced), 25_000, max_slowdown=1e6)
        return compilations(lambda: within(points()), monkeypatch)

    assert compiled(1) < compiled(10**6)


@pytest.mark.parametrize(("far", "is_told"), [(TOO_FAR, True), (0.0, False)])
def test_of_a_long_programs_slow_plan_the_time_is_told(
    far: float, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    monkeypatch.setattr(search, "LONG", 1)
    monkeypatch.setattr(search, "TOO_FAR", far)
    with pytest.raises(BudgetError) as refusal:
        memsafe(jax.grad(balanced), 50_000, max_slowdown=1.0)(points())
    assert (refusal.value.slowdown is not None) == is_told


def fit_of(predicted: float, needed: float, libraries: int = 0) -> search.Fit:
    """A substitute for a compiled plan without arguments, in which results take 100 bytes."""
    result = Measured(
        nbytes=needed + libraries,
        argument_bytes=0,
        temp_bytes=0,
        lowered=None,
        library_bytes=libraries,
    )
    return cast("Any", SimpleNamespace(plan=SimpleNamespace(predicted=predicted), result=result))


PROSPECTS = Prospects(room=100.0, results=100.0, arguments=0.0)


@pytest.mark.parametrize(
    ("predicted", "before", "is_far"),
    [
        (180.0, fit_of(200.0, 300.0), True),
        (160.0, fit_of(200.0, 300.0), False),
        (180.0, fit_of(200.0, 200.0), False),
        (180.0, fit_of(200.0, 200.0, libraries=100), False),
    ],
)
def test_a_plan_is_far_if_it_needs_too_much_as_the_last_did(
    predicted: float, before: search.Fit, *, is_far: bool
) -> None:
    assert PROSPECTS.is_far(fit_of(predicted, 0).plan, before) == is_far


@pytest.mark.parametrize(
    ("predicted", "before", "is_repeated"),
    [
        (196.0, fit_of(200.0, 220.0), True),
        (190.0, fit_of(200.0, 220.0), False),
        (196.0, fit_of(200.0, 210.0), False),
        (196.0, fit_of(200.0, 200.0, libraries=20), True),
    ],
)
def test_a_plan_no_smaller_is_tried_only_near_the_budget(
    predicted: float, before: search.Fit, *, is_repeated: bool
) -> None:
    assert PROSPECTS.is_repeated(fit_of(predicted, 0).plan, before) == is_repeated


def test_of_programs_that_should_fit_the_quickest_is_sliced_first() -> None:
    plans = [SimpleNamespace(predicted=p, elapsed=e) for p, e in ((9, 1), (4, 3), (5, 2), (8, 0))]
    assert search._quickest(cast("Any", plans), 5.0) == [2, 1, 0, 3]


def test_the_next_target_is_what_should_fill_the_room() -> None:
    assert PROSPECTS.nearer(200.0, fit_of(200.0, 300.0)) == pytest.approx(150.0)


def tried(*ways: Rewritten, libraries: int = 0, elapsed: Sequence[float] = (1.0, 1.0)) -> int:
    """Number of `ways` compiled, if each is predicted to need 1 byte of 5, and needs 10."""
    wrong = Measured(
        nbytes=10.0,
        argument_bytes=0,
        temp_bytes=10.0,
        lowered=None,
        library_bytes=libraries,
    )
    plans = iter([SimpleNamespace(predicted=1.0, elapsed=each, work=1.0) for each in elapsed])
    planner = SimpleNamespace(plan=lambda *_: next(plans))
    plain = SimpleNamespace(argument_bytes=0)
    again = Recomputation(
        search=cast("Any", SimpleNamespace(planner=planner, parts=(), budget=5, plain=plain)),
        programs=iter(ways),
        target=5.0,
        scale=1.0,
    )
    found = []
    for attempt in again.whole(float("inf")):
        again.compiled.append(cast("Any", SimpleNamespace(result=wrong)))
        found.append(attempt)
    return len(found)


SINE, COSINE = (
    Rewritten(program=jax.make_jaxpr(function)(1.0), notes=()) for function in (jnp.sin, jnp.cos)
)


@pytest.mark.parametrize(("is_told_apart", "count"), [(True, 2), (False, 1)])
def test_what_keeps_products_corrects_no_other_prediction(
    *, is_told_apart: bool, count: int
) -> None:
    assert tried(replace(SINE, products=is_told_apart), COSINE) == count


@pytest.mark.parametrize(("elapsed", "count"), [((1.0, 1.0), 1), ((1.0, 2.0), 2)])
def test_of_ways_predicted_alike_one_is_compiled(elapsed: tuple[float, ...], count: int) -> None:
    assert tried(SINE, COSINE, libraries=9, elapsed=elapsed) == count


def test_no_plan_is_compiled_twice() -> None:
    compiled: list[Fit] = []
    measured: list[Any] = []
    planner = Planner(slice_bytes=1e6)
    looked = search.Search(
        budget=5,
        most=2.0,
        written=cast("Any", None),
        plain=cast("Any", None),
        planner=planner,
        parts=(),
        measure=lambda program, **_: measured.append(program) or len(measured),
        deepest=(),
        runs=False,
    )
    plans = [planner.plan(each.program, nbytes) for each in (SINE, COSINE) for nbytes in (9e9, 1e9)]
    found = [looked._compiled(SINE, plan, compiled) for plan in (*plans, plans[0])]
    assert [fit.result for fit in found] == [1, 1, 2, 2, 1]
    assert compiled == [found[2], found[0]]  # The plan asked for last comes last.


COUNT = 1024

UNFUSED: dict[str, Callable[[Array], Array]] = {
    "sines": lambda x: jnp.sin(x[:, None] * x).sum(),
    "losses": lambda x: jax.nn.softplus(x[:, None] - x).mean(),
    "a count": lambda x: (x[:, None] > x).sum(),
    "a maximum": lambda x: jnp.where(x[:, None] > x, x[:, None] * x, 0.0).max(),
    "rows of two": lambda x: jnp.sin(jnp.stack([x, 2 * x])[:, :, None] * x).sum(2),
}
"""Pairs that XLA for CPUs stores, because the library that reduces them does not compute them."""


@pytest.mark.parametrize("function", UNFUSED.values(), ids=UNFUSED)
def test_pointwise_values_that_a_compiler_does_not_fuse_are_sliced(
    function: Callable[[Array], Array],
) -> None:
    x = jnp.linspace(0.0, 2.0, COUNT)
    budget = COUNT**2 // 8
    assert peak_bytes(function, x) > COUNT**2
    within = memsafe(function, budget)
    assert peak_bytes(within, x) <= budget
    assert_same(within(x), function(x))


def test_the_control_as_if_it_were_fused_no_plan_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def unchanged(model: DeviceModel, **others: Any) -> DeviceModel:
        return replace(model, **{**others, "fuses": True})

    monkeypatch.setattr(
        search, "replace", lambda one, **new: (unchanged if "fuses" in new else replace)(one, **new)
    )
    with pytest.raises(BudgetError):
        memsafe(UNFUSED["sines"], COUNT**2 // 8)(jnp.linspace(0.0, 2.0, COUNT))


@jax.grad
def transported(x: Array, y: Array) -> Array:
    """Gradient of the cost of transport between points, after five steps of Sinkhorn."""
    costs = jnp.sum((x[:, None] - y[None]) ** 2, -1)

    def step(carried: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        f = -jax.nn.logsumexp(carried[1][None] - costs, 1)
        return (f, -jax.nn.logsumexp(f[:, None] - costs, 0)), None

    start = jnp.zeros(len(x)), jnp.zeros(len(y))
    (f, g), _ = jax.lax.scan(step, start, None, length=5)
    return f.mean() + g.mean()


@pytest.mark.parametrize("share", [1 / 2, nightly(1 / 3), nightly(1 / 4)])
def test_what_fits_a_smaller_budget_is_found_for_a_larger_one(share: float) -> None:
    """On a CPU, libraries hold most of its memory, and no prediction includes that."""
    with jax.enable_x64(new_val=False):
        given = jnp.float32(points(200)), jnp.float32(points(216))
        floor = sum(each.nbytes for each in given)
        budget = int(floor + share * (peak_bytes(transported, *given) - floor))
        assert_same(memsafe(transported, budget)(*given), transported(*given), 1e-5)
