"""Timing in JAX: programs and training loops, ready to be run again and again; calibration."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from assay.frameworks.framework import RanStep, RanSteps, tensor_of
from assay.frameworks.jax_placement import check_compiled, check_results
from assay.frameworks.xspace import device_times
from assay.model.evidence import Counters, Steps
from assay.model.timing import Calibration, DeviceTimes
from assay.model.workload import Program

_COMPILED = "/jax/core/compile/backend_compile_duration"


def run_steps(steps: Steps, devices: Sequence[Any]) -> RanSteps:
    """Build the loop, then count what each step has compiled; what is sent is not counted.

    Caches are cleared first: what another program had compiled would not be compiled again.
    """
    with jax.default_device(devices[0]):
        return _run(steps, devices)


def _run(steps: Steps, devices: Sequence[Any]) -> RanSteps:
    loop = steps.build()
    jax.clear_caches()
    ran = []
    for _ in range(steps.count):
        with _compile_seconds() as seconds:
            given = dict(loop.step())
            results = jax.device_get(given)
        check_results(given, devices)
        counted = Counters(
            sent=None,
            sent_bytes=None,
            handles=None,
            compiles=len(seconds),
            compile_seconds=sum(seconds),
        )
        tensors = tuple(tensor_of(name, array) for name, array in results.items())
        ran.append(RanStep(counters=counted, results=tensors, compiled=()))
    shapes = {name: tuple(array.shape) for name, array in loop.parameters.items()}
    return RanSteps(steps=tuple(ran), parameters=shapes)


@contextmanager
def _compile_seconds() -> Iterator[list[float]]:
    """The seconds of each program that is compiled from here on."""
    seconds: list[float] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == _COMPILED:
            seconds.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seconds
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


_MATRIX = 512
_COPIED = 2**22  # of four bytes
_WORKS = 9
_PROFILED_RUNS = 5
_BYTES_OF_SPARE_ARGUMENTS = 2**28

_Leaves = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyProgram:
    """A compiled program and its arguments on the device, ready for repeated runs.

    Arguments that it gives away are copied anew for each run, on the device and before the clock
    starts.
    """

    compiled: jax.stages.Compiled
    arguments: _Leaves
    donated: tuple[bool, ...]
    tree: Any
    trace_seconds: float
    compile_seconds: float

    @property
    def most_runs(self) -> int:
        """The largest number of runs whose arguments are copied at a time."""
        given = zip(self.arguments, self.donated, strict=True)
        nbytes = sum(int(leaf.nbytes) for leaf, donated in given if donated)
        return max(1, _BYTES_OF_SPARE_ARGUMENTS // max(nbytes, 2**18))

    def run(self, count: int) -> float:
        """The total seconds of ``count`` runs, waiting for each."""
        prepared = [self._arguments() for _ in range(count)]
        result = None
        start = time.perf_counter()
        for arguments in prepared:
            result = jax.block_until_ready(self.compiled(*arguments))
        seconds = time.perf_counter() - start
        del result
        return seconds

    def _arguments(self) -> tuple[Any, ...]:
        leaves = [
            jax.device_put(leaf, leaf.sharding, may_alias=False) if donated else leaf
            for leaf, donated in zip(self.arguments, self.donated, strict=True)
        ]
        arguments: tuple[Any, ...] = jax.tree.unflatten(self.tree, jax.block_until_ready(leaves))
        return arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadySteps:
    """A loop whose steps are timed; what a step compiles falls into its first run."""

    step: Callable[[], Mapping[str, Any]]
    devices: Sequence[Any]
    trace_seconds: float | None = None
    compile_seconds: float | None = None
    most_runs: int = 64

    def run(self, count: int) -> float:
        """The seconds of so many steps, the results of each of which are waited for."""
        results: Mapping[str, Any] = {}
        with jax.default_device(self.devices[0]):
            start = time.perf_counter()
            for _ in range(count):
                results = jax.block_until_ready(dict(self.step()))
            seconds = time.perf_counter() - start
        check_results(results, self.devices)
        return seconds


def ready_program(
    program: Program, lower: Callable[[], jax.stages.Lowered], devices: Sequence[Any]
) -> ReadyProgram:
    """The program, compiled, with its values where it was compiled to take them."""
    assert program.values is not None
    start = time.perf_counter()
    with (program.context or nullcontext)(), jax.default_device(devices[0]):
        lowered = lower()
        traced = time.perf_counter()
        compiled = lowered.compile()
        end = time.perf_counter()
        check_compiled(compiled, lowered, devices)
        values = jax.device_put(program.values(), compiled.input_shardings[0])
    leaves, tree = jax.tree.flatten(values)
    infos = jax.tree.leaves(compiled.args_info[0], is_leaf=lambda each: hasattr(each, "donated"))
    return ReadyProgram(
        compiled=compiled,
        arguments=leaves,
        donated=tuple(info.donated for info in infos),
        tree=tree,
        trace_seconds=traced - start,
        compile_seconds=end - traced,
    )


def ready_steps(steps: Steps, devices: Sequence[Any]) -> ReadySteps:
    """The loop, built."""
    with jax.default_device(devices[0]):
        return ReadySteps(step=steps.build().step, devices=devices)


def calibrate(device: jax.Device) -> Calibration:
    """Time the fixed work on the device, each of it after one run that is not counted."""
    with jax.default_device(device):
        works = {
            "matmul": (jax.jit(lambda x: x @ x), jnp.full((_MATRIX, _MATRIX), 1e-3)),
            "copy": (jax.jit(jnp.copy), jnp.zeros(_COPIED)),
            "dispatch": (jax.jit(lambda x: x + 1), jnp.zeros(())),
        }
        return Calibration(**{name: _seconds(*work) for name, work in works.items()})


def _seconds(work: Callable[[Any], Any], argument: Any) -> tuple[float, ...]:
    jax.block_until_ready(work(argument))
    seconds = []
    for _ in range(_WORKS):
        start = time.perf_counter()
        jax.block_until_ready(work(argument))
        seconds.append(time.perf_counter() - start)
    return tuple(seconds)


def profile(run: Callable[[int], float], count: int = _PROFILED_RUNS) -> DeviceTimes | None:
    """What the device does in a run, by JAX's profiler; None where the profile shows no device."""
    with tempfile.TemporaryDirectory(prefix="assay-profile-") as folder:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # The host's calls would slow it down, and are not read.
        with jax.profiler.trace(folder, profiler_options=options):
            run(count)
        found = sorted(Path(folder).rglob("*.xplane.pb"))
        return device_times([path.read_bytes() for path in found], count)
