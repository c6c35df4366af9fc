"""Evidence: what was seen of one program on one target with one toolchain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

from assay.model.module import Shape
from assay.model.summary import ModuleSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParameter:
    """A parameter; its ``colour`` says how it is used, whatever its number.

    ``donated`` tells whether an output may take over its buffer.
    """

    number: int
    shape: Shape
    colour: str
    donated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """An output; its ``value`` says what it is computed from, its ``colour`` its place as well."""

    index: int
    shape: Shape
    value: str
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCollective:
    """A collective, coalesced if it has several operands; these in the order as written.

    ``shapes`` are those of the whole arrays: what an all-gather gives, what the others take.
    """

    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    attributes: str
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOperation:
    """Equal operations; ``attributes`` tells apart what opcode and shape do not."""

    opcode: str
    shape: Shape
    attributes: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """What two steps share if they are the same but for names and orders that mean nothing.

    ``canonical`` is the fingerprint that they share; ``raw`` is `assay.hlo.fingerprint`'s, which
    differs where they were written differently. ``instructions`` are those that are alive and do
    more than pack or unpack a tuple; of these, ``duplicate_constants`` could be left out.
    ``operations`` holds all but parameters and collectives. Text and numbers only, so that it can
    be stored.
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

    A step ends as in training: it has asked the framework to run what it staged. ``parameters``
    are the model's tensors by name; graphs are explained with them.
    """

    # The framework's own tensors, hence Any: the model knows no framework.
    step: Callable[[], Mapping[str, Any]]
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A loop to run ``count`` steps of; ``build`` makes it, on the framework's default device.

    ``environment`` holds variables that the framework reads once, when it starts (how many virtual
    devices there are); they are set before it does.
    """

    count: int
    build: Callable[[], Loop]
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject a loop without a step."""
        if self.count < 1:
            raise ValueError(f"got {self.count} steps, wanted 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a lazy-tensor runtime counted over a stretch of a program.

    ``sent`` counts the tensors that an operation's need of an IR value sent to the device
    (PyTorch/XLA's IrValueTensorToXlaData), ``sent_bytes`` all bytes sent (OutboundData), and
    ``handles`` the device buffers made (CreateDataHandles). ``compiles`` are graphs that the cache
    did not have (UncachedCompile); ``graph_nodes`` the IR nodes of each graph run
    (TensorsGraphSize). None is what the framework does not count.
    """

    sent: int | None = 0
    sent_bytes: int | None = 0
    handles: int | None = 0
    compiles: int = 0
    compile_seconds: float = 0.0
    graph_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: what was counted, and which of the loop's graphs were compiled in it."""

    counters: Counters
    graphs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsSeen:
    """The steps of a loop in order, and the graphs that they compiled, in that order.

    ``modules`` are the same graphs as serialised HloProtos, which the store keeps as files of their
    own. ``parameters`` are the shapes of the model's tensors by name.
    """

    steps: tuple[Step, ...]
    graphs: tuple[StepGraph, ...] = ()
    modules: tuple[bytes, ...] = ()
    parameters: dict[str, tuple[int, ...]] = field(default_factory=dict)


class Coded(Enum):
    """Members with a code, which files hold, and a phrase for people."""

    phrase: str

    def __new__(cls, code: str, phrase: str) -> Self:
        """A member whose value is its code."""
        member = object.__new__(cls)
        member._value_ = code
        member.phrase = phrase
        return member


class FailureKind(Coded):
    """The stage at which a program stopped, as far as the toolchain tells.

    ``OUT_OF_MEMORY`` is about the device's memory. A kernel that needs too much on-chip memory does
    not compile.
    """

    BUILD = "build", "cannot be built"
    TRACE = "trace", "does not trace"
    LOWERING = "lowering", "does not lower"
    OUT_OF_MEMORY = "out-of-memory", "runs out of memory"
    COMPILER = "compiler", "does not compile"
    CRASH = "crash", "takes its process down"
    TIMEOUT = "timeout", "takes too long"
    EXECUTION = "execution", "does not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a program gave no executable, or no results.

    ``needed_bytes`` and ``capacity_bytes`` are what an out-of-memory error names, per device.
    ``during`` is the stage that a crash or a timeout ended, named by that stage's own failure.
    ``line`` is the innermost line of the user's code, ``file:line``, if the exception passed one.
    """

    kind: FailureKind
    message: str
    needed_bytes: int | None = None
    capacity_bytes: int | None = None
    during: FailureKind | None = None
    line: str = ""

    @property
    def stage(self) -> FailureKind:
        """The stage that failed; for a crash or a timeout, the one that it ended."""
        return self.during or self.kind

    @property
    def left_executable(self) -> bool:
        """Whether the program was compiled, and failed when it ran."""
        return self.stage is FailureKind.EXECUTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """The target or toolchain cannot do it: the reason, and what would fix it."""

    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Versions of every part that decides what a compiler emits, and its flags."""

    versions: dict[str, str]
    flags: str = ""

    @property
    def identity(self) -> dict[str, str]:
        """What must be equal for two toolchains to be the same: versions, and flags if any."""
        return {**self.versions, "flags": self.flags} if self.flags else dict(self.versions)

    def __str__(self) -> str:
        parts = [f"{name} {version}" for name, version in sorted(self.versions.items())]
        return ", ".join([*parts, self.flags] if self.flags else parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One value that autodiff keeps from the forward pass for the backward pass."""

    dtype: str
    shape: tuple[int, ...]
    on_host: bool
    origin: str

    def __str__(self) -> str:
        place = "<host>" if self.on_host else ""
        return f"{self.dtype}{place}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What the jaxpr and the lowered module tell before any compiler ran.

    ``residuals`` is None where the program names no differentiated function.
    ``host_placements_traced`` counts the moves to host memory in the jaxpr,
    ``placements_lowered`` the placement annotations that survived lowering. ``counters`` are what
    the framework counted while it traced and lowered, None where it counts nothing.
    """

    names: tuple[str, ...]
    host_placements_traced: int
    placements_lowered: int
    residuals: tuple[Residual, ...] | None
    counters: Counters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The compiler's memory analysis, bytes per device (XLA ``CompiledMemoryStats``).

    What lies in host memory counts in the ``host_…`` fields alone.
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

    @property
    def device_bytes(self) -> int:
        """Device memory the step needs: temp + argument + output − alias."""
        return self.temp_bytes + self.argument_bytes + self.output_bytes - self.alias_bytes

    @property
    def host_bytes(self) -> int:
        """Host memory the step needs: temp + argument + output − alias."""
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
    """Wall times of one loop over buffers of several lengths, run in turns: ``seconds`` of each."""

    lengths: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]

    @property
    def fastest(self) -> tuple[float, ...]:
        """For each length the run that other work disturbed least."""
        return tuple(map(min, self.seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """Wall time of each stage; ``read`` is ours, the rest the toolchain's."""

    trace: float = 0.0
    lower: float = 0.0
    compile: float = 0.0
    read: float = 0.0
    execute: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was seen of (workload, variant, target, toolchain), computed once a run.

    ``separate_host_memory`` is False where host and device share one memory (CPU), so that
    placement cannot be observed. ``module_unreadable`` says why the toolchain would not hand over
    the module that it compiled. ``values`` is None where the program was not executed, and
    ``not_executed`` then says why; ``steps`` where no loop of steps was run. ``growth`` is there
    where the growing loop was timed, and nothing else of the variant was looked at then.
    ``hlo_gz`` is the HloProto of the module, gzipped, which the store keeps as a file of its own.
    ``warnings`` are what the framework warned of on the way (a donation that no output can use).
    ``cached`` says that an earlier run compiled the program.
    """

    workload: str
    variant: str
    target: str
    toolchain: Toolchain
    suite: str = ""
    separate_host_memory: bool = True
    device_count: int = 1
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
    seconds: Seconds = field(default_factory=Seconds)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is the evidence of: suite, workload, variant and target."""
        return self.suite, self.workload, self.variant, self.target

    @property
    def needed_bytes(self) -> int | None:
        """Device memory that the program needs: what the compiler reserves, at least the peak.

        The compiler's own sum leaves constants out, which are alive at the peak.
        """
        if self.memory is None:
            return None
        peak = self.module.peak if self.module else None
        return max(self.memory.device_bytes, peak.nbytes if peak else 0)
