"""A memsafe function is dispatched, lowered and traced like a function of `jax.jit`."""

import contextlib
import copy
import functools
import gc
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import memsafe
from memsafe import BudgetError, budget, engine, function
from tests.memsafe.budgets import ROOM, assert_same, energy, peak_bytes, points, safe, weights

pytestmark = pytest.mark.usefixtures("doubles")


@pytest.fixture
def python_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each call that memsafe's own Python sees."""
    calls: list[int] = []
    flattened = function.flattened_call
    monkeypatch.setattr(function, "flattened_call", lambda *a: [calls.append(1), flattened(*a)][1])
    return calls


class Both(NamedTuple):
    x: Any
    v: Any


def keywords(x: Array, *, v: Array, a: Array) -> Array:
    return energy(x, v) + a


def test_a_second_call_runs_no_python_of_memsafe(python_calls: list[int]) -> None:
    x, v = points(), weights()
    both = safe(lambda both, scale: {"of": energy(*both) * scale, "none": None})
    named = safe(keywords)
    static = safe(lambda x, v, how: getattr(jnp, how)(energy(x, v)), static_argnums=2)
    closed = safe(lambda x: energy(x, v))
    calls: list[Callable[[Array], Any]] = [
        lambda x: both(Both(x, v), 2.0),
        lambda x: named(x, v=v, a=np.float64(3)),
        lambda x: named(x, a=np.float64(3), v=v),
        lambda x: static(x, v, "sin"),
        closed,
    ]
    for call in calls:
        call(x)
    python_calls.clear()
    for call in calls:
        call(x + 1)
    assert python_calls == []
    assert_same(calls[0](x + 1), {"of": energy(x + 1, v) * 2.0, "none": None})
    assert_same(calls[1](x + 1), keywords(x + 1, v=v, a=jnp.float64(3)))
    assert_same(calls[2](x + 1), keywords(x + 1, v=v, a=jnp.float64(3)))
    assert_same(calls[3](x + 1), jnp.sin(energy(x + 1, v)))
    assert_same(calls[4](x + 1), energy(x + 1, v))


def test_another_kind_of_call_is_seen_by_python(python_calls: list[int]) -> None:
    within = safe(lambda x, v, how="sin": getattr(jnp, how)(energy(x, v)), static_argnames="how")
    x, v = points(64), weights(64)
    within(x, v)
    others: list[Callable[[], Any]] = [
        lambda: within(x[:32], v[:32]),
        lambda: within(x.astype(jnp.float32), v),
        lambda: within(x, v, "cos"),
        lambda: within(x, v=v),
        lambda: jax.grad(within)(x, v),
        lambda: jax.jit(within)(x, v),
    ]
    for at, call in enumerate(others):
        python_calls.clear()
        call()
        assert python_calls, at


def test_a_donated_argument_is_used_up_each_time() -> None:
    within = safe(lambda x, v: x + energy(x, v), donate_argnums=0)
    for _ in range(3):
        given = points()
        assert_same(within(given, weights()), points() + energy(points(), weights()))
        assert given.is_deleted()


def test_with_options_alone_it_is_a_decorator() -> None:
    @memsafe.memsafe(budget=ROOM, donate_argnums=0)
    def moved(x: Array, v: Array) -> Array:
        return x + energy(x, v)

    x = points()
    assert_same(moved(x, weights()), points() + energy(points(), weights()))
    assert x.is_deleted()
    assert moved.lower(points(), weights()).compile().memory_analysis().temp_size_in_bytes < ROOM


@pytest.mark.parametrize("options", [{"budget": "much"}, {"rewrites": ("none",)}])
def test_a_decorator_with_wrong_options_says_so(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="wanted"):
        memsafe.memsafe(**options)(energy)


def test_a_decorator_is_called_with_a_function() -> None:
    with pytest.raises(TypeError, match="wanted a function; do this"):
        memsafe.memsafe(budget=ROOM)(points())  # type: ignore[arg-type]


def seconds_of(call: Callable[[], Any], count: int = 200) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begun) / count


@pytest.mark.exhaustive
def test_a_call_takes_at_most_1_3_times_that_of_jit() -> None:
    def f(tree: dict[str, Array]) -> Array:
        return tree["a"] + tree["b"]

    tree = {"a": jnp.ones(8), "b": jnp.ones(8)}
    within, plain = memsafe.memsafe(f, "1MB"), jax.jit(f)
    calls = [lambda: within(tree), lambda: plain(tree)]
    for call in calls:
        call()
    # Many short rounds, so that other work on the machine does not slow all of them.
    rounds = [[seconds_of(call) for call in calls] for _ in range(150)]
    ours, jits = (min(each) for each in zip(*rounds, strict=True))
    assert ours <= 1.3 * jits


def test_it_is_lowered_and_compiled_ahead_of_time() -> None:
    x, v = points(), weights()
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in (x, v)]
    for within, arguments in ((safe(energy), (x, v)), (safe(jax.jit(energy)), shapes)):
        compiled = within.lower(*arguments).compile()
        assert_same(compiled(x, v), energy(x, v))
        taken = compiled.memory_analysis()
        assert taken.temp_size_in_bytes + taken.argument_size_in_bytes <= ROOM
    plain = jax.jit(energy).lower(*shapes).compile().memory_analysis()
    assert plain.temp_size_in_bytes > ROOM


def test_it_is_traced_ahead_of_time() -> None:
    x, v = points(), weights()
    within = safe(lambda x, v, how: getattr(jnp, how)(energy(x, v)), static_argnums=2)
    traced = within.trace(x, v, "sin")
    assert traced.out_info.shape == ()
    assert "memsafe" in {each.primitive.name for each in traced.jaxpr.eqns}
    assert_same(traced.lower().compile()(x, v), jnp.sin(energy(x, v)))
    assert within.eval_shape(x, v, "cos").shape == ()


def test_as_an_attribute_of_a_class_it_is_a_method() -> None:
    class Model:
        scale = 2.0

        total = safe(lambda self, x: energy(x, weights()) * self.scale, static_argnums=0)

    assert_same(Model().total(points()), 2 * energy(points(), weights()))


def test_a_wrapper_of_it_is_lowered_as_itself() -> None:
    within = safe(energy)

    @functools.wraps(within)
    def doubled(x: Array, v: Array) -> Array:
        return 2 * within(x, v)

    compiled = jax.jit(doubled).lower(points(), weights()).compile()
    assert_same(compiled(points(), weights()), 2 * energy(points(), weights()))


def test_a_model_that_holds_it_can_be_copied() -> None:
    within = safe(energy)
    model = copy.deepcopy({"loss": within, "x": points()})
    assert_same(model["loss"](model["x"], weights()), energy(points(), weights()))


def test_a_copy_of_it_alone_is_itself() -> None:
    within = safe(energy)
    assert copy.copy(within) is copy.deepcopy(within) is within


@pytest.mark.parametrize("way", [pickle, cloudpickle])
def test_it_is_pickled_without_its_plans(way: Any) -> None:
    x, v = points(), weights()
    within, small = safe(energy), memsafe.memsafe(energy, 9_000)
    wanted = within(x, v)
    loaded, refusing = way.loads(way.dumps((within, small)))
    assert within._calls.engine.fits
    assert not loaded._calls.engine.fits
    assert_same(loaded(x, v), wanted)
    assert peak_bytes(loaded, x, v) <= ROOM < peak_bytes(energy, x, v)
    with pytest.raises(BudgetError):
        refusing(x, v)


REPOSITORY = Path(__file__).parents[2]
"""Folder from which Python finds the modules of these tests."""

_LOADED = """
import pathlib, sys
import cloudpickle, jax
jax.config.update("jax_enable_x64", True)
function, arguments = cloudpickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
assert "while" in function.lower(*arguments, power=2).as_text(), "no loop over slices"
print(function.__name__, float(function(*arguments, power=2)))
"""


def test_another_process_computes_in_slices_what_it_loads(tmp_path: Path) -> None:
    @memsafe.memsafe(budget=ROOM, static_argnames="power")
    def raised(x: Array, v: Array, *, power: int) -> Array:
        return energy(x, v) ** power

    x, v = points(), weights()
    pickled = tmp_path / "function.pickle"
    pickled.write_bytes(cloudpickle.dumps((raised, (np.asarray(x), np.asarray(v)))))
    command = [sys.executable, "-c", _LOADED, str(pickled)]
    printed = subprocess.run(
        command, cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout
    name, value = printed.split()
    assert name == "raised"
    np.testing.assert_allclose(float(value), energy(x, v) ** 2, rtol=1e-9)


def test_without_jit_the_program_runs_as_written() -> None:
    x, v = points(), weights()
    with jax.disable_jit():
        assert_same(safe(energy)(x, v), energy(x, v))
        assert_same(jax.grad(safe(energy))(x, v), jax.grad(energy)(x, v))


def test_it_can_be_exported() -> None:
    x, v = points(), weights()
    exported = jax.export.export(safe(energy))(x, v)
    assert_same(exported.call(x, v), energy(x, v))


def test_lowering_what_fits_no_budget_raises() -> None:
    within = memsafe.memsafe(energy, 9_000)
    with pytest.raises(BudgetError):
        within.lower(points(), weights())


def test_the_garbage_collector_is_off_while_a_program_is_planned_and_on_again_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traced: list[bool] = []

    def watched(x: Array, v: Array) -> Array:
        traced.append(gc.isenabled())
        return energy(x, v)

    def planned(*_: Any, **__: Any) -> None:
        traced.append(gc.isenabled())
        raise RuntimeError

    within = memsafe.memsafe(watched, 9_000)
    monkeypatch.setattr(engine, "fitted", planned)
    with pytest.raises(RuntimeError):
        within(points(), weights())
    assert traced == [True, False]
    assert gc.isenabled()


@pytest.mark.exhaustive
def test_no_tracer_leaks() -> None:
    x, v = points(64), weights(64)
    transforms: list[Callable[[Any], Callable[..., Any]]] = [
        lambda f: f,
        jax.jit,
        jax.grad,
        lambda f: lambda x, v: jax.jacfwd(lambda s: f(s * x, v))(1.0),
        lambda f: lambda x, v: jax.vmap(f, (None, 0))(x, jnp.stack([v, v])),
        lambda f: lambda x, v: jax.lax.scan(lambda c, _: (c + f(x, v), None), 0.0, None, 2)[0],
    ]
    with jax.checking_leaks():
        for transform in transforms:
            transform(memsafe.memsafe(energy, 300_000))(x, v)


@pytest.mark.exhaustive
def test_no_tracer_leaks_between_a_maximum_and_its_sum() -> None:
    def loss(x: Array) -> Array:
        return jnp.sum(jax.nn.softmax(x @ x.T) @ x)

    x, step = jnp.ones((256, 4)), jax.grad(loss)
    with jax.checking_leaks():
        memsafe.memsafe(step, peak_bytes(step, x) // 2)(x)


@jax.grad
def in_steps(x: Array) -> Array:
    """Gradient of a scan, recomputed in segments that hold values while they are traced."""
    wide = jnp.tile(x, (1, 100))
    return jnp.sum(jax.lax.scan(lambda c, _: (jnp.tanh(c), None), wide, None, 30)[0])


def test_what_a_plan_holds_while_it_is_traced_is_no_leak() -> None:
    x = points(512)
    wanted = in_steps(x)
    with jax.checking_leaks():
        found = memsafe.memsafe(in_steps, peak_bytes(in_steps, x) // 4, rewrites="checkpoints")(x)
    assert_same(found, wanted)


def test_the_control_a_plan_holds_values_while_it_is_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "undisturbed", contextlib.nullcontext)
    x = points(512)
    budget = peak_bytes(in_steps, x) // 4
    with jax.checking_leaks(), pytest.raises(Exception, match="Leaked"):
        memsafe.memsafe(in_steps, budget, rewrites="checkpoints")(x)


def test_a_size_that_is_a_symbol_is_refused_with_advice() -> None:
    sizes = jax.export.symbolic_shape("n, 3")
    with pytest.raises(TypeError, match=r"got an argument .*\[n,3\].*export one program for each"):
        jax.export.export(jax.jit(safe(lambda x: x @ x.T)))(jax.ShapeDtypeStruct(sizes, float))


def test_the_control_a_leak_would_be_seen() -> None:
    kept: list[Any] = []
    with jax.checking_leaks(), pytest.raises(Exception, match="Leaked"):
        safe(lambda x: [kept.append(x), x][1])(points())


def test_without_a_budget_a_cpu_has_what_the_machine_has_available() -> None:
    available = budget.device_bytes(jax.devices("cpu")[0])
    text = Path("/proc/meminfo").read_text()
    total = 1024 * int(text.split("MemTotal:")[1].split()[0])
    assert 2**20 < available <= total
    assert_same(memsafe.memsafe(energy)(points(), weights()), energy(points(), weights()))


def test_a_smaller_machine_is_a_smaller_budget(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(budget, "_MEMORY", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemTotal: 9999 kB\nMemAvailable:   200 kB\n")
    assert budget.device_bytes(jax.devices("cpu")[0]) <= 200 * 1024
    assert peak_bytes(energy, points(), weights()) > 200 * 1024
    assert peak_bytes(memsafe.memsafe(energy), points(), weights()) <= 200 * 1024


def test_a_container_s_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(budget, "_GROUP", tmp_path)
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("2500000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 100000\n")
    assert budget.device_bytes(jax.devices("cpu")[0]) == 600_000
    (tmp_path / "memory.max").write_text("max\n")
    assert budget.device_bytes(jax.devices("cpu")[0]) > 600_000
