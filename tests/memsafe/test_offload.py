"""memsafe moves values that loops keep to the host, if that takes no longer than allowed."""

import pickle
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name

from assay.targets import resolve
from memsafe import BudgetError, explain, memsafe
from memsafe.options import DEFAULT_REWRITES
from tests.hlo.compilers import installed

STEPS, ROWS, WIDTH = 64, 2**14, 1024
SHAPES = ((STEPS, 8, WIDTH), (ROWS, WIDTH))
BUDGET = 650 * 10**6
"""Bytes of arguments, results and about 8 rows: fewer than the 3 ∛64 of two levels of segments."""

STACK_BYTES = 4 * STEPS * ROWS * WIDTH

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.parametrize("target", installed("gpu-h100")),
]


def layers(weights: Array, x: Array) -> Array:
    """Steps of few operations, whose rows take longer to move than to compute.

    Each step mixes all rows and all columns, so no loop over slices can contain the scan.
    """

    def step(x: Array, weight: Array) -> tuple[Array, None]:
        return jnp.sin(x + (x @ weight.T) @ weight + jnp.mean(x, 0)), None

    return jnp.mean(lax.scan(step, x, weights)[0] ** 2)


def safe(target: str, **options: Any) -> Any:
    device = resolve(target).devices()[0]
    return memsafe(jax.value_and_grad(layers, (0, 1)), BUDGET, device=device, **options)


def arguments(target: str) -> list[jax.ShapeDtypeStruct]:
    there = jax.sharding.SingleDeviceSharding(resolve(target).devices()[0])
    return [jax.ShapeDtypeStruct(shape, np.float32, sharding=there) for shape in SHAPES]


def test_a_plan_that_takes_longer_than_asked_is_refused_with_both_numbers(target: str) -> None:
    with pytest.raises(BudgetError, match=r"times as long as the function; wanted .* max_slo") as e:
        safe(target).lower(*arguments(target))
    assert e.value.slowdown is not None
    assert e.value.slowdown > 2
    assert e.value.smallest <= BUDGET
    again = pickle.loads(pickle.dumps(e.value))
    assert (str(again), again.slowdown) == (str(e.value), e.value.slowdown)
    compiled = (
        safe(target, max_slowdown=1.05 * e.value.slowdown).lower(*arguments(target)).compile()
    )
    memory = compiled.memory_analysis()
    assert 0 < memory.host_temp_size_in_bytes <= 2 * STACK_BYTES
    assert memory.temp_size_in_bytes < BUDGET


def test_without_the_host_the_budget_is_not_kept(target: str) -> None:
    rewrites = [name for name in DEFAULT_REWRITES if name != "offload"]
    with pytest.raises(BudgetError, match="the smallest reached") as e:
        safe(target, rewrites=rewrites, max_slowdown=1e6).lower(*arguments(target))
    assert e.value.slowdown is None


def test_the_plan_says_what_moves(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    device = resolve(target).devices()[0]
    gradient = jax.value_and_grad(layers, (0, 1))
    explain(gradient, BUDGET, device=device, max_slowdown=1e6)(*arguments(target))
    said = capsys.readouterr().out
    assert re.search(r"operations of the program, \d+\.\d\d × its time predicted; ", said)
    assert re.search(r"B go to the host and come back\n", said)
    assert "steps of a scan keep for its gradient wait in host memory" in said


def test_the_values_are_those_of_the_function(target: str) -> None:
    generator = np.random.default_rng(0)
    given = [0.1 * generator.standard_normal(shape, np.float32) for shape in SHAPES]
    got = safe(target, max_slowdown=1e6)(*given)
    wanted = jax.jit(jax.value_and_grad(layers, (0, 1)))(*given)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_an_offload_that_the_user_asks_for_is_lowered(target: str) -> None:
    def asked(weights: Array, x: Array) -> Array:
        def step(x: Array, weight: Array) -> tuple[Array, None]:
            x = checkpoint_name(x, "row")
            return jnp.sin(x + (x @ weight.T) @ weight), None

        policy = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=["row"],
            offload_src="device",
            offload_dst="pinned_host",
        )
        body = jax.checkpoint(step, policy=policy, prevent_cse=False)
        return jnp.mean(lax.scan(body, x, weights)[0] ** 2)

    device = resolve(target).devices()[0]
    for function, moved in ((asked, STACK_BYTES), (layers, 0)):
        staged = memsafe(jax.value_and_grad(function, (0, 1)), "80GB", device=device)
        memory = staged.lower(*arguments(target)).compile().memory_analysis()
        assert memory.host_temp_size_in_bytes == moved
