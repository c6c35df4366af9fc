"""Side effects of a function happen once, and in order."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.experimental import checkify, io_callback

import memsafe
from memsafe import graph

from .budgets import ROOM, assert_same, pairs, peak_bytes, points, safe

pytestmark = pytest.mark.usefixtures("doubles")


def through_a_ref(x: Array) -> tuple[Array, ...]:
    """Two sums of all pairs that share a loop; a reference holds the first before the second."""
    near = pairs(x)
    cell = jax.new_ref(jnp.zeros(len(x)))
    cell[...] = jnp.sum(near, 1)
    first = cell[...]
    cell[...] = 2 * first
    return first, cell[...], jnp.sum(near * near, 1)


def test_reads_and_writes_of_a_reference_keep_their_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert_same(safe(through_a_ref)(points()), jax.jit(through_a_ref)(points()))
    memsafe.explain(through_a_ref, ROOM)(points())
    assert "loop over" in capsys.readouterr().out


def test_the_control_in_no_order_a_reference_gives_other_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graph, "has_ordered_effects", lambda _: False)
    with pytest.raises(AssertionError):
        assert_same(safe(through_a_ref)(points()), jax.jit(through_a_ref)(points()))


@pytest.mark.parametrize("over", [jax.jit, lambda f: jax.jit(jax.vmap(f)), jax.vmap])
def test_a_reference_of_the_function_is_no_effect_outside_of_it(over: Any) -> None:
    x = points()
    given = x if over is jax.jit else jnp.stack([x, 2 * x])
    assert_same(over(safe(through_a_ref))(given), over(through_a_ref)(given))


def test_a_reference_from_outside_is_refused_with_advice() -> None:
    cell = jax.new_ref(points())
    with pytest.raises(TypeError, match=r"got a jax\.Ref in argument 0; .*pass what it holds"):
        safe(lambda cell: pairs(cell[...]))(cell)
    with pytest.raises(TypeError, match=r"got a jax\.Ref that the function holds; "):
        safe(lambda x: pairs(x + cell[...]))(points())


def unchecked(x: Array) -> Array:
    """Sums of all pairs, and a check that the first coordinate is positive."""
    checkify.check(x[0, 0] > 0, "the first is {}", x[0, 0])
    return jnp.sum(jnp.sqrt(pairs(x)), 1)


@pytest.mark.parametrize(
    "over", [lambda f: f, jax.jit, lambda f: jax.jit(jax.grad(lambda x: f(x).sum()))]
)
def test_checks_of_checkify_stay_within_the_budget(over: Any) -> None:
    checked = checkify.checkify(over(safe(unchecked)), checkify.all_checks)
    written = checkify.checkify(over(unchecked), checkify.all_checks)
    for x in (points(), -points(), points().at[3, 1].set(jnp.nan)):
        error, found = checked(x)
        other, wanted = written(x)
        assert str(error.get()).split(".")[0] == str(other.get()).split(".")[0]
        assert_same(found, wanted)
    assert peak_bytes(checked, points()) <= ROOM < peak_bytes(written, points())


def test_a_call_in_a_trace_belongs_to_its_program() -> None:
    """As with `jax.jit`, nothing runs while the program is traced."""
    x, within = points(), safe(lambda x: pairs(x).sum(1))
    within(x)
    assert "memsafe" in str(jax.make_jaxpr(lambda: within(x))())
    assert_same(jax.jit(lambda: within(x))(), within(x))


@pytest.mark.parametrize("ordered", [False, True])
def test_a_callback_runs_once_though_nobody_reads_its_large_result(*, ordered: bool) -> None:
    seen: list[int] = []

    def called(value: Any) -> Any:
        seen.append(1)
        return np.asarray(value)

    def f(x: Array) -> Array:
        near = pairs(x).astype(jnp.float32)  # A thread without doubles may run the callback.
        kind = jax.ShapeDtypeStruct(near.shape, near.dtype)
        io_callback(called, kind, near, ordered=ordered)
        return jnp.sum(pairs(x + 1), 1)

    budget = int(0.8 * peak_bytes(f, points()))
    got = memsafe.memsafe(f, budget)(points())
    jax.effects_barrier()
    assert seen == [1]
    assert_same(got, jax.jit(f)(points()))
