"""memsafe on four devices, and for compile-only devices."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from assay.targets import resolve
from memsafe import BudgetError, memsafe
from memsafe.emit import emitted
from memsafe.explicit import ByType
from memsafe.function import Calls
from memsafe.measure import Place, _platform, measured
from memsafe.options import DEFAULT_REWRITES, Asked
from tests.hlo.compilers import installed
from tests.memsafe.mapped_on_four_devices import CLAIMS as MAPPED
from tests.memsafe.on_four_devices import CLAIMS, arrays, close, product

pytestmark = pytest.mark.exhaustive

CHIP: Final = 15.75 * 2**30
"""Bytes of memory of a TPU v5e."""

MANY: Final = 100_000
"""Rows of a matrix of pairs of 40 GB."""


def shape(*sizes: int) -> Any:
    return jax.ShapeDtypeStruct(sizes, np.float32)


def calls_on(target: str, function: Any, budget: str | None) -> Calls:
    device = resolve(target).devices()[0]
    return Calls.asked(function, budget, Asked(device=device))


def found_by(module: str) -> dict[str, str]:
    """The failure of each claim, or an empty text, from a process that has four devices."""
    command = [sys.executable, "-m", f"tests.memsafe.{module}"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def on_four_devices() -> dict[str, str]:
    return found_by("on_four_devices")


@pytest.fixture(scope="module")
def mapped_on_four_devices() -> dict[str, str]:
    return found_by("mapped_on_four_devices")


@pytest.mark.parametrize("claim", CLAIMS)
def test_on_four_devices(on_four_devices: dict[str, str], claim: str) -> None:
    assert on_four_devices[claim] == ""


@pytest.mark.parametrize("claim", MAPPED)
def test_inside_shard_map(mapped_on_four_devices: dict[str, str], claim: str) -> None:
    assert mapped_on_four_devices[claim] == ""


def test_a_failure_while_it_runs_is_not_taken_for_jax_refusing_the_plan() -> None:
    def fails() -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")

    with pytest.raises(jax.errors.JaxRuntimeError, match=r"RESOURCE_EXHAUSTED"):
        ByType().run(fails, ())


def test_jax_refusing_the_plan_is_said_in_jax_s_own_words() -> None:
    def refused() -> None:
        raise TypeError("operand must be replicated\nand more")

    with pytest.raises(ValueError, match=r"got .*\(operand must be replicated\); wanted .*do this"):
        ByType().run(refused, ())


@pytest.mark.parametrize("target", installed("tpu-v5e:2x4"))
def test_a_budget_larger_than_the_chip_gives_a_plan_that_the_chip_holds(target: str) -> None:
    arguments = shape(MANY, 3), shape(MANY, 3), shape(MANY)
    fit = calls_on(target, product, "80GB").fit(arguments, {})
    assert fit.plain.compiled is None
    assert fit.plain.nbytes < 80e9
    assert fit.result.compiled is not None
    assert fit.result.nbytes <= CHIP
    assert not fit.plan.is_plain


@pytest.mark.parametrize("target", installed("tpu-v5e:2x4"))
def test_what_no_chip_holds_is_refused_though_the_budget_is_larger(target: str) -> None:
    def outer(x: Array) -> Array:
        return jnp.tanh(x[:, None] * x[None, :])

    with pytest.raises(BudgetError, match=r"the compiler refuses it.*") as caught:
        calls_on(target, outer, "80GB").fit((shape(MANY),), {})
    assert CHIP < caught.value.smallest < caught.value.budget == 80e9
    assert "give a budget" not in str(caught.value)


@pytest.mark.parametrize("target", installed("tpu-v5e:2x4", "gpu-h100"))
def test_planned_for_another_device_it_is_traced_and_compiled_once(target: str) -> None:
    traces = []

    def f(x: Array, y: Array, v: Array) -> Array:
        traces.append(1)
        return product(x, y, v)

    calls = calls_on(target, f, "300kB")
    for _ in range(2):
        close(calls.run(arrays(), {}), product(*arrays()))
    (jitted,) = calls.engine.jitted.values()
    assert len(traces) == len(calls.engine.fits) == 1
    assert jitted._cache_size() == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("target", installed("tpu-v5e:2x4", "gpu-h100"))
def test_a_device_that_does_not_report_its_memory_needs_a_budget(target: str) -> None:
    with pytest.raises(ValueError, match="got no budget"):
        calls_on(target, product, None).fit((shape(64, 3), shape(64, 3), shape(64)), {})


@pytest.mark.parametrize("target", installed("tpu-v5e:2x4"))
def test_planned_for_another_device_results_lie_where_the_arguments_do(target: str) -> None:
    within = memsafe(product, "300kB", device=resolve(target).devices()[0])
    assert within(*arrays()).devices() == {jax.devices()[0]}


def recurrent(weight: Array, x: Array) -> Array:
    """The sum of the last states of sequences ``[batch, steps, width]``."""
    start = jnp.zeros((x.shape[0], x.shape[2]))
    step = lambda state, row: (jnp.tanh(state @ weight + row), None)  # noqa: E731 - a step
    return jax.lax.scan(step, start, jnp.swapaxes(x, 0, 1))[0].sum()


SEQUENCES: Final = shape(16, 16), shape(1024, 64, 16)
SEQUENCES_BYTES: Final = 1024 * 64 * 16 * 4
IN_SLICES: Final = tuple(name for name in DEFAULT_REWRITES if name != "rows")


@pytest.mark.parametrize("target", installed("gpu-h100"))
def test_a_gpu_copies_no_argument_whole_that_a_loop_reads_transposed(target: str) -> None:
    device = resolve(target).devices()[0]
    budget = int(1.5 * SEQUENCES_BYTES)
    asked = Asked(device=device, max_slowdown=inf, rewrites=IN_SLICES)
    calls = Calls.asked(jax.grad(recurrent), budget, asked)
    fit = calls.fit(SEQUENCES, {})
    model = replace(fit.plan.graph.model, copies_transposed=False)
    free = replace(fit.plan, graph=replace(fit.plan.graph, model=model))
    kept, copied = (
        measured(emitted(plan), SEQUENCES, Place(device=device)) for plan in (fit.plan, free)
    )
    assert kept.nbytes == fit.result.nbytes <= budget
    is_copied = jax.__version_info__ < (0, 11)  # Not with jax 0.12; 0.11 was not tried.
    assert copied.nbytes >= kept.nbytes + is_copied * SEQUENCES_BYTES


@pytest.mark.parametrize("target", installed("gpu-h100"))
def test_a_gpu_keeps_no_second_array_of_sequences_that_a_scan_reads_by_steps(target: str) -> None:
    device = resolve(target).devices()[0]
    in_place, in_slices = (
        Calls.asked(
            jax.grad(recurrent),
            int(1.5 * SEQUENCES_BYTES),
            Asked(device=device, max_slowdown=inf, rewrites=rewrites),
        ).fit(SEQUENCES, {})
        for rewrites in (DEFAULT_REWRITES, IN_SLICES)
    )
    assert not in_place.plan.loops
    assert in_slices.plan.loops
    assert 2 * in_place.slowdown < in_slices.slowdown


@pytest.mark.parametrize("target", installed("gpu-h100"))
def test_keys_of_random_numbers_are_sliced_on_a_gpu(target: str) -> None:
    def ordered(keys: Array) -> Array:
        drawn = jax.vmap(lambda key: jax.random.normal(key, (64,)))(keys)
        pairs = drawn[:, :, None] * drawn[:, None, :]
        return jnp.sort(jnp.sort(pairs, 1), 2).sum((1, 2))

    keys = jax.random.split(jax.random.key(0), 1024)
    fit = calls_on(target, ordered, "10MB").fit((keys,), {})
    assert fit.plain.nbytes > 16e6
    assert fit.plan.loops


@pytest.mark.parametrize("target", installed("gpu-h100:8"))
@pytest.mark.parametrize("count", [1, 8])
def test_over_several_gpus_slices_have_no_layout_which_would_be_gathered(
    target: str, count: int
) -> None:
    mesh = jax.sharding.Mesh(np.array(resolve(target).devices()[:count]), ("d",))
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    budget = int(1.5 * SEQUENCES_BYTES)
    within = memsafe(jax.grad(recurrent), budget, max_slowdown=inf, rewrites=IN_SLICES)
    jitted = jax.jit(within, in_shardings=where, out_shardings=where)
    text = jitted.trace(*SEQUENCES).lower(lowering_platforms=("cuda",)).as_text()
    assert ("LayoutConstraint" in text) is (count == 1)


@pytest.mark.parametrize(
    ("version", "platform"),
    [("PJRT C API\ncuda 13000", "cuda"), ("PJRT C API\nrocm 60400", "rocm")],
)
def test_a_program_for_a_gpu_is_lowered_for_its_maker(version: str, platform: str) -> None:
    client = SimpleNamespace(platform_version=version)
    device: Any = SimpleNamespace(platform="gpu", client=client)
    assert _platform(device) == platform
