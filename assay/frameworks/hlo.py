"""HLO as a framework: programs that are there as a module already, compiled for a target."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from assay.frameworks.framework import Compiled, RanSteps, Ready, check_placement, memory_of
from assay.frameworks.hlo_file import Source
from assay.frameworks.jax import JaxFramework
from assay.hlo.module import Module
from assay.hlo.schema import wrap
from assay.model.blame import WrongValue
from assay.model.evidence import GrowthTimes, Memory, Steps, Tensor, Traced
from assay.model.timing import Calibration, DeviceTimes
from assay.model.workload import Growth, Program
from assay.targets import jax_internals
from assay.targets.hlo_text import compile_with_dump

_PLACEMENT = "annotate_device_placement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A module in MLIR's own representation, and the devices that it is compiled for."""

    # ``jaxlib.mlir.ir.Module`` has no type that a checker could know.
    module: Any
    replicas: int
    devices: tuple[Any, ...]


class HloCompiled:
    """An executable, live or compile-only; ``dumped`` is the HloProto that its compiler dumped."""

    def __init__(self, executable: Any, dumped: bytes | None) -> None:
        self._executable = executable
        self._dumped = dumped

    def memory(self) -> Memory:
        """The compiler's memory analysis, bytes per device."""
        return memory_of(self._executable.get_compiled_memory_stats())

    def hlo_proto(self) -> bytes:
        """The optimised module; one program is one module."""
        return self._dumped or wrap(jax_internals.loaded_protos(self._executable)[0])


class HloFramework:
    """The stages of a module; what concerns devices is as in JAX."""

    def __init__(self) -> None:
        self._jax = JaxFramework()

    def machine(self, devices: Sequence[Any]) -> AbstractContextManager[None]:
        """Nothing: no code of these programs asks for devices."""
        return nullcontext()

    def trace(self, program: Program, devices: Sequence[Any]) -> Parsed:
        """What ``program.function`` parses, see ``program_of``."""
        assert program.function is not None
        parsed: Parsed = program.function(*program.arguments)
        return parsed

    def lower(self, traced: Parsed, platform: str, devices: Sequence[Any]) -> Parsed:
        """A module is lowered already."""
        return traced

    def describe(self, program: Program, traced: Parsed, lowered: Parsed | None) -> Traced:
        """Of names and residuals nothing is left in a module."""
        placements = str(traced.module).count(_PLACEMENT)
        return Traced(
            names=(),
            host_placements_traced=placements,
            placements_lowered=placements,
            residuals=None,
        )

    def what_is_compiled(self, lowered: Parsed) -> str:
        """Not known: such programs are compiled in every run."""
        return ""

    def compile(self, lowered: Parsed, devices: Sequence[Any]) -> Compiled:
        """Compile for the devices that the module was parsed for."""
        return compile_parsed(lowered, devices)

    def device_memory_bytes(self, device: Any) -> int | None:
        """The allocator's limit."""
        return self._jax.device_memory_bytes(device)

    def execute(self, program: Program, devices: Sequence[Any]) -> tuple[Tensor, ...]:
        """As in JAX; the program of a module gives no values, so nothing is run."""
        return self._jax.execute(program, devices)

    def time_growth(
        self, growth: Growth, devices: Sequence[Any], most_seconds: float
    ) -> GrowthTimes:
        """As in JAX; the program of a module has no growing loop."""
        return self._jax.time_growth(growth, devices, most_seconds)

    def ready(self, program: Program, devices: Sequence[Any], platform: str) -> Ready:
        """As in JAX; the program of a module gives no values, so nothing is timed."""
        return self._jax.ready(program, devices, platform)

    def forget(self) -> None:
        """Each call parses the module again."""

    def calibrate(self, devices: Sequence[Any]) -> Calibration:
        """As in JAX."""
        return self._jax.calibrate(devices)

    def profile(self, ready: Ready) -> DeviceTimes | None:
        """As in JAX."""
        return self._jax.profile(ready)

    def run_steps(self, steps: Steps, devices: Sequence[Any]) -> RanSteps:
        """As in JAX."""
        return self._jax.run_steps(steps, devices)


def program_of(source: Source, devices: Sequence[Any]) -> Program:
    """The program of a module: its function parses, and nothing can run it."""
    return Program(function=parse, arguments=(source, devices))


def parse(source: Source, devices: Sequence[Any]) -> Parsed:
    """The module, ready to be compiled.

    Raises:
        WrongValue: it is none that a compiler takes, or it is for more devices than there are.
    """
    text = source.module if source.is_stablehlo else jax_internals.stablehlo_from_hlo(source.module)
    module = jax_internals.parse_stablehlo(text)
    if not source.is_stablehlo and devices[0].platform != "cpu":
        _keep_on_host(module, source.module)
    replicas = _count(module, "mhlo.num_replicas") or source.replicas
    partitions = _count(module, "mhlo.num_partitions") or source.partitions
    wanted = replicas * partitions
    if wanted > len(devices):
        raise WrongValue(
            f"got a module for {wanted} devices and a target of {len(devices)}; wanted a target "
            "with as many; do this: name a larger topology, such as gpu-h100:8 or tpu-v5e:2x4"
        )
    return Parsed(module=module, replicas=replicas, devices=tuple(devices[:wanted]))


def _keep_on_host(module: Any, hlo: bytes) -> None:
    """Places the entry's arguments and results as the HLO did: the conversion drops ``S(5)``.

    A dump from before the passes has it in the entry's layout alone.
    """
    found = Module.from_proto(hlo)
    given, made = found.interface
    parameters = sorted(
        found.entry.of(frozenset({"parameter"})), key=lambda parameter: parameter.parameter_number
    )
    arguments = [
        leaf.on_host or placed.on_host
        for parameter, shape in zip(parameters, given, strict=True)
        for leaf, placed in zip(parameter.shape.leaves(), shape.leaves(), strict=True)
    ]
    results = [
        leaf.on_host or placed.on_host
        for leaf, placed in zip(found.entry.root.shape.leaves(), made.leaves(), strict=True)
    ]
    if any(arguments) or any(results):
        jax_internals.place_on_host(module, arguments, results)


def compile_parsed(parsed: Parsed, target: Sequence[Any]) -> HloCompiled:
    """The executable for the target's devices. Raises what the compiler raises."""
    module, devices, replicas = parsed.module, parsed.devices, parsed.replicas
    executable, proto = compile_with_dump(
        lambda options: jax_internals.compile_stablehlo(module, devices, options, replicas)
    )
    check_placement({*devices, *jax_internals.loaded_devices(executable)}, target)
    return HloCompiled(executable, proto)


def _count(module: Any, attribute: str) -> int | None:
    attributes = module.operation.attributes
    return int(attributes[attribute].value) if attribute in attributes else None
