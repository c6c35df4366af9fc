"""``assay.compile``: one program compiled for a target, its numbers as attributes, and its page."""

import atexit
import gzip
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final, TypeVar

from rich.console import Console

from assay.hlo.schema import split
from assay.isolate import Processes
from assay.judge.differences.inspections import compare
from assay.model.blame import WrongValue, legible
from assay.model.claim import MeasurementMissing
from assay.model.evidence import Evidence, FailureKind
from assay.model.evidence import Memory as MemoryAnalysis
from assay.model.inspection import Comparison, Inspection, Means, Overlap
from assay.model.module import Collective, Transfer
from assay.model.summary import (
    Donation,
    FullBufferWrite,
    ModuleSummary,
    Peak,
    copied_bytes_per_iteration,
    full_buffer_writes_in_loops,
)
from assay.model.target import TargetUnavailable, Unavailable
from assay.model.units import format_bytes, parse_bytes
from assay.model.workload import Program, Role, Variant, Workload
from assay.report.inspection_output import memory_in_words, print_comparison, print_inspection
from assay.targets import resolve
from assay.targets.jax_internals import hlo_text

_WIDTH: Final = 100
_NAMED: Final = 2
_RUNS_UNKNOWN: Final = (
    "got a {0} that runs an unknown number of times, wanted the bytes of a run; give the loop a "
    "static length, or take the {0} out of the conditional"
)
_T = TypeVar("_T")


def compile(  # noqa: A001, PLR0913 - the public name, and jax.jit's own arguments
    function: Callable[..., Any],
    *arguments: Any,
    target: str = "cpu",
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: int | Sequence[int] = (),
    static_argnums: int | Sequence[int] = (),
    context: Callable[[], Any] | None = None,
    timeout_seconds: float = 600.0,
) -> "Compiled":
    """Compile ``function(*arguments)`` for a target, with or without its hardware.

    ``arguments`` are arrays, numpy arrays or ``ShapeDtypeStruct``. Only their shapes, types and
    shardings are used. A single function may return them instead; it is traced and not run.

    Shardings on this machine's devices are moved to the target's devices. ``in_shardings`` and
    ``out_shardings`` may also be functions of the target's devices. A program without shardings is
    placed on the first device. The program is compiled in a child process, where ``jax.devices()``
    gives the target's devices. It is traced there inside the context manager that ``context()``
    returns, such as ``jax.set_mesh(mesh)``.

    Raises:
        CompileError: it does not trace, lower or compile within ``timeout_seconds``. A program that
            needs too much device memory does not raise; its ``fits`` is false.
        TargetError: no target has that name.
        TargetUnavailable: its compiler is not installed, or cannot compile this program.
        ValueError: ``function`` is no function, or cannot be sent to the child process.
    """
    name = str(resolve(target).name)
    workload = workload_of(
        function,
        arguments,
        suite="compile",
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        donate_argnums=donate_argnums,
        static_argnums=static_argnums,
        context=context,
    )
    observer = _PROCESSES.of(name, timeout_seconds)
    return compiled(observer.observe(workload, workload.variants[0], name))


def workload_of(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    suite: str,
    name: str = "program",
    **options: Any,
) -> Workload:
    """The workload of one function; its arguments are sent as shapes.

    ``options`` are the other arguments of ``compile`` that describe the program.
    """
    if not callable(function):
        raise WrongValue(
            f"got {type(function).__name__} to compile, wanted a function; write "
            "assay.compile(train_step, params, batch, target=…)"
        )
    if not _are_made(arguments):
        # Imports jax, which a caller with arguments of its own has done.
        from assay.frameworks.jax_placement import shapes_of

        arguments = shapes_of(arguments)
    program = partial(_program, function=function, arguments=arguments, **options)
    variant = Variant(name=title_of(function), role=Role.CONTROL, program=program)
    return Workload(suite=suite, name=name, variants=(variant,))


def title_of(function: Callable[..., Any]) -> str:
    """The function's own name, as part of an id."""
    own = getattr(function, "func", function)
    return legible(getattr(own, "__name__", type(own).__name__))


def _program(devices: Sequence[Any], arguments: tuple[Any, ...], **options: Any) -> Program:
    for name in ("in_shardings", "out_shardings"):
        if isinstance(options[name], FunctionType | partial):
            options[name] = options[name](devices)
    for name in ("donate_argnums", "static_argnums"):
        given = options[name]
        options[name] = (given,) if isinstance(given, int) else tuple(given)
    if _are_made(arguments):
        return Program(make_arguments=arguments[0], **options)
    return Program(arguments=arguments, **options)


def _are_made(arguments: tuple[Any, ...]) -> bool:
    """Whether ``arguments`` is a single function, which returns the arguments."""
    return len(arguments) == 1 and isinstance(arguments[0], FunctionType | MethodType | partial)


class CompileError(Exception):
    """The program does not trace, lower or compile; the message names the user's line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(MemoryAnalysis):
    """Bytes on one device, as the compiler reports them; ``host_…`` are bytes in host memory.

    ``peak_bytes`` is the device memory at the moment when most is allocated, None if the compiler
    gives no buffer assignment. Only ``device_bytes`` includes the ``library_bytes``.
    """

    peak_bytes: int | None
    __repr__ = memory_in_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """Bytes between device and host memory in one run, with loops counted, and the operations."""

    to_host_bytes: int
    to_device_bytes: int
    operations: tuple[Transfer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """Bytes that a device sends to others in one run, with loops counted, and the operations."""

    sent_bytes: int
    operations: tuple[Collective, ...]


@dataclass(frozen=True, slots=True)
class Fits:
    """Whether the program fits its device; ``bool`` raises ``MeasurementMissing`` if unknown."""

    needed_bytes: int | None
    available_bytes: int | None
    refused: bool = False

    def __bool__(self) -> bool:
        if self.refused:
            return False
        if self.needed_bytes is None or self.available_bytes is None:
            raise MeasurementMissing(
                "got a target whose device memory is not known, wanted to know whether a program "
                "fits; name a target with a device model, such as tpu-v5e:2x4"
            )
        return self.needed_bytes <= self.available_bytes

    def __repr__(self) -> str:
        numbers = (self.needed_bytes, self.available_bytes)
        needed, available = ("unknown" if n is None else format_bytes(n) for n in numbers)
        return f"Fits(needed {needed}, available {available})"


class LoopCopies(tuple[FullBufferWrite, ...]):
    """Full-buffer writes in loop bodies, largest first; empty if there is none."""

    __slots__ = ()

    @property
    def bytes_per_iteration(self) -> int:
        """The most bytes that one iteration of any loop writes in these full-buffer writes."""
        return copied_bytes_per_iteration(self, larger_than=-1)

    def __repr__(self) -> str:
        if not self:
            return "LoopCopies(none)"
        named = [f"{one.opcode} {one.shape} at {one.source or one.instruction}" for one in self]
        if len(self) > _NAMED:
            named[_NAMED:] = [f"and {len(self) - _NAMED} more"]
        size = format_bytes(self.bytes_per_iteration)
        return f"LoopCopies({size} per iteration: {', '.join(named)})"


class Difference:
    """How one program differs from another; true if it does. ``print`` it to read it.

    ``bool`` raises ``MeasurementMissing`` if one of the two has no module to read.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    def __bool__(self) -> bool:
        if self.comparison.differences is None:
            why = self.comparison.error or "no module to read"
            raise MeasurementMissing(f"got two programs that cannot be compared: {why}")
        return bool(self.comparison.differences)

    def __repr__(self) -> str:
        return _printed(lambda console: print_comparison(console, self.comparison))


class Compiled:
    """A program compiled for a target. ``print`` it for the page that ``assay inspect`` prints.

    Every number is per device and per run. A property raises ``MeasurementMissing`` if this target
    or compiler does not report it. If the compiler refused the program because it needs too much
    memory, only ``fits`` is known, and the other properties raise ``CompileError``.
    """

    def __init__(self, inspection: Inspection) -> None:
        self.inspection = inspection
        self.fits_was_read = False

    @property
    def refused(self) -> bool:
        """Whether the compiler refused the program for want of memory."""
        return self.inspection.evidence.failure is not None

    @property
    def target(self) -> str:
        """The target's name."""
        return self.inspection.evidence.target

    @property
    def fits(self) -> Fits:
        """Whether ``memory.device_bytes``, or the peak if it is more, fits the device's memory."""
        self.fits_was_read = True
        evidence = self.inspection.evidence
        if failure := evidence.failure:
            return Fits(failure.needed_bytes, failure.capacity_bytes, refused=True)
        return Fits(evidence.needed_bytes, evidence.device_memory_bytes)

    @property
    def memory(self) -> Memory:
        """The compiler's memory analysis."""
        memory = _measured(self._compiled().memory, "got no memory analysis from the compiler")
        return Memory(**asdict(memory), peak_bytes=self.inspection.peak_bytes)

    @property
    def transfers(self) -> Transfers:
        """Bytes copied between device and host memory."""
        module = self._module()
        if not self.inspection.evidence.separate_host_memory:
            raise MeasurementMissing(
                f"got {self.target}, which has one memory, wanted transfers to the host; name a "
                "GPU or TPU target"
            )
        unknown = _RUNS_UNKNOWN.format("transfer")
        # An upper bound is no measurement: a conditional may skip its transfers.
        if any(each.at_most for each in module.transfers):
            raise MeasurementMissing(unknown)
        return Transfers(
            to_host_bytes=_measured(module.to_host_bytes_per_run, unknown),
            to_device_bytes=_measured(module.to_device_bytes_per_run, unknown),
            operations=module.transfers,
        )

    @property
    def collectives(self) -> Collectives:
        """Bytes sent to other devices by collectives, as `assay.hlo.collectives` counts them."""
        found = self._module().collectives
        unknown = _RUNS_UNKNOWN.format("collective")
        uncertain = any(each.at_most for each in found)
        sent = None if uncertain else self._module().collective_bytes_per_run
        return Collectives(sent_bytes=_measured(sent, unknown), operations=found)

    def loop_copies(self, at_least: int | str = 1) -> LoopCopies:
        """Full-buffer writes in loop bodies, of arrays of ``at_least`` bytes or more (``"1MiB"``).

        A full-buffer write writes a whole array although only a part of it changed, or nothing.
        Host transfers are not counted.
        """
        module = self._module()
        if not module.buffers_assigned:
            raise MeasurementMissing(
                "got no buffer assignment from the compiler, wanted to know which updates happen "
                "in place; use a compiler that takes xla_dump_to as a compile option"
            )
        found = full_buffer_writes_in_loops(module.full_buffer_writes, parse_bytes(at_least) - 1)
        return LoopCopies(each for each in found if not each.crosses_host_link)

    @property
    def overlap(self) -> tuple[Overlap, ...]:
        """Asynchronous operations and the work that hides them, longest exposed first."""
        self._module()
        return self.inspection.overlaps

    @property
    def peak(self) -> Peak:
        """The buffers allocated at the moment of peak device memory, largest first."""
        return _measured(self._module().peak, "got no buffer assignment from the compiler")

    @property
    def donations(self) -> tuple[Donation, ...]:
        """The donated arguments, and whether an output reuses the buffer of each."""
        return self._module().donations

    @property
    def hlo(self) -> str:
        """The optimized module as HLO text."""
        packed = self._compiled().hlo_gz or None
        proto = _measured(packed, "got no module of this program, wanted its HLO")
        return hlo_text(split(gzip.decompress(proto))[0])

    def diff(self, other: "Compiled") -> Difference:
        """How this program differs from another one, most important first."""
        return Difference(compare(other.inspection, self.inspection))

    def _compiled(self) -> Evidence:
        if error := self.inspection.error:
            raise CompileError(f"{self.inspection.subject} on {self.target}: {error}")
        return self.inspection.evidence

    def _module(self) -> ModuleSummary:
        evidence = self._compiled()
        why = f"got a module that this jaxlib cannot read: {evidence.module_unreadable}"
        return _measured(evidence.module, why)

    def __repr__(self) -> str:
        return f"<Compiled {self.inspection.subject} on {self.target}>"

    def __str__(self) -> str:
        return _printed(lambda console: print_inspection(console, self.inspection))

    def _repr_html_(self) -> str:
        console = Console(record=True, file=io.StringIO(), width=_WIDTH)
        print_inspection(console, self.inspection)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def _measured(value: _T | None, missing: str) -> _T:
    if value is None:
        raise MeasurementMissing(missing)
    return value


def compiled(evidence: Evidence) -> Compiled:
    """The compiled program, or the exception that says why there is none.

    Raises:
        CompileError, TargetUnavailable: as ``compile`` does.
    """
    __tracebackhide__ = True
    inspection = Inspection(
        subject=evidence.variant,
        means=Means.COMPILED,
        evidence=evidence,
        device=resolve(evidence.target).model,
    )
    if (why := evidence.unavailable) is not None:
        remedy = why.remedy or "use another target or toolchain"
        raise TargetUnavailable(evidence.target, Unavailable(why.reason, remedy))
    if evidence.failure and evidence.failure.kind is not FailureKind.OUT_OF_MEMORY:
        raise CompileError(f"{evidence.variant} on {evidence.target}: {inspection.error}")
    return Compiled(inspection)


def _printed(write: Callable[[Console], None]) -> str:
    file = io.StringIO()
    write(Console(file=file, width=_WIDTH, highlight=False))
    return file.getvalue().rstrip()


_PROCESSES: Final = Processes()
atexit.register(_PROCESSES.close)
