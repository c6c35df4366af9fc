"""What a function does besides its results happens once, and in its order."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.experimental import io_callback

import memsafe
from memsafe import graph

from .budgets import ROOM, assert_same, pairs, peak_bytes, points, safe

pytestmark = pytest.mark.usefixtures("doubles")


def through_a_ref(x: Array) -> tuple[Array, ...]:
    """Two sums of all pairs, which share a loop; the first is written and read before the other."""
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


@pytest.mark.parametrize("ordered", [False, True])
def test_a_callback_runs_once_though_nobody_reads_its_large_result(*, ordered: bool) -> None:
    seen: list[int] = []

    def called(value: Any) -> Any:
        seen.append(1)
        return np.asarray(value)

    def f(x: Array) -> Array:
        near = pairs(x)
        kind = jax.ShapeDtypeStruct(near.shape, near.dtype)
        io_callback(called, kind, near, ordered=ordered)
        return jnp.sum(pairs(x + 1), 1)

    budget = int(0.8 * peak_bytes(f, points()))
    got = memsafe.memsafe(f, budget)(points())
    jax.effects_barrier()
    assert seen == [1]
    assert_same(got, jax.jit(f)(points()))
