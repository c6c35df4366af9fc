"""Slices are as long as fits, also where the memory model is no straight line."""

import jax
import jax.numpy as jnp
import pytest
from jax import Array

from memsafe.fit import planner_for
from memsafe.options import Options
from memsafe.programs import flattened


def discrepancy(x: Array, y: Array) -> Array:
    both, n = jnp.concatenate([x, y]), len(x)
    k = jnp.exp(-jnp.sum((both[:, None] - both[None]) ** 2, axis=-1) / 4)
    return k[:n, :n].mean() + k[n:, n:].mean() - 2 * k[:n, n:].mean()


@pytest.mark.parametrize("budget", [10e6, 5e6, 2e6, 1e6, 3e5])
def test_a_plan_fits_where_two_indices_seem_to_take_less_than_one(budget: float) -> None:
    """Of one index other values seem fused than of two, and those take more."""
    points = jax.ShapeDtypeStruct((800, 6), jnp.float32)
    program = flattened(jax.make_jaxpr(jax.grad(discrepancy, (0, 1)))(points, points))
    options = Options.checked(None, {})
    prepared, _ = options.prepared(program, "cpu")
    plan = planner_for(jax.devices("cpu")[0], options).plan(prepared, budget)
    assert plan.predicted <= budget
    assert not plan.is_plain
