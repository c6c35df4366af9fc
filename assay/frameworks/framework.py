"""The contract between Assay and a framework, and the frameworks that are installed."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

from assay.model.evidence import GrowthTimes, Memory, Tensor, Traced
from assay.model.workload import Growth, Program


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

    def compile(self, lowered: Any) -> Compiled:
        """The executable."""

    def device_memory_bytes(self, device: Any) -> int | None:
        """The memory that a live device says programs can use; None where it says nothing."""

    def execute(self, program: Program, devices: Sequence[Any]) -> tuple[Tensor, ...]:
        """The results that the program lets be observed, computed on the devices."""

    def time_growth(self, growth: Growth, devices: Sequence[Any]) -> GrowthTimes:
        """Wall times of the growing loop, short and long in turns, each run on fresh arguments."""


class FrameworkMissing(LookupError):
    """The framework is not installed; the message names the command that installs it."""


def _jax() -> Framework:
    from assay.frameworks.jax import JaxFramework

    return JaxFramework()


def _hlo() -> Framework:
    from assay.frameworks.hlo import HloFramework

    return HloFramework()


_FRAMEWORKS: dict[str, Callable[[], Framework]] = {"jax": _jax, "hlo": _hlo}
_PACKAGE = {"jax": "jax", "hlo": "jaxlib"}
_INSTALL = {"jax": "pip install jax", "hlo": "pip install jax"}


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
