"""What Assay asks of a framework, and what all frameworks share."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from assay.hlo.schema import wrap
from assay.model.blame import WrongType, line_of
from assay.model.evidence import (
    Counters,
    GrowthTimes,
    Loop,
    Memory,
    Step,
    Steps,
    StepsSeen,
    Tensor,
    Traced,
)
from assay.model.timing import DeviceTimes
from assay.model.workload import Growth, Program, Variant
from assay.targets import jax_internals
from assay.targets.emulation import own_of

_MEMORY_PARTS = (
    *("temp", "argument", "output", "alias"),
    *("host_temp", "host_argument", "host_output", "host_alias"),
)


class Unsupported(NotImplementedError):
    """The installed framework lacks what is asked of it: no fault of program or compiler."""


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


def tensor_of(path: str, value: Any) -> Tensor:
    """The result at that path, as numpy converts it."""
    array = np.asarray(value)  # tobytes is row-major for all strides
    return Tensor(path=path, dtype=array.dtype.name, shape=array.shape, data=array.tobytes())


def memory_of(stats: Any) -> Memory:
    """The compiler's memory analysis, bytes per device, from jaxlib's ``CompiledMemoryStats``."""
    sizes = {f"{part}_bytes": getattr(stats, f"{part}_size_in_bytes") for part in _MEMORY_PARTS}
    return Memory(**sizes, reported_peak_bytes=getattr(stats, "peak_memory_in_bytes", None))


@dataclass(frozen=True, slots=True)
class Compiled:
    """An executable of jaxlib, and the HloProto that its compiler dumped, if it did."""

    executable: Any
    dumped: bytes | None

    def memory(self) -> Memory:
        """The compiler's memory analysis, bytes per device."""
        return memory_of(self.executable.get_compiled_memory_stats())

    def hlo_proto(self) -> bytes:
        """The optimised module as a serialised HloProto, with the buffer assignment if dumped.

        Raises:
            ModuleUnreadable: this jaxlib cannot parse the plugin's module.
        """
        return self.dumped or wrap(jax_internals.loaded_protos(self.executable)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A program that is compiled and can be run repeatedly, to be timed.

    ``run(count)`` returns the seconds of ``count`` runs, at most ``most_runs``, each waited for;
    arguments that a run consumes are made before. ``trace_seconds`` and ``compile_seconds`` are
    None where the first run traces and compiles.
    """

    run: Callable[[int], float]
    most_runs: int = 64
    trace_seconds: float | None = None
    compile_seconds: float | None = None


class Framework:
    """The stages of one framework for one target; each may raise the framework's own exceptions.

    Laws: a stage that returns has done its work, without a cache of another run. Every compiled,
    run or timed program goes through ``check_placement``. The methods here are those of a
    framework that only compiles.
    """

    # ``Any`` is the framework's own object, passed from stage to stage unchanged.
    name: str

    def __init__(self, devices: Sequence[Any], platform: str) -> None:
        """``devices`` are the target's, jax's own; ``platform`` is ``cpu``, ``cuda`` or ``tpu``."""
        self.devices = tuple(devices)
        self.platform = platform

    def machine(self) -> AbstractContextManager[None]:
        """In it, code that asks the framework for its devices is given the target's."""
        return nullcontext()

    def trace(self, program: Program) -> Any:
        """The traced program."""
        raise NotImplementedError

    def lower(self, traced: Any) -> Any:
        """The traced program lowered for the platform; for the first device if it names none."""
        raise NotImplementedError

    def describe(self, program: Program, traced: Any, lowered: Any) -> Traced | None:
        """What tracing and lowering tell; ``lowered`` is None if that failed."""
        return None

    def what_is_compiled(self, lowered: Any) -> str:
        """All that the compiler is given: module, devices, options; "" if it cannot be cached."""
        return ""

    def compile(self, lowered: Any) -> Compiled:
        """The executable, for the devices that the program was lowered for."""
        raise NotImplementedError

    def device_memory_bytes(self) -> int | None:
        """The memory that programs can use on a live device; None if it does not say."""
        limit: int | None = (own_of(self.devices)[0].memory_stats() or {}).get("bytes_limit")
        return limit

    def execute(self, program: Program) -> tuple[Tensor, ...]:
        """The results of ``program.observe`` on ``program.values()``, computed on the devices."""
        raise self._lacks("values to run")

    def run_steps(self, steps: Steps) -> tuple[StepsSeen, tuple[Tensor, ...]]:
        """Run a training loop: the counters and modules of its steps (no graphs), its results."""
        raise self._lacks("a training loop")

    def time_growth(self, growth: Growth, most_seconds: float) -> GrowthTimes:
        """Wall times of the growing loop, or of tracing it, at each length alternately.

        A few are taken even after ``most_seconds``, and one however long it lasts.
        """
        raise self._lacks("a growing loop")

    def ready(self, program: Program) -> Ready:
        """The program's function on its values, or its loop's step, ready to be timed.

        Raises:
            Unsupported: the program has neither, or the framework cannot time it.
        """
        raise self._lacks("a program to time")

    def forget(self) -> None:
        """Clear what tracing left in caches, so that the next tracing does all its work again."""

    def profile(self, ready: Ready) -> DeviceTimes | None:
        """The device's own times of a run; None if it has none."""
        return None

    def _lacks(self, what: str) -> Unsupported:
        return Unsupported(f"got {what} for {self.name}, wanted one for jax; write it for jax")


def steps_seen(
    loop: Loop,
    count: int,
    step: Callable[[], tuple[Counters, Mapping[str, Any], Sequence[bytes]]],
) -> tuple[StepsSeen, tuple[Tensor, ...]]:
    """Run ``count`` steps, each of which gives its counters, results and serialised modules."""
    steps: list[Step] = []
    modules: list[bytes] = []
    results: list[Tensor] = []
    for number in range(count):
        counters, arrays, compiled = step()
        graphs = range(len(modules), len(modules) + len(compiled))
        steps.append(Step(counters=counters, graphs=tuple(graphs)))
        modules += compiled
        results += [tensor_of(f"step {number}: {name}", each) for name, each in arrays.items()]
    parameters = {name: tuple(tensor.shape) for name, tensor in loop.parameters.items()}
    seen = StepsSeen(steps=tuple(steps), modules=tuple(modules), parameters=parameters)
    return seen, tuple(results)


def built(variant: Variant, devices: Sequence[Any]) -> Program:
    """The variant's program. Its values, steps and growth raise ``WrongType`` for a wrong result.

    Raises:
        WrongType: ``Variant.program`` returned no program. Any other exception is its own.
    """
    what = f"program(devices) of variant {variant.name!r}"
    program: Program = _checked(variant.program, (Program,), what, "Program(function=…, …)")(
        devices
    )
    values, steps, growth = program.values, program.steps, program.growth
    if values is not None:
        values = _checked(values, (tuple, list), "Program.values()", "(first argument, …)")
    if steps is not None:
        build = _checked(steps.build, (Loop,), "Steps.build()", "Loop(step=…)")
        steps = replace(steps, build=partial(_checked_loop, build))
    if growth is not None:
        do = "(function, make_arguments)"
        build = _checked(growth.build, (tuple,), "Growth.build(length)", do)
        growth = replace(growth, build=build)
    return replace(program, values=values, steps=steps, growth=growth)


def _checked_loop(build: Callable[[], Loop]) -> Loop:
    loop = build()
    return replace(loop, step=_checked(loop.step, (Mapping,), "Loop.step()", "{name: result}"))


def _checked(
    function: Callable[..., Any], wanted: tuple[type, ...], what: str, do: str
) -> Callable[..., Any]:
    """The user's function, which returns one of the wanted types or raises ``WrongType``."""

    def call(*arguments: Any) -> Any:
        given = function(*arguments)
        if not isinstance(given, wanted):
            line = line_of(function)
            names = " or ".join(each.__name__ for each in wanted)
            raise WrongType(
                f"{f'{line}: ' if line else ''}got {type(given).__name__} from {what}, "
                f"wanted {names}; return {do}"
            )
        return given

    return call
