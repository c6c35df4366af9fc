"""PyTorch/XLA as a framework: programs staged on placeholders, and loops that really step."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import torch
import torch_xla

from assay.frameworks import torch_xla_internals as internals
from assay.frameworks.framework import (
    Compiled,
    RanStep,
    RanSteps,
    Ready,
    Unsupported,
    check_placement,
    tensor_of,
)
from assay.frameworks.hlo import compile_parsed, parse
from assay.frameworks.hlo_file import Source
from assay.frameworks.jax_timing import calibrate
from assay.model.evidence import GrowthTimes, Loop, Steps, Tensor, Traced
from assay.model.timing import Calibration, DeviceTimes
from assay.model.workload import Growth, Program

_BY_BITS = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}
"""Element types that numpy has no own name for, and those of the same width that carry them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The results of a function on placeholders: lazy tensors, alive until they are lowered."""

    results: tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyLoop:
    """A loop whose steps are timed; what a step traces and compiles falls into its first run."""

    loop: Loop
    trace_seconds: float | None = None
    compile_seconds: float | None = None
    most_runs: int = 64

    def run(self, count: int) -> float:
        """The seconds of so many steps, after each of which the device is waited for."""
        start = time.perf_counter()
        for _ in range(count):
            results = self.loop.step()
            internals.wait()
        seconds = time.perf_counter() - start
        del results
        return seconds


class TorchXlaFramework:
    """The stages of PyTorch/XLA; a compile-only target's compiler is reached through its HLO."""

    def machine(self, devices: Sequence[Any]) -> AbstractContextManager[None]:
        """Nothing: no code of these programs asks for devices."""
        return nullcontext()

    def trace(self, program: Program, devices: Sequence[Any]) -> Staged:
        """Call the function on placeholders in the place of its arguments' meta tensors."""
        assert program.function is not None
        internals.start(program.steps.environment if program.steps else {})
        arguments = jax.tree.map(_placeholder, program.arguments)
        internals.clear_counters()
        results = jax.tree.leaves(program.function(*arguments))
        return Staged(results=tuple(results))

    def lower(self, traced: Staged, platform: str, devices: Sequence[Any]) -> bytes:
        """The HloModuleProto of all results together; it is the same for every platform."""
        return internals.staged_module(traced.results)

    def describe(self, program: Program, traced: Staged, lowered: bytes | None) -> Traced:
        """What was counted while tracing and lowering."""
        return Traced(
            names=(),
            host_placements_traced=0,
            placements_lowered=0,
            residuals=None,
            counters=internals.counters(),
        )

    def what_is_compiled(self, lowered: bytes) -> str:
        """Not known: such programs are compiled in every run."""
        return ""

    def compile(self, lowered: bytes, devices: Sequence[Any]) -> Compiled:
        """Compile for the first of the devices."""
        return compile_parsed(parse(Source(module=lowered, is_stablehlo=False), devices), devices)

    def device_memory_bytes(self, device: Any) -> int | None:
        """PyTorch/XLA says nothing of it that a program could rely on."""
        return None

    def execute(self, program: Program, devices: Sequence[Any]) -> tuple[Tensor, ...]:
        """Run ``program.observe`` on ``program.values()``, moved to the device."""
        assert program.values is not None
        assert program.observe is not None
        internals.start({})
        here = torch_xla.device()
        arguments = jax.tree.map(lambda tensor: tensor.to(here), program.values())
        results = program.observe(*arguments)
        torch_xla.sync(wait=True)
        _check_platform(devices)
        leaves = jax.tree_util.tree_leaves_with_path(results)
        return tuple(_tensor(jax.tree_util.keystr(path), leaf) for path, leaf in leaves)

    def time_growth(
        self, growth: Growth, devices: Sequence[Any], most_seconds: float
    ) -> GrowthTimes:
        """No suite times a loop of PyTorch/XLA's over lengths."""
        raise Unsupported("got a growing loop for torch_xla, wanted one for jax; write it for jax")

    def ready(self, program: Program, devices: Sequence[Any], platform: str) -> Ready:
        """Build the loop, and wait for what that staged."""
        if program.steps is None:
            raise Unsupported(
                "got a program for torch_xla without a loop, wanted one whose steps can be timed; "
                "give Program(steps=...)"
            )
        internals.start(program.steps.environment)
        _check_platform(devices)
        loop = program.steps.build()
        torch_xla.sync(wait=True)
        return ReadyLoop(loop=loop)

    def forget(self) -> None:
        """Staged tensors are gone with who held them; no graph of theirs was ever compiled."""

    def calibrate(self, devices: Sequence[Any]) -> Calibration:
        """By JAX's work, on the same processors."""
        return calibrate(devices[0])

    def profile(self, ready: Ready) -> DeviceTimes | None:
        """PyTorch/XLA's own profiler is not read."""
        return None

    def run_steps(self, steps: Steps, devices: Sequence[Any]) -> RanSteps:
        """Build the loop, wait for what that staged, then run and count each step by itself."""
        internals.start(steps.environment)
        _check_platform(devices)
        loop = steps.build()
        torch_xla.sync(wait=True)
        ran = [self._step(loop) for _ in range(steps.count)]
        shapes = {name: tuple(tensor.shape) for name, tensor in loop.parameters.items()}
        return RanSteps(steps=tuple(ran), parameters=shapes)

    def _step(self, loop: Loop) -> RanStep:
        # What reading the results of the step before had compiled is no part of this one.
        known = set(internals.compiled_so_far())
        internals.clear_counters()
        results = loop.step()
        internals.wait()
        counted = internals.counters()
        compiled = [path for path in internals.compiled_so_far() if path not in known]
        return RanStep(
            counters=counted,
            results=tuple(_tensor(name, tensor) for name, tensor in results.items()),
            compiled=tuple(path.read_bytes() for path in compiled),
        )


def _check_platform(devices: Sequence[Any]) -> None:
    """PyTorch/XLA's devices, which must be of the target's platform; else an error."""
    check_placement({internals.platform()}, {devices[0].platform})


def _placeholder(tensor: torch.Tensor) -> Any:
    made = internals.placeholder(tensor.shape, tensor.dtype)
    return torch.nn.Parameter(made) if isinstance(tensor, torch.nn.Parameter) else made


def _tensor(path: str, tensor: torch.Tensor) -> Tensor:
    here = tensor.detach().cpu().contiguous()
    if here.dtype in _BY_BITS:
        carrier, dtype = _BY_BITS[here.dtype]
        return tensor_of(path, here.view(carrier).numpy().view(dtype))
    return tensor_of(path, here.numpy())
