"""Arguments and results are those of the function: trees, types, static, donated, closed over."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import memsafe
from memsafe import fit as fitting
from tests.memsafe.budgets import (
    assert_same,
    energy,
    pairs,
    peak_bytes,
    points,
    product,
    safe,
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
