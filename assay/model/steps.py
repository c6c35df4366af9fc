"""Steps: a training loop of a lazy-tensor framework, and what is counted while it runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.model.step_graph import StepGraph


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
