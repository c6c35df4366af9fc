"""A ready program runs again and again on arguments of its own, and its runs are waited for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from assay.frameworks.framework import Ready, Unsupported
from assay.frameworks.jax import JaxFramework
from assay.frameworks.jax_timing import calibrate
from assay.frameworks.timing import machine
from assay.model.evidence import Loop, Steps
from assay.model.workload import Growth, Program

SHAPE = jax.ShapeDtypeStruct((64, 64), jnp.float32)
ONES = np.ones((64, 64), np.float32)
SLEEP = 0.05


def ready(function: Any, values: Sequence[Any] = (ONES,), **rest: Any) -> Ready:
    arguments = tuple(jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values)
    program = Program(function=function, arguments=arguments, values=lambda: tuple(values), **rest)
    return JaxFramework(jax.devices(), "cpu").ready(program)


def _slept(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    time.sleep(SLEEP)
    return x


def test_a_run_is_waited_for() -> None:
    slow = ready(lambda x: jax.pure_callback(_slept, SHAPE, x))
    assert SLEEP <= slow.run(1) < 10 * SLEEP
    assert slow.run(3) >= 3 * SLEEP


def test_a_program_in_doubles_is_run_on_doubles() -> None:
    doubles = np.ones((64, 64), np.float64)
    with jax.enable_x64(new_val=True):
        arguments = (jax.ShapeDtypeStruct(doubles.shape, "float64"),)
    program = Program(
        function=lambda x: x @ x,
        arguments=arguments,
        values=lambda: (doubles,),
        context=partial(jax.enable_x64, new_val=True),
    )
    assert JaxFramework(jax.devices(), "cpu").ready(program).run(2) > 0


def test_to_trace_a_program_is_timed_anew_at_each_length_and_nothing_is_run() -> None:
    traced: list[int] = []
    run = []

    def build(length: int) -> tuple[Any, Any]:
        def layers(x: jax.Array) -> jax.Array:
            traced.append(length)
            time.sleep(SLEEP * length)
            jax.debug.callback(run.append, x)
            return x

        return layers, lambda: (SHAPE,)

    growth = Growth(lengths=(1, 2), build=build, traced=True)
    times = JaxFramework(jax.devices(), "cpu").time_growth(growth, most_seconds=0.0)
    turns = len(times.seconds[0])
    assert turns == 7  # No more, where no second is given.
    jax.effects_barrier()
    assert traced == [1, 2, *[1, 2, 2, 1] * 3, 1, 2]  # Once unmeasured, then to and fro.
    assert times.fastest[0] >= SLEEP
    assert times.fastest[1] >= 2 * SLEEP
    assert run == []


def test_lengths_are_timed_to_and_fro() -> None:
    ran: list[int] = []

    def build(length: int) -> tuple[Any, Any]:
        def note(x: jax.Array) -> jax.Array:
            jax.debug.callback(lambda: ran.append(length))
            return x

        return note, lambda: (ONES,)

    growth = Growth(lengths=(1, 2), build=build)
    times = JaxFramework(jax.devices(), "cpu").time_growth(growth, most_seconds=0.0)
    jax.effects_barrier()
    assert ran == [1, 2, *[1, 2, 2, 1] * 3, 1, 2]
    assert [len(each) for each in times.seconds] == [7, 7]


def test_what_a_run_gives_away_is_made_anew_for_each() -> None:
    seen = []

    def note(x: np.ndarray[Any, Any]) -> None:
        seen.append(float(x.sum()))

    def double(x: jax.Array) -> jax.Array:
        jax.debug.callback(note, x)
        return x * 2

    given = ready(double, donate_argnums=(0,))
    given.run(2)
    given.run(1)
    jax.effects_barrier()
    assert seen == [ONES.sum()] * 3


def test_the_copies_of_what_is_given_away_are_not_timed() -> None:
    big = np.ones((2**25,), np.float32)  # of 128 MiB, which take tens of milliseconds to copy
    first = ready(lambda x, i: x.at[i].set(0.0), (big, np.int32(3)), donate_argnums=(0,))
    start = time.perf_counter()
    inside = sum(first.run(1) for _ in range(3))
    assert inside < (time.perf_counter() - start) / 3


def test_arguments_that_are_not_used_are_no_obstacle() -> None:
    assert ready(lambda x, _: x + 1, (ONES, ONES)).run(2) > 0


def test_a_program_that_is_jitted_already_keeps_what_it_gives_away() -> None:
    given = ready(jax.jit(lambda x: x + 1, donate_argnums=(0,)))
    assert given.run(2) > 0
    assert given.run(2) > 0


def test_runs_at_a_time_are_bounded_by_the_arguments_that_they_give_away() -> None:
    big = np.ones((2**24,), np.float32)  # of 64 MiB
    assert ready(lambda x: x + 1, (big,), donate_argnums=(0,)).most_runs == 4
    assert ready(lambda x: x + 1, (big,)).most_runs > 100


def test_compiling_is_timed_apart_from_running() -> None:
    def long(x: jax.Array) -> jax.Array:
        for _ in range(60):
            x = jnp.sort(jnp.tanh(x @ x) + x[::-1])
        return x

    made = ready(long)
    assert made.trace_seconds is not None
    assert made.compile_seconds is not None
    assert made.compile_seconds > made.run(1)


def test_a_loops_steps_are_timed() -> None:
    count = 0

    def step() -> dict[str, jax.Array]:
        nonlocal count
        count += 1
        time.sleep(SLEEP)
        return {"loss": jnp.zeros(())}

    program = Program(steps=Steps(count=1, build=lambda: Loop(step=step)))
    made = JaxFramework(jax.devices(), "cpu").ready(program)
    assert made.run(2) >= 2 * SLEEP
    assert count == 2
    assert (made.trace_seconds, made.compile_seconds) == (None, None)


def test_a_program_without_values_cannot_be_timed() -> None:
    program = Program(function=lambda x: x, arguments=(SHAPE,))
    with pytest.raises(Unsupported, match=r"got .*wanted .*Program\(values=...\)"):
        JaxFramework(jax.devices(), "cpu").ready(program)


def test_the_calibration_takes_its_time_for_each_work() -> None:
    taken = calibrate(jax.devices()[0])
    assert min(taken.matmul) > min(taken.dispatch)
    assert min(taken.copy) > min(taken.dispatch)
    assert {len(each) for each in (taken.matmul, taken.copy, taken.dispatch)} == {9}


_PROFILED = """
import numpy as np
import jax, jax.numpy as jnp
from assay.frameworks.jax import JaxFramework
from assay.model.workload import Program

ones = np.ones((512, 512), np.float32)
program = Program(function=lambda x: jnp.tanh(x @ x), arguments=(ones,), values=lambda: (ones,))
jax_framework = JaxFramework(jax.devices(), "cpu")
made = jax_framework.ready(program)
made.run(1)
print(jax_framework.profile(made).busy)
"""


def test_a_run_is_profiled() -> None:
    # In a process of its own: jax 0.10.2's profiler dies of a libtpu that found no TPU.
    ended = subprocess.run(
        [sys.executable, "-c", _PROFILED],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert 0 < float(ended.stdout) < 1


def test_the_machine_is_told() -> None:
    here = machine(jax.devices()[0])
    assert here.cpu
    assert here.cores >= 1
    assert here.device == "cpu"
    assert here.load is not None
