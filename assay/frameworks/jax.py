"""JAX as a framework: trace, lower, compile, execute, and what the jaxpr tells."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np
from jax.extend import core

from assay.frameworks.framework import Compiled, tensor_of
from assay.frameworks.jax_placement import (
    LowersItself,
    abstractly_on,
    check_compiled,
    check_results,
    gathered,
    is_jitted,
    jitted,
    lowered_for,
    shared,
    unwrapped,
)
from assay.frameworks.jax_timing import JaxTiming
from assay.model.evidence import Residual, Tensor, Traced
from assay.model.workload import Program
from assay.targets import jax_internals
from assay.targets.emulation import emulated, own_of
from assay.targets.jax_internals import compile_with_dump

_PLACEMENT = "annotate_device_placement"


class JaxFramework(JaxTiming):
    """The stages of JAX."""

    def machine(self) -> AbstractContextManager[None]:
        """In it, jax names the target's devices as the machine's own."""
        return emulated(self.devices)

    def trace(self, program: Program) -> jax.stages.Traced | LowersItself:
        """Trace the jitted function for the program's argument shapes."""
        function, arguments = jitted(program, self.devices)
        with abstractly_on(self.devices[0]), (program.context or nullcontext)():
            if not hasattr(function, "trace"):
                return LowersItself(function, arguments)
            return unwrapped(function.trace(*arguments), jax.stages.Traced, "traced")

    def lower(self, traced: jax.stages.Traced | LowersItself) -> jax.stages.Lowered:
        """Lower to StableHLO for the platform."""
        return lowered_for(traced, self.platform, self.devices)

    def describe(
        self,
        program: Program,
        traced: jax.stages.Traced | LowersItself,
        lowered: jax.stages.Lowered | None,
    ) -> Traced | None:
        """Names, host placements and saved residuals; None for a function that lowers itself."""
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

    def compile(self, lowered: jax.stages.Lowered) -> Compiled:
        """Compile for the devices that the program was lowered for."""
        compiled, dumped = compile_with_dump(
            lambda options: lowered.compile(compiler_options=options)
        )
        check_compiled(compiled, lowered, self.devices)
        return Compiled(compiled.runtime_executable(), dumped)

    def execute(self, program: Program) -> tuple[Tensor, ...]:
        """Run ``program.observe`` on ``program.values()`` and bring the results to the host.

        Products of f32 are computed in f32, unless the user or the program sets a precision: an
        accelerator rounds them to TF32 or bf16, and two ways to write a program differ by that.
        """
        assert program.values is not None
        assert program.observe is not None
        observe, values, shardings = program.observe, program.values, program.in_shardings
        here = jax.default_device(own_of(self.devices)[0])
        with self._full_precision(), (program.context or nullcontext)(), here:
            if shardings is None:
                results = jax.jit(observe)(*values())
            elif jax.distributed.is_initialized():
                run = observe if is_jitted(observe) else jax.jit(observe)
                results = run(*shared(values(), shardings))
            elif is_jitted(observe):
                results = observe(*jax.device_put(tuple(values()), shardings))
            else:
                results = jax.jit(observe, in_shardings=shardings)(*values())
        check_results(results, self.devices)
        leaves = jax.tree_util.tree_leaves_with_path(gathered(results))
        return tuple(tensor_of(jax.tree_util.keystr(path), leaf) for path, leaf in leaves)

    def _full_precision(self) -> AbstractContextManager[Any]:
        settings: Any = jax.config
        if self.platform == "cpu" or settings.jax_default_matmul_precision is not None:
            return nullcontext()
        full: AbstractContextManager[Any] = jax.default_matmul_precision("highest")
        return full


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
