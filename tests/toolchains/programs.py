"""Programs for reruns; a process of either toolchain imports them from here.

What one does may depend on ``ASSAY_TEST_SIDE`` among XLA's flags, which only one side is given.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from assay.model.workload import Program, Role, Variant, Workload

OLD = "--xla_cpu_enable_fast_math=false"
"""A flag that changes nothing here, but tells the process of the baseline toolchain from ours."""


def on_old_side() -> bool:
    return OLD in os.environ.get("XLA_FLAGS", "")


def _product(times: int) -> Program:
    def run(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, times, lambda _, c: jnp.tanh(c @ c) * 0.1, x)

    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    return Program(function=run, arguments=(shape,), values=lambda: (np.ones((64, 64), "f4"),))


def _asleep(seconds: float, x: Any) -> Any:
    time.sleep(seconds)
    return x


def _resting(seconds: float) -> Program:
    """What takes so long on a busy machine too."""

    def run(x: jax.Array) -> jax.Array:
        return jax.pure_callback(partial(_asleep, seconds), x, x)

    shape = jax.ShapeDtypeStruct((8,), jnp.float32)
    return Program(function=run, arguments=(shape,), values=lambda: (np.ones(8, "f4"),))


def same(_: Sequence[Any]) -> Program:
    return _product(60)


def resting(_: Sequence[Any]) -> Program:
    return _resting(0.04)


def slow_when_new(_: Sequence[Any]) -> Program:
    return _resting(0.01 if on_old_side() else 0.03)


def does_not_compile_on_old(_: Sequence[Any]) -> Program:
    if not on_old_side():
        return _product(1)
    return Program(
        function=lambda x: jax.ffi.ffi_call("no_such_target", x)(x),
        arguments=(jax.ShapeDtypeStruct((8,), jnp.float32),),
        values=lambda: (np.ones(8, "f4"),),
    )


def not_there_on_old(_: Sequence[Any]) -> Program:
    if on_old_side():
        importlib.import_module("no_such_package_of_ours")
    return _product(1)


def without_values(_: Sequence[Any]) -> Program:
    return Program(function=jnp.sin, arguments=(jax.ShapeDtypeStruct((8,), jnp.float32),))


def _dies_at(run: int, runs: list[int], x: Any) -> Any:
    runs.append(1)
    if len(runs) == run and not on_old_side():
        os.write(2, b"the last words\n")
        os.abort()
    return x


def dies(run: int, _: Sequence[Any]) -> Program:
    def function(x: jax.Array) -> jax.Array:
        return jax.pure_callback(partial(_dies_at, run, []), x, x)

    shape = jax.ShapeDtypeStruct((8,), jnp.float32)
    return Program(function=function, arguments=(shape,), values=lambda: (np.ones(8, "f4"),))


def prints(devices: Sequence[Any]) -> Program:
    os.write(1, b"y" * 100_000)
    return same(devices)


def sleeps(folder: Path, devices: Sequence[Any]) -> Program:
    (folder / str(os.getpid())).write_text("old" if on_old_side() else "new")
    if not on_old_side():
        time.sleep(600)
    return same(devices)


def workload(program: Callable[[Sequence[Any]], Program], framework: str = "jax") -> Workload:
    variant = Variant(name="variant", role=Role.CONTROL, program=program)
    return Workload(suite="reruns", name="workload", variants=(variant,), framework=framework)
