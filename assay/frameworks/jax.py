"""JAX as a framework: trace, lower, compile, execute, and what the jaxpr tells."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend import core

from assay.frameworks.framework import RanSteps, Ready, Unsupported, memory_of, tensor_of
from assay.frameworks.jax_placement import (
    LowersItself,
    abstractly_on,
    check_compiled,
    check_results,
    is_jitted,
    jitted,
    lowered_for,
    unwrapped,
)
from assay.frameworks.jax_timing import calibrate, profile, ready_program, ready_steps, run_steps
from assay.frameworks.turns import run_first
from assay.hlo.schema import wrap
from assay.model.evidence import GrowthTimes, Memory, Residual, Steps, Tensor, Traced
from assay.model.timing import Calibration, DeviceTimes
from assay.model.workload import Growth, Program
from assay.targets import jax_internals
from assay.targets.emulation import emulated
from assay.targets.hlo_text import compile_with_dump

# The fewest that ``TimeGrowth`` can judge; and more lengths ask for a finer answer.
_LEAST_TURNS, _TURNS_A_LENGTH = 7, 12
_STRETCH = 2  # While there are fewer than the least turns, they may last so many times the seconds.
_GROWTH_SECONDS = 2.0  # in which most loops take all turns, of which the fastest is then steady
_PLACEMENT = "annotate_device_placement"


class JaxCompiled:
    """A ``jax.stages.Compiled``, read; ``dumped`` is the HloProto that its compiler dumped."""

    def __init__(self, compiled: jax.stages.Compiled, dumped: bytes | None) -> None:
        self._compiled = compiled
        self._dumped = dumped

    def memory(self) -> Memory:
        """The compiler's memory analysis, bytes per device."""
        # jax gives None only where a backend has no analysis; reading it then fails, loudly.
        stats: Any = self._compiled.memory_analysis()
        return memory_of(stats)

    def hlo_proto(self) -> bytes:
        """The optimised module; one program is one module."""
        return self._dumped or wrap(jax_internals.executable_protos(self._compiled)[0])


class JaxFramework:
    """The stages of JAX."""

    def machine(self, devices: Sequence[Any]) -> AbstractContextManager[None]:
        """In it, jax names these devices as the machine's own."""
        return emulated(devices)

    def trace(self, program: Program, devices: Sequence[Any]) -> jax.stages.Traced | LowersItself:
        """Trace the jitted function for the program's argument shapes."""
        function, arguments = jitted(program, devices)
        with abstractly_on(devices[0]), (program.context or nullcontext)():
            if not hasattr(function, "trace"):
                return LowersItself(function, arguments)
            traced: jax.stages.Traced = unwrapped(
                function.trace(*arguments), jax.stages.Traced, "traced"
            )
            return traced

    def lower(
        self, traced: jax.stages.Traced | LowersItself, platform: str, devices: Sequence[Any]
    ) -> jax.stages.Lowered:
        """Lower to StableHLO for the platform."""
        return lowered_for(traced, platform, devices)

    def describe(
        self,
        program: Program,
        traced: jax.stages.Traced | LowersItself,
        lowered: jax.stages.Lowered | None,
    ) -> Traced | None:
        """Names, host placements and saved residuals; None of a function that lowers itself."""
        if isinstance(traced, LowersItself):
            return None
        equations = list(_equations(traced.jaxpr.jaxpr))
        names = {
            str(equation.params["name"])
            for equation in equations
            if equation.primitive.name == "name"
        }
        return Traced(
            names=tuple(sorted(names)),
            host_placements_traced=sum(map(_moves_to_host, equations)),
            placements_lowered=lowered.as_text().count(_PLACEMENT) if lowered is not None else 0,
            residuals=_residuals(program),
        )

    def what_is_compiled(self, lowered: jax.stages.Lowered) -> str:
        """The StableHLO with its source lines, the devices and jax's settings."""
        devices = [device.id for device in jax_internals.lowered_devices(lowered)]
        settings = sorted(jax.config.values.items())
        return f"{devices} {settings} {lowered.as_text(debug_info=True)}"

    def compile(self, lowered: jax.stages.Lowered, devices: Sequence[Any]) -> JaxCompiled:
        """Compile for the devices that the program was lowered for."""
        compiled, proto = compile_with_dump(
            lambda options: lowered.compile(compiler_options=options)
        )
        check_compiled(compiled, lowered, devices)
        return JaxCompiled(compiled, proto)

    def device_memory_bytes(self, device: jax.Device) -> int | None:
        """The allocator's limit, which CPU devices do not have."""
        limit: int | None = (device.memory_stats() or {}).get("bytes_limit")
        return limit

    def execute(self, program: Program, devices: Sequence[Any]) -> tuple[Tensor, ...]:
        """Run ``program.observe`` on ``program.values()`` and bring the results to the host."""
        assert program.values is not None
        assert program.observe is not None
        observe, values, shardings = program.observe, program.values, program.in_shardings
        with (program.context or nullcontext)(), jax.default_device(devices[0]):
            if shardings is None:
                results = jax.jit(observe)(*values())
            elif is_jitted(observe):
                results = observe(*jax.device_put(tuple(values()), shardings))
            else:
                results = jax.jit(observe, in_shardings=shardings)(*values())
        check_results(results, devices)
        leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(results))
        return tuple(tensor_of(jax.tree_util.keystr(path), leaf) for path, leaf in leaves)

    def time_growth(
        self, growth: Growth, devices: Sequence[Any], most_seconds: float
    ) -> GrowthTimes:
        """Run every length, or trace it, once unmeasured, then time them in turns."""
        seconds: list[list[float]] = [[] for _ in growth.lengths]
        longest = time.perf_counter() + _STRETCH * max(most_seconds, _GROWTH_SECONDS)
        with jax.default_device(devices[0]):
            runs = [_grown(growth, *growth.build(each), devices[0]) for each in growth.lengths]
            for run in runs:
                run()
        with jax.default_device(devices[0]), run_first():
            end = time.perf_counter() + min(most_seconds, _GROWTH_SECONDS)
            turn = list(zip(seconds, runs, strict=True))
            for number in range(_TURNS_A_LENGTH * len(growth.lengths)):
                if number and time.perf_counter() > (end if number >= _LEAST_TURNS else longest):
                    break
                for times, run in turn if number % 2 == 0 else reversed(turn):
                    times.append(run())
        return GrowthTimes(lengths=growth.lengths, seconds=tuple(map(tuple, seconds)))

    def ready(self, program: Program, devices: Sequence[Any], platform: str) -> Ready:
        """Compile the function, put its values on the devices; or build the loop."""
        if program.steps is not None:
            return ready_steps(program.steps, devices)
        if program.function is None or program.values is None:
            raise Unsupported(
                "got a program without values to run it on, wanted some to time it with; "
                "give Program(values=...), or time another variant"
            )
        return ready_program(
            program, lambda: self.lower(self.trace(program, devices), platform, devices), devices
        )

    def forget(self) -> None:
        """Clear jax's caches of traced functions, those within the program among them."""
        jax.clear_caches()

    def calibrate(self, devices: Sequence[Any]) -> Calibration:
        """A product, a copy and a dispatch on the first device."""
        return calibrate(devices[0])

    def profile(self, ready: Ready) -> DeviceTimes | None:
        """By JAX's own profiler."""
        return profile(ready.run)

    def run_steps(self, steps: Steps, devices: Sequence[Any]) -> RanSteps:
        """Run the loop; what it compiles is counted, and nothing that is sent."""
        return run_steps(steps, devices)


def _grown(
    growth: Growth,
    function: Callable[..., Any],
    make: Callable[[], tuple[Any, ...]],
    device: jax.Device,
) -> Callable[[], float]:
    """What takes one time of one length, in seconds."""
    if growth.traced:
        return partial(_traced, function, make())
    run = jax.jit(function, donate_argnums=growth.donate_argnums)
    return partial(_timed, run, jax.device_put(make(), device), device)


def _traced(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    # A new function each time: jax does not trace a jitted function again.
    anew = jax.jit(partial(function))
    start = time.perf_counter()
    anew.trace(*arguments)
    return time.perf_counter() - start


def _timed(run: Callable[..., Any], made: tuple[Any, ...], device: jax.Device) -> float:
    # A copy, which the run may be given to keep.
    arguments = jax.block_until_ready(jax.device_put(made, device, may_alias=False))
    start = time.perf_counter()
    results = jax.block_until_ready(run(*arguments))
    seconds = time.perf_counter() - start
    check_results(results, [device])
    return seconds


def _equations(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    for equation in jaxpr.eqns:
        yield equation
        for inner in core.jaxprs_in_params(equation.params):
            yield from _equations(inner)


def _moves_to_host(equation: core.JaxprEqn) -> bool:
    return equation.primitive.name == "device_put" and any(
        jax_internals.is_on_host(variable.aval) for variable in equation.outvars
    )


def _residuals(program: Program) -> tuple[Residual, ...] | None:
    if program.differentiated is None:
        return None
    with (program.context or nullcontext)():
        saved = jax_internals.saved_residuals(program.differentiated, *program.arguments)
    return tuple(
        Residual(
            dtype=np.dtype(aval.dtype).name,
            shape=tuple(aval.shape),
            on_host=jax_internals.is_on_host(aval),
            origin=origin,
        )
        for aval, origin in saved
    )
