"""A compiled program: its numbers as attributes, and its page."""

import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from assay.hlo.schema import split
from assay.judge.differences.inspections import compare
from assay.model.claim import MeasurementMissing
from assay.model.evidence import Evidence, FailureKind
from assay.model.inspection import Comparison, Inspection, Means, Overlap
from assay.model.module import Transfer
from assay.model.summary import (
    Donation,
    FullBufferWrite,
    ModuleSummary,
    Peak,
    copied_bytes_per_iteration,
    full_buffer_writes_in_loops,
)
from assay.model.target import TargetUnavailable, unavailable
from assay.model.units import format_bytes, parse_bytes
from assay.report.inspection_page import print_comparison, print_inspection
from assay.targets import resolve
from assay.targets.jax_internals import hlo_text

_WIDTH: Final = 100
_NAMED: Final = 2


class CompileError(Exception):
    """The program does not trace, lower or compile; the message names the user's line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one device, as the compiler reports them; ``host_…`` are bytes in host memory.

    ``peak_bytes`` is the device memory at the moment when most is allocated, None where the
    compiler gives no buffer assignment.
    """

    temp_bytes: int
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    host_temp_bytes: int
    host_argument_bytes: int
    host_output_bytes: int
    host_alias_bytes: int
    peak_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """Bytes between device and host memory in one run, with loops counted, and the operations."""

    to_host_bytes: int
    to_device_bytes: int
    operations: tuple[Transfer, ...]


@dataclass(frozen=True, slots=True)
class Fits:
    """Whether the program fits the device's memory; true or false in an ``if`` or an ``assert``."""

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
        sizes = [
            "unknown" if number is None else format_bytes(number)
            for number in (self.needed_bytes, self.available_bytes)
        ]
        return f"Fits(needed {sizes[0]}, available {sizes[1]})"


class LoopCopies(tuple[FullBufferWrite, ...]):
    """Full-buffer writes in loop bodies, largest first; empty if there is none."""

    __slots__ = ()

    @property
    def bytes_per_iteration(self) -> int:
        """The most bytes that an iteration of one loop writes in them."""
        return copied_bytes_per_iteration(self, larger_than=-1)

    def __repr__(self) -> str:
        if not self:
            return "LoopCopies(none)"
        named = [
            f"{each.opcode} {each.shape} at {each.source or each.instruction}"
            for each in self[:_NAMED]
        ]
        more = [f"and {len(self) - _NAMED} more"] if len(self) > _NAMED else []
        size = format_bytes(self.bytes_per_iteration)
        return f"LoopCopies({size} per iteration: {', '.join([*named, *more])})"


class Difference:
    """How one program differs from another; true if it does. ``print`` it to read it.

    ``bool`` raises ``MeasurementMissing`` if one of the two has no module to read.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    def __bool__(self) -> bool:
        found = self.comparison.differences
        if found is None:
            why = self.comparison.error or "no module to read"
            raise MeasurementMissing(f"got two programs that cannot be compared: {why}")
        return bool(found)

    def __repr__(self) -> str:
        return _printed(lambda console: print_comparison(console, self.comparison, _WIDTH))


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
        """Whether temporaries, arguments and outputs, less aliases, fit the device's memory."""
        self.fits_was_read = True
        evidence = self.inspection.evidence
        failure = evidence.failure
        if failure is not None:
            return Fits(failure.needed_bytes, failure.capacity_bytes, refused=True)
        return Fits(evidence.needed_bytes, evidence.device_memory_bytes)

    @property
    def memory(self) -> Memory:
        """The compiler's memory analysis."""
        memory = self._compiled().memory
        if memory is None:
            raise MeasurementMissing("got no memory analysis from the compiler")
        return Memory(
            **{
                name: getattr(memory, name)
                for name in Memory.__dataclass_fields__
                if name != "peak_bytes"
            },
            peak_bytes=self.inspection.peak_bytes,
        )

    @property
    def transfers(self) -> Transfers:
        """Bytes copied between device and host memory."""
        module = self._module()
        if not self.inspection.evidence.separate_host_memory:
            raise MeasurementMissing(
                f"got {self.target}, which has one memory, wanted transfers to the host; name a "
                "GPU or TPU target"
            )
        to_host, to_device = module.to_host_bytes_per_run, module.to_device_bytes_per_run
        # An upper bound is no measurement: what is in a conditional may never cross.
        bounded = any(each.at_most for each in module.transfers)
        if to_host is None or to_device is None or bounded:
            raise MeasurementMissing(
                "got transfers that run an unknown number of times, wanted the bytes of a run; "
                "give the loop a static length, or take the transfer out of the conditional"
            )
        return Transfers(
            to_host_bytes=to_host, to_device_bytes=to_device, operations=module.transfers
        )

    def loop_copies(self, at_least: int | str = 1) -> LoopCopies:
        """Full-buffer writes in loop bodies, of arrays of ``at_least`` bytes (``"1MiB"``).

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
        peak = self._module().peak
        if peak is None:
            raise MeasurementMissing("got no buffer assignment from the compiler")
        return peak

    @property
    def donations(self) -> tuple[Donation, ...]:
        """The donated arguments, and whether an output reuses the buffer of each."""
        return self._module().donations

    @property
    def hlo(self) -> str:
        """The optimized module as HLO text."""
        proto = self._compiled().hlo_gz
        if not proto:
            raise MeasurementMissing("got no module of this program, wanted its HLO")
        return hlo_text(split(gzip.decompress(proto))[0])

    def diff(self, other: "Compiled") -> Difference:
        """How this program differs from another one, most important first."""
        return Difference(compare(other.inspection, self.inspection))

    def _compiled(self) -> Evidence:
        if self.inspection.error:
            error = self.inspection.error
            raise CompileError(f"{self.inspection.subject} on {self.target}: {error}")
        return self.inspection.evidence

    def _module(self) -> ModuleSummary:
        evidence = self._compiled()
        if evidence.module is None:
            raise MeasurementMissing(
                f"got a module that this jaxlib cannot read: {evidence.module_unreadable}"
            )
        return evidence.module

    def __repr__(self) -> str:
        return f"<Compiled {self.inspection.subject} on {self.target}>"

    def __str__(self) -> str:
        return _printed(lambda console: print_inspection(console, self.inspection))

    def _repr_html_(self) -> str:
        console = Console(record=True, file=io.StringIO(), width=_WIDTH)
        print_inspection(console, self.inspection)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


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
        raise TargetUnavailable(evidence.target, unavailable(why.reason, remedy))
    failure = evidence.failure
    if failure is not None and failure.kind is not FailureKind.OUT_OF_MEMORY:
        raise CompileError(f"{evidence.variant} on {evidence.target}: {inspection.error}")
    return Compiled(inspection)


def _printed(write: Callable[[Console], None]) -> str:
    file = io.StringIO()
    write(Console(file=file, width=_WIDTH, highlight=False))
    return file.getvalue().rstrip()
