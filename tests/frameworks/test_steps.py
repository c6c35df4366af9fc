"""A loop's compiles are counted step by step, and a framework starts under what the loop asks."""

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from assay import Loop, Steps
from assay.frameworks.jax import JaxFramework
from assay.model.evidence import StepsSeen, Tensor

_WIDTHS = (2, 3, 2, 3, 4)


def _loop() -> Loop:
    double = jax.jit(lambda array: array * 2)
    widths = iter(_WIDTHS)

    def step() -> Mapping[str, jax.Array]:
        return {"double": double(np.ones(next(widths), np.float32))}

    return Loop(step=step, parameters={"none": jnp.zeros((2, 2))})


def _run_steps(count: int) -> tuple[StepsSeen, tuple[Tensor, ...]]:
    return JaxFramework(jax.devices(), "cpu").run_steps(Steps(count=count, build=_loop))


def test_jax_compiles_once_for_each_shape_and_is_counted_in_the_step_that_has_it() -> None:
    ran, results = _run_steps(len(_WIDTHS))
    assert [step.counters.compiles for step in ran.steps] == [1, 1, 0, 0, 1]
    assert [result.shape for result in results] == [(width,) for width in _WIDTHS]
    assert results[1].path == "step 1: double"
    assert ran.parameters == {"none": (2, 2)}


def test_loop_is_counted_as_if_nothing_had_run_before() -> None:
    first, second = (_run_steps(2)[0] for _ in range(2))
    assert [step.counters.compiles for step in first.steps] == [1, 1]
    assert [step.counters.compiles for step in second.steps] == [1, 1]


def test_torch_xla_starts_under_the_variables_of_a_loop_and_under_no_others_later() -> None:
    if find_spec("torch_xla") is None:  # not imported: that adds XLA flags to this process
        pytest.skip("no PyTorch/XLA")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(_started, {"CPU_NUM_DEVICES": "3"}).result() == 3
        assert pool.submit(_started, {"CPU_NUM_DEVICES": "3"}).result() == 3
        with pytest.raises(NotImplementedError, match="got CPU_NUM_DEVICES"):
            pool.submit(_started, {"CPU_NUM_DEVICES": "2"}).result()


def _started(environment: Mapping[str, str]) -> int:
    from assay.frameworks import torch_xla_internals

    torch_xla_internals.start(environment)
    import torch_xla.runtime

    return int(torch_xla.runtime.global_runtime_device_count())
