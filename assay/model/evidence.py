"""Evidence: the measurements of one program on one target with one toolchain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Self

from assay.model.module import Shape
from assay.model.summary import ModuleSummary
from assay.model.target import Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParameter:
    """A parameter; its ``colour`` identifies its use, whatever its number."""

    number: int
    shape: Shape
    colour: str
    donated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """An output; ``value`` identifies its computation, ``colour`` its computation and place."""

    index: int
    shape: Shape
    value: str
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCollective:
    """A collective, coalesced if it has several operands, which are in the order of the HLO.

    ``shapes`` are those of the whole arrays: outputs of an all-gather, inputs of all others.
    """

    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    attributes: str
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOperation:
    """Operations of equal opcode, shape and attributes."""

    opcode: str
    shape: Shape
    attributes: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """The graph of a step, without names and orders that have no effect.

    ``canonical`` is its fingerprint. ``raw`` is that of `assay.hlo.fingerprint`, which also depends
    on how the graph is written. ``instructions`` counts live instructions other than tuples and
    their elements; ``duplicate_constants`` of these are redundant. ``collectives`` are the
    all-gathers, all-reduces and reduce-scatters. ``operations`` are all others but parameters.
    """

    canonical: str
    raw: str
    instructions: int
    duplicate_constants: int
    parameters: tuple[StepParameter, ...]
    outputs: tuple[StepOutput, ...]
    collectives: tuple[StepCollective, ...]
    operations: tuple[StepOperation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop that is ready to run: ``step`` does one step and returns results by name.

    A step ends by having the framework run what it staged, as in training. ``parameters`` are the
    model's tensors by name, which explanations of graphs use.
    """

    # The framework's own tensors, hence Any: the model knows no framework.
    step: Callable[[], Mapping[str, Any]]
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """``count`` steps of the loop that ``build`` makes on the framework's default device.

    ``environment`` holds variables to set before the framework starts, such as its number of
    virtual devices.
    """

    count: int
    build: Callable[[], Loop]
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"got {self.count} steps, wanted 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Counters of a lazy-tensor runtime over a part of a program; None if it has no such counter.

    ``sent`` counts the tensors sent to the device because an operation needs an IR value
    (PyTorch/XLA's IrValueTensorToXlaData), ``sent_bytes`` all bytes sent (OutboundData), and
    ``compiles`` the graphs that were not cached (UncachedCompile).
    """

    sent: int | None = 0
    sent_bytes: int | None = 0
    compiles: int = 0
    compile_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: its counters, and the indices of the loop's graphs that it compiled."""

    counters: Counters
    graphs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsSeen:
    """The steps of a loop and their graphs in order, and the shapes of the model's tensors by name.

    ``modules`` are the graphs as serialised HloProtos, which the store writes to separate files.
    """

    steps: tuple[Step, ...]
    graphs: tuple[StepGraph, ...] = ()
    modules: tuple[bytes, ...] = ()
    parameters: dict[str, tuple[int, ...]] = field(default_factory=dict)


class Coded(Enum):
    """An enum of codes, which files contain, with a phrase for people."""

    phrase: str

    def __new__(cls, code: str, phrase: str) -> Self:
        """A member whose value is its code."""
        member = object.__new__(cls)
        member._value_ = code
        member.phrase = phrase
        return member


class FailureKind(Coded):
    """The stage at which a program failed.

    ``OUT_OF_MEMORY`` is about the device's main memory. A kernel that needs too much on-chip memory
    is a failure of ``COMPILER``. ``MEMORY`` is about this machine's memory, which the compiler, or
    a program on the CPU, fills.
    """

    BUILD = "build", "cannot be built"
    TRACE = "trace", "does not trace"
    LOWERING = "lowering", "does not lower"
    OUT_OF_MEMORY = "out-of-memory", "runs out of memory"
    COMPILER = "compiler", "does not compile"
    CRASH = "crash", "crashes its process"
    TIMEOUT = "timeout", "takes too long"
    MEMORY = "memory", "uses too much memory while it is compiled or run"
    EXECUTION = "execution", "does not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a program has no executable, or no results.

    ``needed_bytes`` and ``capacity_bytes`` are those of an out-of-memory error, per device.
    ``during`` is the stage that a crash, a timeout or a lack of memory ended, ``line`` the user's
    ``file:line``. ``of_machine``: the machine is too small for it, so the program was not judged.
    """

    kind: FailureKind
    message: str
    needed_bytes: int | None = None
    capacity_bytes: int | None = None
    during: FailureKind | None = None
    line: str = ""
    of_machine: bool = False

    @property
    def stage(self) -> FailureKind:
        """The stage that failed, or that was ended."""
        return self.during or self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Versions of the packages that determine compiled programs, and compiler flags."""

    versions: dict[str, str]
    flags: str = ""

    @property
    def identity(self) -> dict[str, str]:
        """Equal for equal toolchains: versions, and flags if any."""
        return {**self.versions, "flags": self.flags} if self.flags else dict(self.versions)

    def __str__(self) -> str:
        parts = [f"{name} {version}" for name, version in sorted(self.versions.items())]
        return ", ".join([*parts, self.flags] if self.flags else parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One value that autodiff stores in the forward pass for the backward pass."""

    dtype: str
    shape: tuple[int, ...]
    on_host: bool
    origin: str

    def __str__(self) -> str:
        place = "<host>" if self.on_host else ""
        return f"{self.dtype}{place}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """Measurements of the jaxpr and the lowered module, before compilation.

    ``host_placements_traced`` counts the moves to host memory in the jaxpr, ``placements_lowered``
    the placement annotations in the lowered module. ``residuals`` is None if the program has no
    differentiated function, ``counters`` if the framework counts nothing while it traces.
    """

    names: tuple[str, ...]
    host_placements_traced: int
    placements_lowered: int
    residuals: tuple[Residual, ...] | None
    counters: Counters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The compiler's memory analysis, bytes per device (XLA ``CompiledMemoryStats``).

    Arrays in host memory count only in the ``host_…`` fields. ``library_bytes`` is the most that
    libraries allocate by themselves on a CPU, which the compiler does not report.
    """

    temp_bytes: int
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    host_temp_bytes: int
    host_argument_bytes: int = 0
    host_output_bytes: int = 0
    host_alias_bytes: int = 0
    reported_peak_bytes: int | None = None
    library_bytes: int = 0

    @property
    def device_bytes(self) -> int:
        """Device memory that the program needs: temp + library + argument + output − alias."""
        temp_bytes = self.temp_bytes + self.library_bytes
        return temp_bytes + self.argument_bytes + self.output_bytes - self.alias_bytes

    def of_module(self, module: ModuleSummary | None) -> "Memory":
        """The same, with what the libraries that the module calls hold at most."""
        return replace(self, library_bytes=module.library_bytes) if module else self

    @property
    def host_bytes(self) -> int:
        """Host memory that the program needs: temp + argument + output − alias."""
        needed = self.host_temp_bytes + self.host_argument_bytes + self.host_output_bytes
        return needed - self.host_alias_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One array of results: row-major little-endian bytes."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthTimes:
    """Wall times of one loop over buffers of several lengths, which alternate."""

    lengths: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]

    @property
    def fastest(self) -> tuple[float, ...]:
        """The fastest run of each length."""
        return tuple(map(min, self.seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """Wall time of each stage; ``read`` is Assay's, the others are the toolchain's."""

    trace: float = 0.0
    lower: float = 0.0
    compile: float = 0.0
    read: float = 0.0
    execute: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEvidence:
    """One process of a program, of `jax.distributed` or as a compile-only topology names them.

    ``device_bytes`` is the device memory that the program needs on all ``device_count`` devices of
    the process: temp + library + argument + output − alias.
    """

    index: int
    device_count: int
    device_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The measurements of a variant on a target; None is what was not measured.

    ``separate_host_memory`` is False if host and device share one memory (CPU), so that placement
    cannot be observed. ``size`` is that of a ``SizedVariant``. ``module_unreadable`` says why the
    toolchain did not return the compiled module, ``not_executed`` why the target runs nothing. With
    ``growth``, the times of the growing loop, nothing else was measured. ``hlo_gz`` is the gzipped
    HloProto of the module, which the store writes to a separate file. ``warnings`` are the
    framework's, such as a donation that no output can use. ``cached``: the same program was
    compiled before. ``retries`` says how earlier attempts ended (`docs/limits.md`). ``processes``
    are those whose devices it uses; in a run over several processes, each measured its own.
    ``device`` is jax's name for a live accelerator, such as `NVIDIA H200`; empty for a CPU, and
    for what a compiler alone measured.
    """

    workload: str
    variant: str
    target: str
    toolchain: Toolchain
    suite: str = ""
    size: int | None = None
    separate_host_memory: bool = True
    device: str = ""
    device_count: int = 1
    processes: tuple[ProcessEvidence, ...] = ()
    device_memory_bytes: int | None = None
    on_chip_memory_bytes: int = 0
    unavailable: Unavailable | None = None
    failure: Failure | None = None
    traced: Traced | None = None
    memory: Memory | None = None
    module: ModuleSummary | None = None
    module_unreadable: str = ""
    hlo_gz: bytes = b""
    values: tuple[Tensor, ...] | None = None
    not_executed: Unavailable | None = None
    growth: GrowthTimes | None = None
    steps: StepsSeen | None = None
    warnings: tuple[str, ...] = ()
    cached: bool = False
    retries: tuple[str, ...] = ()
    seconds: Seconds = field(default_factory=Seconds)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Suite, workload, variant and target."""
        return self.suite, self.workload, self.variant, self.target

    @property
    def needed_bytes(self) -> int | None:
        """Device memory that the program needs: the compiler's sum, and at least the peak.

        The compiler's sum lacks constants, which are alive at the peak. The peak lacks libraries.
        """
        if self.memory is None:
            return None
        peak = self.module.peak.nbytes if self.module and self.module.peak else 0
        return max(self.memory.device_bytes, peak + self.memory.library_bytes)
