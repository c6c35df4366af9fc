"""PyTorch/XLA as a framework: programs staged on placeholders, and loops that really step."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import ml_dtypes
import torch
import torch_xla
from torch_xla import runtime
from torch_xla.core import xla_builder
from torch_xla.debug import metrics

from assay.frameworks import torch_xla_internals as internals
from assay.frameworks.framework import (
    Compiled,
    Framework,
    Ready,
    Unsupported,
    check_placement,
    steps_seen,
    tensor_of,
)
from assay.frameworks.hlo import Form, HloFile, compile_parsed, parse
from assay.model.evidence import Counters, Loop, Steps, StepsSeen, Tensor, Traced
from assay.model.workload import Program

_BY_BITS = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}
"""Element types that numpy has no own name for, and those of the same width that carry them."""


class TorchXlaFramework(Framework):
    """The stages of PyTorch/XLA; a compile-only target's compiler is reached through its HLO.

    A traced program is its results on placeholders: lazy tensors, alive until they are lowered.
    """

    name = "torch_xla"

    def trace(self, program: Program) -> tuple[torch.Tensor, ...]:
        """Call the function on placeholders in the place of its arguments' meta tensors."""
        assert program.function is not None
        internals.start(program.steps.environment if program.steps else {})
        arguments = jax.tree.map(_placeholder, program.arguments)
        metrics.clear_all()
        return tuple(jax.tree.leaves(program.function(*arguments)))

    def lower(self, traced: tuple[torch.Tensor, ...]) -> bytes:
        """The HloModuleProto of all results together; it is the same for every platform."""
        return internals.staged_module(traced)

    def describe(
        self, program: Program, traced: tuple[torch.Tensor, ...], lowered: bytes | None
    ) -> Traced:
        """What was counted while tracing and lowering."""
        return Traced(
            names=(),
            host_placements_traced=0,
            placements_lowered=0,
            residuals=None,
            counters=_counters(),
        )

    def compile(self, lowered: bytes) -> Compiled:
        """Compile for the first of the devices."""
        module = HloFile(form=Form.HLO_PROTO, module=lowered)
        return compile_parsed(parse(module, self.devices), self.devices)

    def device_memory_bytes(self) -> int | None:
        """None: PyTorch/XLA states no limit that a program could rely on."""
        return None

    def execute(self, program: Program) -> tuple[Tensor, ...]:
        """Run ``program.observe`` on ``program.values()``, moved to the device."""
        assert program.values is not None
        assert program.observe is not None
        internals.start({})
        here = torch_xla.device()
        arguments = jax.tree.map(lambda tensor: tensor.to(here), program.values())
        results = program.observe(*arguments)
        torch_xla.sync(wait=True)
        self._check_platform()
        leaves = jax.tree_util.tree_leaves_with_path(results)
        return tuple(tensor_of(jax.tree_util.keystr(path), _numpy(leaf)) for path, leaf in leaves)

    def run_steps(self, steps: Steps) -> tuple[StepsSeen, tuple[Tensor, ...]]:
        """Build the loop, then run and count each step by itself."""
        loop = self._built(steps)
        return steps_seen(loop, steps.count, partial(_counted_step, loop))

    def ready(self, program: Program) -> Ready:
        """Build the loop; what a step traces and compiles falls into its first run."""
        if program.steps is None:
            raise Unsupported(
                "got a program for torch_xla without a loop, wanted one whose steps can be timed; "
                "give Program(steps=...)"
            )
        return Ready(run=partial(_seconds, self._built(program.steps)))

    def _built(self, steps: Steps) -> Loop:
        """The loop, after the device has finished what building it staged."""
        internals.start(steps.environment)
        self._check_platform()
        loop = steps.build()
        torch_xla.sync(wait=True)
        return loop

    def _check_platform(self) -> None:
        """Raise ``Misplaced`` unless PyTorch/XLA's devices are of the target's platform."""
        name = str(runtime.device_type()).lower()
        # In the word of jax's devices.
        check_placement({"gpu" if name == "cuda" else name}, {self.devices[0].platform})


def _counted_step(loop: Loop) -> tuple[Counters, Mapping[str, Any], Sequence[bytes]]:
    # What reading the results of the step before had compiled is no part of this one.
    known = set(internals.compiled_so_far())
    metrics.clear_all()
    results = loop.step()
    internals.wait()
    counted = _counters()
    compiled = [path for path in internals.compiled_so_far() if path not in known]
    arrays = {name: _numpy(tensor) for name, tensor in results.items()}
    return counted, arrays, [path.read_bytes() for path in compiled]


def _counters() -> Counters:
    """What was counted since the counters were cleared."""

    def samples(name: str) -> tuple[int, float]:
        """The number of samples, and their sum in nanoseconds or bytes."""
        count, total, _ = metrics.metric_data(name) or (0, 0.0, ())
        return int(count), float(total)

    return Counters(
        sent=samples("IrValueTensorToXlaData")[0],
        sent_bytes=int(samples("OutboundData")[1]),
        compiles=metrics.counter_value("UncachedCompile") or 0,
        compile_seconds=samples("CompileTime")[1] * 1e-9,
    )


def _seconds(loop: Loop, count: int) -> float:
    """The seconds of ``count`` steps, after each of which the device is waited for."""
    start = time.perf_counter()
    for _ in range(count):
        results = loop.step()
        internals.wait()
    seconds = time.perf_counter() - start
    del results
    return seconds


def _placeholder(tensor: torch.Tensor) -> Any:
    """A tensor on the device of the same shape, without data.

    Raises:
        Unsupported: PyTorch/XLA is older than 2.7.
    """
    create = getattr(xla_builder, "create_placeholder_tensor", None)
    if create is None:
        raise Unsupported(
            "got a PyTorch/XLA without create_placeholder_tensor, wanted 2.7 or newer; "
            "pip install -U torch_xla"
        )
    made = create(tuple(tensor.shape), tensor.dtype)
    return torch.nn.Parameter(made) if isinstance(tensor, torch.nn.Parameter) else made


def _numpy(tensor: torch.Tensor) -> Any:
    here = tensor.detach().cpu().contiguous()
    if here.dtype in _BY_BITS:
        carrier, dtype = _BY_BITS[here.dtype]
        return here.view(carrier).numpy().view(dtype)
    return here.numpy()
