"""memsafe composes with what JAX does to functions, and keeps its budget within it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

import memsafe
from memsafe import BudgetError
from memsafe import fit as fitting
from tests.memsafe.on_four_devices import CLAIMS

COUNT = 256
ROOM = 200_000
"""Bytes: less than half of one matrix of pairs in doubles."""


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    with jax.enable_x64(new_val=True):
        yield


def points(count: int = COUNT) -> Array:
    return jnp.asarray(np.random.default_rng(0).standard_normal((count, 3)))


def weights(count: int = COUNT) -> Array:
    return jnp.asarray(np.random.default_rng(1).standard_normal(count))


def pairs(x: Array) -> Array:
    return jnp.exp(-((x[:, None] - x[None, :]) ** 2).sum(-1))


def product(x: Array, v: Array) -> Array:
    return pairs(x) @ v


def turned(x: Array) -> Array:
    """The points after a step; XLA's CPU compiler keeps the pairs for it."""
    return jnp.tanh(x + (pairs(x) @ x[:, 0])[:, None])


def energy(x: Array, v: Array) -> Array:
    return jnp.sum(jnp.tanh(product(x, v)) * v)


def peak_bytes(function: Callable[..., Any], *arguments: Any) -> int:
    taken = jax.jit(function).lower(*arguments).compile().memory_analysis()
    return int(
        taken.temp_size_in_bytes
        + taken.argument_size_in_bytes
        + taken.output_size_in_bytes
        - taken.alias_size_in_bytes
    )


def assert_same(got: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    """Holds where trees, types, shapes, and values to `tolerance` of the largest are equal."""
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert (one.dtype, one.shape, one.weak_type) == (other.dtype, other.shape, other.weak_type)
        most = float(np.max(np.abs(np.asarray(other, float)), initial=0))
        np.testing.assert_allclose(
            np.asarray(one, float), np.asarray(other, float), rtol=0, atol=tolerance * most
        )


def safe(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return memsafe.memsafe(function, ROOM, **options)


OVER: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "nothing": lambda f: f,
    "jit": jax.jit,
    "grad": lambda f: jax.grad(f, (0, 1)),
    "value_and_grad": jax.value_and_grad,
    "jit of grad": lambda f: jax.jit(jax.grad(f)),
    "vjp": lambda f: lambda x, v: jax.vjp(f, x, v)[1](jnp.float64(2.0)),
}


@pytest.mark.parametrize("transform", OVER.values(), ids=OVER)
def test_transforms_of_memsafe_give_those_of_the_function(transform: Any) -> None:
    assert_same(
        transform(safe(energy))(points(), weights()), transform(energy)(points(), weights())
    )


@pytest.mark.parametrize("transform", OVER.values(), ids=OVER)
def test_memsafe_of_transforms_gives_those_of_the_function(transform: Any) -> None:
    assert_same(
        safe(transform(energy))(points(), weights()), transform(energy)(points(), weights())
    )


@pytest.mark.parametrize(
    "of",
    [
        safe(energy),
        safe(jax.jit(energy)),
        jax.grad(safe(energy), (0, 1)),
        jax.value_and_grad(safe(energy)),
        safe(jax.grad(energy)),
    ],
    ids=["forward", "of jit", "backward", "both", "of grad"],
)
def test_a_caller_s_own_jit_keeps_the_budget(of: Callable[..., Any]) -> None:
    assert peak_bytes(energy, points(), weights()) > 2 * ROOM
    assert peak_bytes(of, points(), weights()) <= ROOM


def test_a_second_derivative_through_memsafe_is_the_function_s() -> None:
    x, v = points(64), weights(64)

    def curvature(f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(lambda x: jnp.vdot(jax.grad(f)(x, v), jnp.cos(x)))

    assert_same(curvature(memsafe.memsafe(energy, 40_000))(x), curvature(energy)(x))
    assert peak_bytes(curvature(energy), x) > 60_000
    assert_same(memsafe.memsafe(curvature(energy), 60_000)(x), curvature(energy)(x))


BATCHED: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "vmap": lambda f: jax.vmap(f, in_axes=(0, None)),
    "vmap of grad": lambda f: jax.vmap(jax.grad(f), in_axes=(0, None)),
    "grad of vmap": lambda f: jax.grad(
        lambda x, v: jax.vmap(f, in_axes=(0, None))(x, v).sum(), (0, 1)
    ),
}


@pytest.mark.parametrize("transform", BATCHED.values(), ids=BATCHED)
def test_a_batch_is_within_the_budget_too(transform: Any) -> None:
    x, v = points().reshape(4, 64, 3), weights(64)
    budget = 100_000
    assert peak_bytes(transform(energy), x, v) > budget
    within = transform(memsafe.memsafe(energy, budget))
    assert_same(within(x, v), transform(energy)(x, v))
    assert peak_bytes(within, x, v) <= budget
    assert_same(memsafe.memsafe(transform(energy), budget)(x, v), transform(energy)(x, v))


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


def test_a_python_number_and_an_array_of_its_type_are_told_apart() -> None:
    within = safe(lambda x, number: (pairs(x).sum(0) * number, x.astype(jnp.float32) * number))
    x = points()
    assert within(x, 2.0)[1].dtype == jnp.float32
    assert within(x, jnp.float64(2.0))[1].dtype == jnp.float64
    assert within(x, 2)[1].dtype == jnp.float32


def test_integers_and_truths_come_out_exactly() -> None:
    def f(x: Array) -> Any:
        near = pairs(x)
        return near.argmin(1), (near > 0.5).sum(0), (near > 0.99).any(1), lax.top_k(near, 3)[1]

    for got, wanted in zip(safe(f)(points()), f(points()), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    assert peak_bytes(safe(f), points()) <= ROOM


def test_results_that_are_no_floats_have_no_derivative_and_stop_none() -> None:
    def f(x: Array, v: Array) -> Any:
        values = product(x, v)
        return jnp.sum(values**2), (values.argmax(), values > 0)

    got = jax.grad(safe(f), has_aux=True)(points(), weights())
    assert_same(got, jax.grad(f, has_aux=True)(points(), weights()))


def test_integer_arguments_are_differentiated_around() -> None:
    def f(x: Array, at: Array) -> Array:
        return jnp.sum(pairs(x)[at].sum(0) ** 2)

    at = jnp.arange(0, COUNT, 2)
    assert_same(jax.grad(safe(f))(points(), at), jax.grad(f)(points(), at))
    got, none = jax.grad(safe(f), (0, 1), allow_int=True)(points(), at)
    assert none.dtype == jax.dtypes.float0
    assert_same(got, jax.grad(f)(points(), at))


@jax.custom_vjp
def thrice(x: Array) -> Array:
    return jnp.tanh(x)


thrice.defvjp(lambda x: (thrice(x), ()), lambda _, g: (3 * g,))


def test_a_derivative_that_the_user_wrote_is_the_one_used() -> None:
    def f(x: Array, v: Array) -> Array:
        return thrice(pairs(x)).sum(0) @ v

    def meant(x: Array, v: Array) -> Array:
        return 3 * pairs(x).sum(0) @ v

    wanted = jax.grad(meant)(points(), weights())
    assert_same(jax.grad(safe(f))(points(), weights()), wanted)
    assert_same(safe(jax.grad(f))(points(), weights()), wanted)
    assert peak_bytes(jax.grad(safe(f)), points(), weights()) <= ROOM


def layers(x: Array, scales: Array, *, remat: bool) -> Array:
    def layer(x: Array, scale: Array) -> tuple[Array, None]:
        return turned(x * scale), None

    return jnp.sum(lax.scan(jax.checkpoint(layer) if remat else layer, x, scales)[0] ** 2)


@pytest.mark.parametrize("remat", [False, True])
def test_bodies_of_a_scan_over_layers_are_split_forward_and_backward(
    remat: bool,  # noqa: FBT001 - a parameter
) -> None:
    def f(x: Array, scales: Array) -> Array:
        return layers(x, scales, remat=remat)

    scales = jnp.linspace(0.5, 1.0, 4)
    assert_same(safe(f)(points(), scales), f(points(), scales))
    assert peak_bytes(safe(f), points(), scales) <= ROOM < peak_bytes(f, points(), scales)
    if remat:
        wanted = jax.grad(f, (0, 1))(points(), scales)
        assert_same(jax.grad(safe(f), (0, 1))(points(), scales), wanted)
        assert_same(safe(jax.grad(f, (0, 1)))(points(), scales), wanted)
        assert peak_bytes(jax.grad(safe(f), (0, 1)), points(), scales) <= ROOM


def test_a_loop_that_ends_by_its_values_is_split_inside() -> None:
    def f(x: Array) -> Any:
        def turn(state: tuple[Array, Array]) -> tuple[Array, Array]:
            x, count = state
            return turned(x), count + 1

        return lax.while_loop(lambda state: state[1] < 3, turn, (x, 0))

    assert_same(safe(f)(points()), f(points()))
    assert peak_bytes(safe(f), points()) <= ROOM < peak_bytes(f, points())


def test_both_branches_are_split_inside() -> None:
    def f(flag: Any, x: Array) -> Array:
        return lax.cond(flag, turned, lambda x: turned(jnp.cos(x)), x)

    for flag in (True, False):
        assert_same(safe(f)(flag, points()), f(flag, points()))
    assert peak_bytes(safe(f), np.True_, points()) <= ROOM < peak_bytes(f, np.True_, points())


def test_random_keys_are_arguments_and_give_the_same_numbers() -> None:
    def f(key: Array, x: Array) -> Array:
        return jnp.sum(pairs(x) * jax.random.normal(key, (COUNT, COUNT)), 1)

    key = jax.random.key(3)
    assert_same(safe(f)(key, points()), f(key, points()))
    assert peak_bytes(safe(f), key, points()) <= ROOM < peak_bytes(f, key, points())
    old = jax.random.PRNGKey(3)
    assert_same(safe(f)(old, points()), f(old, points()))

    def loss(x: Array, key: Array) -> Array:
        return jnp.sum(f(key, x) ** 2)

    assert_same(jax.grad(safe(loss))(points(), key), jax.grad(loss)(points(), key))


def test_prints_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Array, v: Array) -> Array:
        result = energy(x, v)
        jax.debug.print("energy {}", result)
        return result

    for within in (safe(f), jax.jit(safe(f)), jax.value_and_grad(safe(f))):
        within(points(), weights())
        jax.effects_barrier()
        assert capsys.readouterr().out.count("energy") == 1
    assert peak_bytes(safe(f), points(), weights()) <= ROOM


def test_a_refusal_names_the_peak_what_stands_in_the_way_and_the_user_s_line() -> None:
    def f(x: Array) -> Array:
        return jnp.abs(jnp.fft.fft2(pairs(x))).sum()  # in the way

    with pytest.raises(BudgetError, match="in the way") as caught:
        safe(f)(points())
    error = caught.value
    assert error.budget == ROOM < error.smallest <= peak_bytes(f, points())
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(n for n, text in enumerate(source, 1) if "fft2(pairs(x))" in text)
    assert f"{__file__}:{line}" in str(error)
    assert any("fft" in each for each in error.blockers)
    assert memsafe.memsafe(f, 1.01 * error.smallest)(points()) == pytest.approx(float(f(points())))


def test_an_argument_that_is_no_array_is_refused_with_advice() -> None:
    with pytest.raises(
        TypeError, match=r"got str in argument 1; wanted arrays; do this.*argnums=1"
    ):
        safe(lambda x, _: x)(points(), "a word")
    with pytest.raises(TypeError, match="static_argnames='kind'"):
        safe(lambda x, kind: x if kind else -x)(points(), kind="a word")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"budget": 0}, "budget=0"),
        ({"budget": "much"}, "much"),
        ({"budget": 10, "rewrites": ("magic",)}, "magic"),
        ({"budget": 10, "tensor_split_size": "-1"}, "-1"),
    ],
    ids=str,
)
def test_a_wish_that_makes_no_sense_is_refused_at_once(options: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        memsafe.memsafe(energy, **options)


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


def test_the_derivative_of_a_maximum_is_right_where_slices_round_otherwise() -> None:
    """It compares with the maximum what is computed again, maybe by a product of another size."""

    def f(x: Array) -> Array:
        attended = jax.nn.softmax(x @ x.T, axis=1) @ x
        return attended.max(0).sum() + (jnp.tanh(x @ x.T) + x[:, :1]).max(0)[:37].sum()

    x = jnp.asarray(np.random.default_rng(0).standard_normal((300, 37)))
    assert_same(memsafe.memsafe(jax.grad(f), 2_000_000)(x), jax.jit(jax.grad(f))(x))
    with pytest.raises(memsafe.BudgetError, match="compared with what another loop makes of it"):
        memsafe.memsafe(jax.grad(f), 700_000)(x)


def test_an_unused_result_of_an_equation_stops_no_plan() -> None:
    def f(x: Array) -> Array:
        order = jnp.argsort(jnp.cos(x[:, None] - x[None, :]), axis=1)
        return jnp.abs(jnp.fft.fft(order.astype(x.dtype))).sum()

    x = jnp.asarray(np.random.default_rng(0).standard_normal(512))
    assert_same(memsafe.memsafe(f, 0.9 * peak_bytes(f, x))(x), f(x))


@pytest.fixture(scope="module")
def on_four_devices() -> dict[str, str]:
    """What is wrong with each claim about four devices, found out in a process that has them."""
    command = [sys.executable, "-m", "tests.memsafe.on_four_devices"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("claim", CLAIMS)
def test_on_four_devices(on_four_devices: dict[str, str], claim: str) -> None:
    assert on_four_devices[claim] == ""


def test_the_twin_a_budget_that_is_not_kept_would_be_seen() -> None:
    with pytest.raises(AssertionError):
        assert peak_bytes(energy, points(), weights()) <= ROOM
    with pytest.raises(AssertionError):
        assert_same(energy(points(), weights()), energy(points(), weights()) * (1 + 1e-8))
