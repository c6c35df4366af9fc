"""Training loops of a framework: what is counted in each step, and the graphs it compiled."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.model.module import Shape


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
