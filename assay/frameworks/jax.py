"""JAX as a framework: trace, lower, compile, execute, and what the jaxpr tells."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np
from jax.extend import core

from assay.frameworks.framework import (
    Compiled,
    Framework,
    Ready,
    Unsupported,
    tensor_of,
)
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
from assay.frameworks.jax_timing import profile, ready_program, ready_steps, run_steps, time_growth
from assay.model.evidence import GrowthTimes, Residual, Steps, StepsSeen, Tensor, Traced
from assay.model.timing import DeviceTimes
from assay.model.workload import Growth, Program
from assay.targets import jax_internals
from assay.targets.emulation import emulated
from assay.targets.hlo_text import compile_with_dump

_PLACEMENT = "annotate_device_placement"


class JaxFramework(Framework):
    """The stages of JAX."""

    name = "jax"

    def machine(self, devices: Sequence[Any]) -> AbstractContextManager[None]:
        """In it, jax names these devices as the machine's own."""
        return emulated(devices)

    def trace(self, program: Program, devices: Sequence[Any]) -> jax.stages.Traced | LowersItself:
        """Trace the jitted function for the program's argument shapes."""
        function, arguments = jitted(program, devices)
        with abstractly_on(devices[0]), (program.context or nullcontext)():
            if not hasattr(function, "trace"):
                return LowersItself(function, arguments)
            stage = function.trace(*arguments)
        traced: jax.stages.Traced = unwrapped(stage, jax.stages.Traced, "traced")
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
        names = {str(each.params["name"]) for each in equations if each.primitive.name == "name"}
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

    def compile(self, lowered: jax.stages.Lowered, devices: Sequence[Any]) -> Compiled:
        """Compile for the devices that the program was lowered for."""
        compiled, dumped = compile_with_dump(
            lambda options: lowered.compile(compiler_options=options)
        )
        check_compiled(compiled, lowered, devices)
        return Compiled(compiled.runtime_executable(), dumped)

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

    def run_steps(
        self, steps: Steps, devices: Sequence[Any]
    ) -> tuple[StepsSeen, tuple[Tensor, ...]]:
        """Run the loop; what it compiles is counted, and nothing that is sent."""
        return run_steps(steps, devices)

    def time_growth(
        self, growth: Growth, devices: Sequence[Any], most_seconds: float
    ) -> GrowthTimes:
        """Run every length, or trace it, once unmeasured, then time them in turns."""
        return time_growth(growth, devices, most_seconds)

    def ready(self, program: Program, devices: Sequence[Any], platform: str) -> Ready:
        """Compile the function and put its values on the devices, or build the loop."""
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
        """Clear jax's caches of traced functions, also of those within the program."""
        jax.clear_caches()

    def profile(self, ready: Ready) -> DeviceTimes | None:
        """By JAX's own profiler."""
        return profile(ready.run)


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
