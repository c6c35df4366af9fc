"""Arguments and results are those of the function: trees, types, static, donated, closed over."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.extend.core import jaxpr_as_fun
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

import memsafe
from memsafe import engine
from memsafe import fit as fitting
from memsafe.options import Options
from memsafe.programs import flattened
from tests.memsafe.budgets import (
    ROOM,
    assert_same,
    energy,
    pairs,
    peak_bytes,
    points,
    product,
    safe,
    turned,
    weights,
)

pytestmark = pytest.mark.usefixtures("doubles")


def moved(x: Array, v: Array) -> Array:
    return x + jnp.tanh(product(x, v))[:, None]


def test_donated_arguments_are_used_up_and_lower_the_peak() -> None:
    wanted = moved(points(), weights())
    given = points()
    assert_same(safe(moved, donate_argnums=0)(given, weights()), wanted)
    assert given.is_deleted()
    given = points()
    assert_same(jax.jit(safe(moved), donate_argnums=0)(given, weights()), wanted)
    assert given.is_deleted()


def test_an_array_that_is_not_donated_stays() -> None:
    given = points()
    other = points() + 1
    safe(lambda x, y: moved(x, weights()) + y, donate_argnums=1)(given, other)
    assert other.is_deleted()
    assert not given.is_deleted()


class Both(NamedTuple):
    x: Any
    v: Any


@jax.tree_util.register_dataclass
@dataclass
class Model:
    x: Any
    nothing: Any = None


def test_trees_go_in_and_come_out() -> None:
    def f(model: Model, both: Both, *, more: dict[str, Any]) -> Any:
        result = product(model.x, both.v)
        return Model(x={"a": result, "none": None}), Both(x=(result.argmax(),), v=more["w"] > 0)

    given = Model(x=points()), Both(x=None, v=weights())
    assert_same(safe(f)(*given, more={"w": weights()}), f(*given, more={"w": weights()}))


def test_static_arguments_are_given_as_they_are() -> None:
    def f(kind: str, x: Array, v: Array, *, times: int = 1, scale: Any = 1.0) -> Array:
        assert isinstance(times, int)
        return scale * {"sin": jnp.sin, "cos": jnp.cos}[kind](product(x, v)).repeat(times)

    within = safe(f, static_argnums=0, static_argnames="times")
    for kind, times in (("sin", 1), ("cos", 1), ("cos", 2)):
        got = within(kind, points(), weights(), times=times, scale=3)
        assert_same(got, f(kind, points(), weights(), times=times, scale=3))
    by_end = safe(lambda x, v, kind: f(kind, x, v), static_argnums=(-1,))
    assert_same(by_end(points(), weights(), "sin"), f("sin", points(), weights()))


def test_what_a_function_closes_over_is_seen_traced_or_not() -> None:
    x, v = points(), weights()

    def outer(scale: Array, wrap: Any) -> Array:
        return wrap(lambda x: energy(x * scale, v))(x)

    for wrap in (safe, lambda f: safe(jax.grad(f))):
        plain = (lambda f: f) if wrap is safe else jax.grad
        assert_same(outer(jnp.float64(2), wrap), outer(jnp.float64(2), plain))
    by_scale = jax.jit(jax.grad(lambda scale: outer(scale, safe)))
    assert_same(by_scale(2.0), jax.grad(lambda scale: outer(scale, lambda f: f))(2.0))


@pytest.mark.parametrize(
    "called",
    [
        jax.jit,
        jax.checkpoint,
        lambda f: jax.jit(lambda x: jax.jit(f)(x) * 2),
        lambda f: jax.jit(lambda x: jax.lax.cond(x[0, 0] > 0, f, lambda x: -f(x), x)),
        lambda f: lambda x: jax.lax.scan(lambda total, _: (total + f(x), None), f(x), None, 2)[0],
    ],
    ids=["jit", "checkpoint", "two-jits", "cond-in-jit", "scan"],
)
def test_a_function_that_is_called_within_keeps_the_arrays_that_it_holds(called: Any) -> None:
    scales, v = np.linspace(0.5, 1.5, points().shape[1]), weights()
    f = called(lambda x: product(x * scales, v) + jnp.asarray(scales).sum())
    assert_same(safe(f)(points()), f(points()))


@pytest.mark.parametrize("double", [False, True])
def test_types_are_those_of_the_function(double: bool) -> None:  # noqa: FBT001 - a parameter
    def f(x: Array, number: Any, flag: Any) -> Any:
        grown = pairs(x * number) @ x[:, 0]
        return grown, number * 2, jnp.where(flag, grown, 1), x.astype(jnp.int8).sum(0), number

    with jax.enable_x64(new_val=double):
        x = jnp.asarray(np.asarray(points(512)), jnp.float32)
        wanted = jax.jit(f)(x, 3.0, np.True_)
        assert_same(memsafe.memsafe(f, 300_000)(x, 3.0, np.True_), wanted, 1e-5)
        assert_same(jax.jit(memsafe.memsafe(f, 300_000))(x, 3.0, np.True_), wanted, 1e-5)
        assert peak_bytes(f, x, 3.0, np.True_) > 600_000


def test_a_setting_that_jax_traces_by_is_that_of_each_call() -> None:
    traced = 0

    def f(x: Array) -> Array:
        nonlocal traced
        traced += 1
        return pairs(x) @ x

    x, within = points(), safe(f)
    for precision in ("default", "highest", "default", "highest"):
        with jax.default_matmul_precision(precision):
            within(x)
            assert ("HIGHEST" in within.lower(x).as_text()) is (precision == "highest")
    assert traced == 2  # A setting that was seen is not traced again.


def middle(x: Array) -> Array:
    """A median; a plan finds it in several passes, which broadcast."""
    return jnp.median(jnp.sum((x[:, None, :] - x[None]) ** 2, -1))


def test_the_control_a_plan_broadcasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "undisturbed", nullcontext)
    with jax.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="rank_promotion"):
        memsafe.memsafe(middle, 300_000)(points(512))


def test_ranks_are_checked_in_the_function_and_not_in_its_plan() -> None:
    x, wanted = points(512), middle(points(512))
    with jax.numpy_rank_promotion("raise"):
        assert_same(memsafe.memsafe(middle, 300_000)(x), wanted)
        with pytest.raises(ValueError, match="rank_promotion"):
            memsafe.memsafe(lambda x: middle(x) + (x + x[0]).sum(), 300_000)(x)


def test_a_python_number_and_an_array_of_its_type_are_told_apart() -> None:
    within = safe(lambda x, number: (pairs(x).sum(0) * number, x.astype(jnp.float32) * number))
    x = points()
    assert within(x, 2.0)[1].dtype == jnp.float32
    assert within(x, jnp.float64(2.0))[1].dtype == jnp.float64
    assert within(x, 2)[1].dtype == jnp.float32


def test_an_argument_that_is_no_array_is_refused_with_advice() -> None:
    with pytest.raises(
        TypeError, match=r"got str in argument 1; wanted arrays; do this.*argnums=1"
    ):
        safe(lambda x, _: x)(points(), "a word")
    with pytest.raises(TypeError, match="static_argnames='kind'"):
        safe(lambda x, kind: x if kind else -x)(points(), kind="a word")


def test_numbers_of_numpy_are_numbers() -> None:
    asked = memsafe.memsafe(energy, np.int64(10**5), max_slowdown=np.float32(3))
    assert asked._calls.options == memsafe.memsafe(energy, 10**5, max_slowdown=3)._calls.options


@pytest.mark.parametrize(
    ("options", "match"),
    [
        *(({"budget": size}, "budget=") for size in ("much", "12 potatoes", "", "-1MB", "1e400")),
        *(({"budget": size}, "budget=") for size in (0, -1, np.nan, np.inf, True, [], b"16GB")),
        ({"rewrites": "magic"}, r"rewrites=\('magic',\)"),
        ({"rewrites": ("chains", "magic")}, "rewrites=.*magic"),
        ({"rewrites": None}, "rewrites=None"),
        ({"rewrites": [["chains"]]}, "rewrites="),
        *(({"max_slowdown": most}, "max_slowdown=") for most in (0.9, -1, np.nan, "2", True, None)),
        ({"max_slowdown": np.float32(0.5)}, "max_slowdown="),
        ({"max_slowdown": np.bool_(1)}, "max_slowdown="),
        ({"tensor_split_size": "-1"}, "tensor_split_size='-1'"),
        ({"donate_argnums": 2}, "donate_argnums=2"),
        ({"donate_argnums": (0, -3)}, "donate_argnums=-3"),
        ({"donate_argnums": "x"}, "donate_argnums='x'"),
        ({"donate_argnums": 0.5}, "donate_argnums=0.5"),
        ({"static_argnums": 2}, "static_argnums=2"),
        ({"static_argnames": "kind"}, "static_argnames='kind'"),
        ({"static_argnames": 0}, "static_argnames=0"),
        ({"static_argnums": 0, "donate_argnums": 0}, "donate_argnums=0"),
        ({"static_argnames": "x", "donate_argnums": -2}, "donate_argnums=0"),
        ({"device": "cpu"}, "device='cpu'"),
        ({"device": [0]}, "device="),
    ],
    ids=str,
)
def test_a_wish_that_makes_no_sense_is_refused_at_once(options: Any, match: str) -> None:
    for transform in (memsafe.memsafe, memsafe.explain):
        with pytest.raises((ValueError, TypeError), match=f"got {match}.*; wanted .*; do this: "):
            transform(energy, **{"budget": 10_000, **options})


def test_what_is_no_function_is_refused_at_once() -> None:
    for transform in (memsafe.memsafe, memsafe.explain):
        with pytest.raises(TypeError, match="got 3; wanted a function; do this"):
            transform(3, ROOM)  # type: ignore[arg-type]


@pytest.mark.parametrize("budget", [np.int64(ROOM), np.float32(ROOM), "0.2 MB", "200kB", 2e5])
def test_a_budget_in_any_writing_is_kept(budget: Any) -> None:
    within = memsafe.memsafe(turned, budget)
    assert peak_bytes(turned, points()) > ROOM >= peak_bytes(within, points())


def test_one_rewrite_may_be_named_alone() -> None:
    alone = safe(energy, rewrites="chains")
    assert_same(alone(points(), weights()), energy(points(), weights()))
    assert Options.checked(ROOM, {"rewrites": "chains"}).rewrites == ("chains",)


@pytest.mark.parametrize("value", [[1], {"a": 1}, np.ones(3), jnp.ones(3)], ids=str)
def test_a_static_argument_that_cannot_be_hashed_is_refused_as_by_jit(value: Any) -> None:
    for transform in (jax.jit, safe):
        by_place: Any = transform(lambda kind, x: x if kind else -x, static_argnums=0)
        by_name: Any = transform(lambda x, kind: x if kind else -x, static_argnames="kind")
        for call in (lambda f=by_place: f(value, 1.0), lambda f=by_name: f(1.0, kind=value)):
            with pytest.raises(ValueError, match="Non-hashable static arguments"):
                call()


@pytest.mark.parametrize("value", [[1], np.ones(3)], ids=str)
def test_explain_refuses_a_static_argument_that_cannot_be_hashed(value: Any) -> None:
    kind = type(value).__name__
    with pytest.raises(TypeError, match=f"got {kind} in static argument 0; wanted .*; do this: "):
        memsafe.explain(lambda kind, x: x * len(kind), ROOM, static_argnums=0)(value, points())


def test_equal_static_arguments_of_other_types_are_told_apart() -> None:
    within = safe(lambda kind, x: x * len(type(kind).__name__), static_argnums=0)
    for kind in (1, 1.0, True):
        assert_same(within(kind, weights()), weights() * len(type(kind).__name__))


def test_static_arguments_may_be_given_by_position_or_by_name() -> None:
    def f(x: Array, kind: str = "sin") -> Array:
        return {"sin": jnp.sin, "cos": jnp.cos}[kind](x)

    for options in ({"static_argnums": 1}, {"static_argnums": -1}, {"static_argnames": "kind"}):
        within = safe(f, **options)
        assert_same(within(weights(), "cos"), jnp.cos(weights()))
        assert_same(within(weights(), kind="cos"), jnp.cos(weights()))
        assert_same(within(weights()), jnp.sin(weights()))


@pytest.mark.parametrize("at", [0, -2])
def test_donated_positions_count_from_the_end_too_and_hold_by_name(at: int) -> None:
    for by_name in (False, True):
        x, v = points(), weights()
        within = safe(moved, donate_argnums=at)
        within(x=x, v=v) if by_name else within(x, v)
        assert x.is_deleted()
        assert not v.is_deleted()


def test_a_second_call_neither_traces_nor_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    traces, compiled = [], []
    measured = fitting.measured
    monkeypatch.setattr(
        fitting, "measured", lambda *a, **k: [compiled.append(1), measured(*a, **k)][1]
    )

    def f(x: Array, v: Array) -> Array:
        traces.append(1)
        return energy(x, v)

    within = safe(f)
    within(points(), weights())
    first = len(traces), len(compiled)
    assert first[0] == 1
    assert first[1] >= 2
    within(points() + 1, weights())
    assert (len(traces), len(compiled)) == first
    jitted = jax.jit(within)
    jitted(points(), weights())
    then = len(traces), len(compiled)
    jitted(points(), weights())
    assert (len(traces), len(compiled)) == then
    within(points(64), weights(64))
    assert len(traces) > then[0]


def test_a_second_call_reads_no_program_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    signature = engine.signature
    monkeypatch.setattr(engine, "signature", lambda p: [read.append(1), signature(p)][1])
    within = safe(energy)
    within(points(), weights())
    assert len(read) == 1
    within(points() + 1, weights())
    assert len(read) == 1


def test_a_function_without_arguments_or_without_results_is_one() -> None:
    assert_same(safe(lambda: jnp.ones(3))(), jnp.ones(3))
    assert safe(lambda: None)() is None
    assert safe(lambda _: None)(points()) is None
    assert_same(safe(lambda x: (None, x, {}))(weights()), (None, weights(), {}))


def test_numbers_that_a_function_returns_become_arrays_as_in_jit() -> None:
    def f(x: Array) -> Any:
        return 3, 2.5, True, np.ones(2), x

    assert_same(safe(f)(weights()), jax.jit(f)(weights()))


def test_a_result_that_is_no_array_is_refused_with_advice() -> None:
    for result in ("a word", object(), {"a": "word"}):
        with pytest.raises(TypeError, match=r"got (str|object) in a result; wanted .*; do this"):
            safe(lambda x, result=result: (x, result))(points())


def test_large_constants_are_told_apart_in_their_middle() -> None:
    tables = np.zeros((2, 5000))
    tables[1, 2500] = 1
    safe = memsafe.memsafe(lambda x, at: x + tables[at], "1GB", static_argnums=1)
    option = "jax_use_simplified_jaxpr_constants"
    settings: Any = jax.config
    before = settings.jax_use_simplified_jaxpr_constants
    jax.config.update(option, not before)
    try:
        sums = [float(jnp.sum(safe(jnp.zeros(5000), at))) for at in range(2)]
    finally:
        jax.config.update(option, before)
    assert sums == [0, 1]


def test_keyword_arguments_come_in_the_order_of_jit() -> None:
    def f(**given: Array) -> Array:
        return jnp.stack(list(given.values()))

    safe, jitted = memsafe.memsafe(f, "1GB"), jax.jit(f)
    for given in ({"b": 1.0, "a": 2.0}, {"a": 2.0, "b": 1.0}):
        assert_same(safe(**given), jitted(**given))


def test_what_is_written_into_a_constant_later_is_not_seen_as_in_jit() -> None:
    table = np.arange(4.0)
    safe = memsafe.memsafe(lambda x: x + table, "1GB")
    for _ in range(2):
        assert_same(safe(jnp.zeros(4)), jnp.arange(4.0))
        table[:] = 100


def test_draws_are_those_of_the_setting_that_they_were_traced_by() -> None:
    def f(key: Array) -> Array:
        with jax.threefry_partitionable(False):  # noqa: FBT003 — jax has no other way.
            return jax.random.normal(key, (50, 11)).sum(0)

    key = jax.random.key(0)
    assert_same(jax.jit(flat(f, key))(key)[0], jax.jit(f)(key))

    def g(key: Array) -> Array:
        return jax.random.normal(key, (5,))

    safe, jitted = memsafe.memsafe(g, "1GB"), jax.jit(g)
    for setting in (True, False, True):
        with jax.threefry_partitionable(setting):
            assert_same(safe(key), jitted(key))


def flat(function: Any, *arguments: Any) -> Any:
    return jaxpr_as_fun(flattened(jax.make_jaxpr(function)(*arguments)))


@pytest.mark.parametrize(
    "sharding",
    [
        NamedSharding(Mesh(np.array(jax.devices()[:1]), ("a",)), PartitionSpec("a")),
        SingleDeviceSharding(jax.devices()[0], memory_kind="unpinned_host"),
    ],
    ids=["a mesh of one device", "another memory"],
)
def test_arguments_on_one_device_may_say_more_of_where_they_lie(sharding: Sharding) -> None:
    x = jax.device_put(points(), sharding)
    for within in (memsafe.memsafe(turned, "1GB"), safe(turned)):
        got, wanted = within(x), jax.jit(turned)(x)
        assert got.sharding == wanted.sharding
        assert_same(got, wanted)


def test_what_a_function_raises_comes_out_each_time() -> None:
    def f(x: Array) -> Array:
        raise KeyError(x.shape)

    within = safe(f)
    for _ in range(2):
        with pytest.raises(KeyError, match="256, 3"):
            within(points())


def test_a_function_says_what_it_says_once_a_trace_and_prints_once_a_call(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def f(x: Array, v: Array) -> Array:
        print("traced")
        jax.debug.print("ran with {}", v.size)
        return energy(x, v)

    within = memsafe.memsafe(f, 2 * peak_bytes(energy, points(), weights()))
    for _ in range(3):
        assert_same(within(points(), weights()), energy(points(), weights()))
    jax.effects_barrier()
    assert capfd.readouterr().out.split("\n") == ["traced", *["ran with 256"] * 3, ""]


@pytest.mark.parametrize("name", ["d", "data"])
def test_an_axis_that_is_mapped_may_have_any_name(name: str) -> None:
    mesh, rows = Mesh(np.array(jax.devices()[:1]), (name,)), PartitionSpec(name)
    within = jax.shard_map(
        safe(lambda x: pairs(x).sum(1)), mesh=mesh, in_specs=rows, out_specs=rows
    )
    assert_same(within(points()), pairs(points()).sum(1))
