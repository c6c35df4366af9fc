"""The contract between Assay and a framework; the built program, and what all frameworks read."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from assay.hlo.canonical import canonical
from assay.hlo.module import Module
from assay.hlo.schema import split
from assay.model.blame import WrongType, line_of
from assay.model.evidence import (
    Counters,
    GrowthTimes,
    Loop,
    Memory,
    Step,
    StepGraph,
    Steps,
    StepsSeen,
    Tensor,
    Traced,
)
from assay.model.timing import Calibration, DeviceTimes
from assay.model.workload import Growth, Program, Variant


def memory_of(stats: Any) -> Memory:
    """The compiler's memory analysis, bytes per device."""
    return Memory(
        temp_bytes=stats.temp_size_in_bytes,
        argument_bytes=stats.argument_size_in_bytes,
        output_bytes=stats.output_size_in_bytes,
        alias_bytes=stats.alias_size_in_bytes,
        host_temp_bytes=stats.host_temp_size_in_bytes,
        host_argument_bytes=stats.host_argument_size_in_bytes,
        host_output_bytes=stats.host_output_size_in_bytes,
        host_alias_bytes=stats.host_alias_size_in_bytes,
        reported_peak_bytes=getattr(stats, "peak_memory_in_bytes", None),
    )


def tensor_of(path: str, leaf: Any) -> Tensor:
    """An array, or what numpy makes one of, by the name that it has among results."""
    array = np.asarray(leaf)  # tobytes is row-major for all strides
    return Tensor(path=path, dtype=array.dtype.name, shape=array.shape, data=array.tobytes())


class Misplaced(RuntimeError):
    """The measurement ran on other devices than the target's. This is a fault of Assay."""


def check_placement(used: Iterable[Hashable], target: Iterable[Hashable]) -> None:
    """Raise ``Misplaced`` unless the target has every device that an executable or a result uses.

    Every framework calls this for everything that it compiles, runs or times.
    """
    wanted = set(target)
    foreign = set(used) - wanted
    if foreign:
        raise Misplaced(
            f"got a measurement on {_names(foreign)}, wanted one on the target's devices, "
            f"{_names(wanted)}; this would be a verdict on another compiler: report it"
        )


def _names(devices: Iterable[Hashable]) -> str:
    names = sorted(map(str, devices))
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if names[2:] else "")


def built(variant: Variant, devices: Sequence[Any]) -> Program:
    """The variant's program; every function of it says so where it gives a wrong type.

    Raises:
        WrongType: what ``Variant.program`` returned is no program. Any other exception is its own.
    """
    program: Program = _Giving(
        variant.program,
        Program,
        f"program(devices) of variant {variant.name!r}",
        "Program(function=…, …)",
    )(devices)
    return replace(
        program,
        values=_checked(program.values, (tuple, list), "Program.values()", "(first argument, …)"),
        steps=_steps(program.steps),
        growth=_growth(program.growth),
    )


def _steps(steps: Steps | None) -> Steps | None:
    if steps is None:
        return None
    build = _Giving(steps.build, Loop, "Steps.build()", "Loop(step=…)")

    def build_loop() -> Loop:
        loop: Loop = build()
        return replace(loop, step=_Giving(loop.step, Mapping, "Loop.step()", "{name: result}"))

    return replace(steps, build=build_loop)


def _growth(growth: Growth | None) -> Growth | None:
    if growth is None:
        return None
    build = _Giving(growth.build, tuple, "Growth.build(length)", "(function, make_arguments)")
    return replace(growth, build=build)


def _checked(
    function: Callable[..., Any] | None, wanted: type | tuple[type, ...], what: str, do: str
) -> Callable[..., Any] | None:
    return _Giving(function, wanted, what, do) if function is not None else None


@dataclass(frozen=True, slots=True)
class _Giving:
    """The user's function, which gives one of the wanted types or raises ``WrongType``."""

    function: Callable[..., Any]
    wanted: type | tuple[type, ...]
    what: str
    do: str

    def __call__(self, *arguments: Any) -> Any:
        given = self.function(*arguments)
        if not isinstance(given, self.wanted):
            line = line_of(self.function)
            types = self.wanted if isinstance(self.wanted, tuple) else (self.wanted,)
            names = " or ".join(each.__name__ for each in types)
            raise WrongType(
                f"{f'{line}: ' if line else ''}got {type(given).__name__} from {self.what}, "
                f"wanted {names}; return {self.do}"
            )
        return given


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


class Ready(Protocol):
    """A program that was compiled and can be run again and again, to be timed.

    ``trace_seconds`` and ``compile_seconds`` are None where they fall into the first run.
    ``most_runs`` bounds the runs that may be asked for at once.
    """

    @property
    def trace_seconds(self) -> float | None:
        """What tracing and lowering took."""

    @property
    def compile_seconds(self) -> float | None:
        """What compiling took."""

    @property
    def most_runs(self) -> int:
        """How many runs can be made ready at a time."""

    def run(self, count: int) -> float:
        """The seconds of so many runs, each waited for; what they consume is made before."""


class Framework(Protocol):
    """The stages of one framework, each of which may fail with the framework's own exception.

    Laws: a stage that returns has really done its work; it reads nothing from a cache of another
    run. Every compiled, run or timed program goes through ``check_placement``.
    """

    # ``Any`` is the framework's own object, passed from stage to stage untouched.

    def machine(self, devices: Sequence[Any]) -> AbstractContextManager[None]:
        """In it, code that asks the framework for its devices is given these."""

    def trace(self, program: Program, devices: Sequence[Any]) -> Any:
        """The traced program; ``devices`` are the target's, which tracing may ask about."""

    def lower(self, traced: Any, platform: str, devices: Sequence[Any]) -> Any:
        """The traced program lowered for ``cpu``, ``cuda`` or ``tpu``.

        ``devices`` are the target's; a program that names none is for the first.
        """

    def describe(self, program: Program, traced: Any, lowered: Any) -> Traced | None:
        """What tracing and lowering tell, if they do; ``lowered`` is None where that failed."""

    def what_is_compiled(self, lowered: Any) -> str:
        """All that the compiler is given: module, devices, options; empty if that is not known."""

    def compile(self, lowered: Any, devices: Sequence[Any]) -> Compiled:
        """The executable, for the devices that the program was lowered for."""

    def device_memory_bytes(self, device: Any) -> int | None:
        """The memory that a live device says programs can use; None where it says nothing."""

    def execute(self, program: Program, devices: Sequence[Any]) -> tuple[Tensor, ...]:
        """The results that the program lets be observed, computed on the devices."""

    def time_growth(
        self, growth: Growth, devices: Sequence[Any], most_seconds: float
    ) -> GrowthTimes:
        """Wall times of the growing loop, or of tracing it, short and long in turns, each anew.

        A few turns are taken even after ``most_seconds``, and one however long it lasts.
        """

    def ready(self, program: Program, devices: Sequence[Any], platform: str) -> Ready:
        """The program's function on its values, or its loop's step, ready to be timed.

        Raises ``Unsupported`` where the program has neither, or the framework cannot time it.
        """

    def forget(self) -> None:
        """Drop what tracing left behind, so that the next tracing finds nothing done."""

    def calibrate(self, devices: Sequence[Any]) -> Calibration:
        """Times of fixed work on the first of the devices."""

    def profile(self, ready: Ready) -> DeviceTimes | None:
        """The device's own times of a run, None where it has none to tell."""

    def run_steps(self, steps: Steps, devices: Sequence[Any]) -> RanSteps:
        """Run a training loop and tell what was counted in each step, and what it compiled.

        Raises ``Unsupported`` where the framework has no steps that could be counted.
        """


class Unsupported(NotImplementedError):
    """The installed version of a framework lacks what is asked of it; the message says what to do.

    Neither the program nor the compiler is at fault.
    """


def steps_seen(ran: RanSteps) -> StepsSeen:
    """Each step with what was counted in it, and the graphs that it had compiled."""
    graphs: list[StepGraph] = []
    steps = []
    for step in ran.steps:
        first = len(graphs)
        graphs += [canonical(Module.from_proto(split(proto)[0])) for proto in step.compiled]
        steps.append(Step(counters=step.counters, graphs=tuple(range(first, len(graphs)))))
    return StepsSeen(
        steps=tuple(steps),
        graphs=tuple(graphs),
        modules=tuple(proto for step in ran.steps for proto in step.compiled),
        parameters=dict(ran.parameters),
    )
