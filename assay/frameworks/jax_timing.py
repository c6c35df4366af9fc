"""Loops, times and profiles in JAX: what is run again and again, and read from the profiler.

A profile has planes (a device or the host) of lines (a stream or a thread) of events. On a GPU
each stream is a line, and a transfer is an event named ``MemcpyD2H`` or ``MemcpyH2D``. A TPU has a
line of whole modules. A CPU has no plane: its work is the host's events with a stat ``hlo_op``.
"""

import tempfile
import time
import timeit
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from assay.frameworks.framework import Framework, Ready, Unsupported, steps_seen
from assay.frameworks.jax_placement import check_compiled, check_results
from assay.frameworks.timing import run_first
from assay.model.evidence import Counters, GrowthTimes, Steps, StepsSeen, Tensor
from assay.model.timing import Calibration, DeviceTimes
from assay.model.workload import Growth, Program

_COMPILED = "/jax/core/compile/backend_compile_duration"
_MOST_SPARE_BYTES = 2**28
_LEAST_SPARE_BYTES = 2**18
# The fewest that ``TimeGrowth`` can judge; and more lengths ask for a finer answer.
_LEAST_TURNS, _TURNS_A_LENGTH = 7, 12
_STRETCH = 2  # While there are fewer than the least turns, they may last so many times the seconds.
_GROWTH_SECONDS = 2.0  # in which most loops take all turns, of which the fastest is then steady
_PROFILED_RUNS = 5


class JaxTiming(Framework):
    """What JAX runs again and again: loops, programs to be timed, growing loops, profiles."""

    name = "jax"

    def run_steps(self, steps: Steps) -> tuple[StepsSeen, tuple[Tensor, ...]]:
        """Build the loop, then count what each step compiles; what is sent is not counted.

        Caches are cleared before the first step: what another program, or the build, had compiled
        would not be compiled again.
        """
        seconds: list[float] = []

        def listen(event: str, duration_secs: float, **_: Any) -> None:
            if event == _COMPILED:
                seconds.append(duration_secs)

        def step() -> tuple[Counters, Mapping[str, Any], Sequence[bytes]]:
            seconds.clear()
            given = dict(loop.step())
            results = jax.device_get(given)
            counters = Counters(
                sent=None,
                sent_bytes=None,
                compiles=len(seconds),
                compile_seconds=sum(seconds),
            )
            check_results(given, self.devices)
            return counters, results, ()

        with jax.default_device(self.devices[0]):
            loop = steps.build()
            jax.clear_caches()
            jax.monitoring.register_event_duration_secs_listener(listen)
            try:
                return steps_seen(loop, steps.count, step)
            finally:
                jax.monitoring.unregister_event_duration_listener(listen)

    def ready(self, program: Program) -> Ready:
        """Compile the function and put its values on the devices, or build the loop."""
        if program.steps is not None:
            return self._ready_steps(program.steps)
        if program.function is None or program.values is None:
            raise Unsupported(
                "got a program without values to run it on, wanted some to time it with; "
                "give Program(values=...), or time another variant"
            )
        start = time.perf_counter()
        with (program.context or nullcontext)(), jax.default_device(self.devices[0]):
            lowered = self.lower(self.trace(program))
            traced = time.perf_counter()
            compiled = lowered.compile()
            end = time.perf_counter()
            check_compiled(compiled, lowered, self.devices)
            values = jax.device_put(program.values(), compiled.input_shardings[0])
        leaves, tree = jax.tree.flatten(values)
        infos = jax.tree.leaves(compiled.args_info[0], is_leaf=lambda it: hasattr(it, "donated"))
        donated = [info.donated for info in infos]

        def arguments() -> tuple[Any, ...]:
            """The arguments of a run: on the device, new copies of those that it donates."""
            fresh = [
                jax.device_put(leaf, leaf.sharding, may_alias=False) if is_donated else leaf
                for leaf, is_donated in zip(leaves, donated, strict=True)
            ]
            made: tuple[Any, ...] = jax.tree.unflatten(tree, jax.block_until_ready(fresh))
            return made

        # All copies for a sample are in memory at once.
        spare = sum(int(leaf.nbytes) for leaf, given in zip(leaves, donated, strict=True) if given)
        return Ready(
            run=partial(run_program, compiled, arguments),
            most_runs=max(1, _MOST_SPARE_BYTES // max(spare, _LEAST_SPARE_BYTES)),
            trace_seconds=traced - start,
            compile_seconds=end - traced,
        )

    def _ready_steps(self, steps: Steps) -> Ready:
        """The loop, built; what a step compiles falls into its first run."""
        with jax.default_device(self.devices[0]):
            step = steps.build().step

        def run(count: int) -> float:
            results: Mapping[str, Any] = {}
            with jax.default_device(self.devices[0]):
                start = time.perf_counter()
                for _ in range(count):
                    results = jax.block_until_ready(dict(step()))
                seconds = time.perf_counter() - start
            check_results(results, self.devices)
            return seconds

        return Ready(run=run)

    def time_growth(self, growth: Growth, most_seconds: float) -> GrowthTimes:
        """Run every length, or trace it, once unmeasured, then time them in turns."""
        seconds: list[list[float]] = [[] for _ in growth.lengths]
        device = self.devices[0]
        longest = time.perf_counter() + _STRETCH * max(most_seconds, _GROWTH_SECONDS)
        with jax.default_device(device):
            runs = [_grown(growth, each, device) for each in growth.lengths]
            for run in runs:
                run()
            with run_first():
                end = time.perf_counter() + min(most_seconds, _GROWTH_SECONDS)
                turn = list(zip(seconds, runs, strict=True))
                for number in range(_TURNS_A_LENGTH * len(runs)):
                    until = end if number >= _LEAST_TURNS else longest
                    if number and time.perf_counter() > until:
                        break
                    for times, run in turn if number % 2 == 0 else reversed(turn):
                        times.append(run())
        return GrowthTimes(lengths=growth.lengths, seconds=tuple(map(tuple, seconds)))

    def forget(self) -> None:
        """Clear jax's caches of traced functions, also of those within the program."""
        jax.clear_caches()

    def profile(self, ready: Ready) -> DeviceTimes | None:
        """What the device does in a run, by JAX's profiler; None if that shows no device."""
        with tempfile.TemporaryDirectory(prefix="assay-profile-") as folder:
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0  # The host's calls would slow it down, unread.
            with jax.profiler.trace(folder, profiler_options=options):
                ready.run(_PROFILED_RUNS)
            found = sorted(Path(folder).rglob("*.xplane.pb"))
            return device_times([path.read_bytes() for path in found], _PROFILED_RUNS)


def run_program(
    compiled: jax.stages.Compiled, arguments: Callable[[], tuple[Any, ...]], count: int
) -> float:
    """The total seconds of ``count`` runs on new arguments, waiting for each."""
    prepared = [arguments() for _ in range(count)]
    result = None
    start = time.perf_counter()
    for each in prepared:
        result = jax.block_until_ready(compiled(*each))
    seconds = time.perf_counter() - start
    del result
    return seconds


def _grown(growth: Growth, length: int, device: jax.Device) -> Callable[[], float]:
    """A function that times one run of this length, or one tracing, in seconds."""
    function, make = growth.build(length)
    made = make()

    def traced() -> float:
        # A new function each time: jax does not trace a jitted function again.
        anew = jax.jit(partial(function))
        start = time.perf_counter()
        anew.trace(*made)
        return time.perf_counter() - start

    if growth.traced:
        return traced
    run = jax.jit(function, donate_argnums=growth.donate_argnums)
    made = jax.device_put(made, device)

    def timed() -> float:
        # The run may donate its arguments, hence a copy.
        arguments = jax.block_until_ready(jax.device_put(made, device, may_alias=False))
        start = time.perf_counter()
        results = jax.block_until_ready(run(*arguments))
        seconds = time.perf_counter() - start
        check_results(results, [device])
        return seconds

    return timed


_MATRIX = 512
_COPIED = 2**22  # of four bytes
_WORKS = 9


def calibrate(device: jax.Device) -> Calibration:
    """Time a product, a copy and a dispatch on the device, each after one run not counted."""

    def seconds(work: Callable[[Any], Any], argument: Any) -> tuple[float, ...]:
        jax.block_until_ready(work(argument))
        timer = timeit.Timer(lambda: jax.block_until_ready(work(argument)))
        return tuple(timer.repeat(_WORKS, number=1))

    with jax.default_device(device):
        return Calibration(
            matmul=seconds(jax.jit(lambda x: x @ x), jnp.full((_MATRIX, _MATRIX), 1e-3)),
            copy=seconds(jax.jit(jnp.copy), jnp.zeros(_COPIED)),
            dispatch=seconds(jax.jit(lambda x: x + 1), jnp.zeros(())),
        )


TO_HOST, TO_DEVICE = "MemcpyD2H", "MemcpyH2D"
_GPU = "/device:GPU:"
# libtpu always adds a plane /device:CUSTOM:Megascale Trace, which is not a device.
_TPU = "/device:TPU:"
_HOST = "/host:CPU"
_MODULES = "XLA Modules"
# Lines that sum up a GPU's streams. Their events are not additional work.
_DERIVED = frozenset(
    {"Steps", _MODULES, "XLA Ops", "Framework Ops", "Framework Name Scope", "Source code"}
)


def device_times(profiles: Sequence[bytes], runs: int) -> DeviceTimes | None:
    """Mean seconds of ``runs`` runs, summed over the devices; None if no device worked.

    ``profiles`` are serialised XSpaces. Raises what jaxlib raises for other bytes.
    """
    read = jax.profiler.ProfileData.from_serialized_xspace
    planes = [plane for each in profiles for plane in read(each).planes]
    gpus, tpus, hosts = (
        [plane for plane in planes if plane.name.startswith(kind)] for kind in (_GPU, _TPU, _HOST)
    )
    works = [device_work(plane) for plane in gpus or tpus or hosts]

    def seconds(wanted: Callable[[str], bool]) -> float:
        named = ([each for each in events if wanted(each.name)] for events in works)
        return sum(map(covered, named)) / runs

    if not (busy := seconds(lambda _: True)):
        return None
    if not gpus:
        return DeviceTimes(busy=busy)
    return DeviceTimes(
        busy=busy,
        to_host=seconds(lambda name: name.startswith(TO_HOST)),
        to_device=seconds(lambda name: name.startswith(TO_DEVICE)),
        # Of two sets of intervals, what is in both is what the sum counts twice.
        hidden=seconds(_crosses_link) + seconds(lambda name: not _crosses_link(name)) - busy,
    )


def _crosses_link(name: str) -> bool:
    return name.startswith((TO_HOST, TO_DEVICE))


def device_work(plane: Any) -> list[Any]:
    """The events of the plane that are work of the device."""
    lines = [line for line in plane.lines if line.name == _MODULES]
    if not lines or plane.name.startswith(_GPU):
        lines = [line for line in plane.lines if line.name not in _DERIVED]
    events = [event for line in lines for event in line.events]
    if plane.name.startswith(_HOST):
        return [event for event in events if "hlo_op" in dict(event.stats)]
    return events


def covered(events: Iterable[Any]) -> float:
    """The seconds in which at least one of the events lasted."""
    total = until = 0.0
    for start, end in sorted((event.start_ns, event.end_ns) for event in events):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total * 1e-9
