"""The contract between Assay and a framework, and the frameworks that are installed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

from assay.model.evidence import GrowthTimes, Memory, Tensor, Traced
from assay.model.steps import Counters, Steps
from assay.model.workload import Growth, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class RanStep:
    """One step that ran: ``compiled`` are the serialised modules that it had compiled."""

    counters: Counters
    results: tuple[Tensor, ...]
    compiled: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RanSteps:
    """A loop that ran; ``parameters`` are the shapes of its model's tensors by name."""

    steps: tuple[RanStep, ...]
    parameters: Mapping[str, tuple[int, ...]]


class Compiled(Protocol):
    """An executable, live or compile-only."""

    def memory(self) -> Memory:
        """The compiler's memory analysis."""

    def hlo_proto(self) -> bytes:
        """The optimised module as a serialised HloProto, with the buffer assignment if it is known.

        Raises what the toolchain raises where it cannot hand over what it compiled.
        """


class Framework(Protocol):
    """The stages of one framework, each of which may fail with the framework's own exception.

    Law: a stage that returns has really done its work; nothing is read from a cache of another run.
    """

    # ``Any`` is the framework's own object, passed from stage to stage untouched.

    def trace(self, program: Program) -> Any:
        """The traced program."""

    def lower(self, traced: Any, platform: str) -> Any:
        """The traced program lowered for ``cpu``, ``cuda`` or ``tpu``."""

    def describe(self, program: Program, traced: Any, lowered: Any) -> Traced:
        """What tracing and lowering tell; ``lowered`` is None where lowering failed."""

    def compile(self, lowered: Any, devices: Sequence[Any]) -> Compiled:
        """The executable, for the devices that the program was lowered for or for the first."""

    def device_memory_bytes(self, device: Any) -> int | None:
        """The memory that a live device says programs can use; None where it says nothing."""

    def execute(self, program: Program, devices: Sequence[Any]) -> tuple[Tensor, ...]:
        """The results that the program lets be observed, computed on the devices."""

    def time_growth(self, growth: Growth, devices: Sequence[Any]) -> GrowthTimes:
        """Wall times of the growing loop, short and long in turns, each run on fresh arguments."""

    def run_steps(self, steps: Steps) -> RanSteps:
        """Run a training loop and tell what was counted in each step, and what it compiled.

        Raises ``Unsupported`` where the framework has no steps that could be counted.
        """


class Unsupported(NotImplementedError):
    """The installed version of a framework lacks what is asked of it; the message says what to do.

    Neither the program nor the compiler is at fault.
    """


class FrameworkMissing(LookupError):
    """The framework is not installed; the message names the command that installs it."""


def _jax() -> Framework:
    from assay.frameworks.jax import JaxFramework

    return JaxFramework()


def _hlo() -> Framework:
    from assay.frameworks.hlo import HloFramework

    return HloFramework()


def _torch_xla() -> Framework:
    preload("torch_xla")
    from assay.frameworks.torch_xla import TorchXlaFramework

    return TorchXlaFramework()


_FRAMEWORKS: dict[str, Callable[[], Framework]] = {
    "jax": _jax,
    "hlo": _hlo,
    "torch_xla": _torch_xla,
}
_PACKAGE = {"jax": "jax", "hlo": "jaxlib", "torch_xla": "torch_xla"}
_INSTALL = {
    "jax": "pip install jax",
    "hlo": "pip install jax",
    "torch_xla": "tox run -e torch_xla, or pip install 'assay-xla[torch_xla]' (7 GB)",
}
_KEEPS_STATE = frozenset({"torch_xla"})


def keeps_state(name: str) -> bool:
    """Whether what a framework compiled and counted for one program shows in the next one.

    Its programs are then observed in a process each.
    """
    return name in _KEEPS_STATE


def preload(name: str) -> None:
    """Import a framework, as far as a process that only forks may."""
    if name == "torch_xla" and find_spec("torch_xla") is not None:
        from assay.frameworks.torch_xla_internals import import_only

        import_only()


def framework(name: str) -> Framework:
    """The framework of that name.

    Raises:
        FrameworkMissing: unknown or not installed.
    """
    if name not in _FRAMEWORKS:
        known = ", ".join(sorted(_FRAMEWORKS))
        raise FrameworkMissing(f"got framework {name!r}, wanted one of {known}")
    if find_spec(_PACKAGE[name]) is None:
        raise FrameworkMissing(f"{name} is not installed; {_INSTALL[name]}")
    return _FRAMEWORKS[name]()
