"""An inspection: one program on one target; and how two inspections differ."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.module import AsyncPair
from assay.model.summary import Donation, FullBufferWrite, ModuleSummary
from assay.model.target import DeviceModel
from assay.model.units import format_bytes


class Aspect(Enum):
    """The subject of a difference; most important first."""

    MEMORY = "memory"
    ARGUMENT = "argument"
    OUTPUT = "output"
    SHARED_BUFFER = "shared buffer"
    DONATION = "donation"
    LAYOUT = "layout"
    FULL_BUFFER_WRITE = "full-buffer write"
    HOST_PLACEMENT = "host placement"
    TRANSFER = "transfer"
    LOOP = "loop"
    TRIPS = "trip count"
    OVERLAP = "overlap"
    COLLECTIVE = "collective"
    FUSION = "fusion"
    OPERATION = "operation"
    UNNAMED = "unnamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference of the second program from the first.

    ``before`` and ``after`` count the ``subject``; for memory they are bytes. One None is an
    unknown count; two are a difference without counts. ``nbytes`` is the second program's size
    minus the first's, None if unknown: bytes per run for full-buffer writes and transfers,
    otherwise the sizes of the arrays. ``source`` names the source lines.
    """

    aspect: Aspect
    subject: str
    before: int | None = None
    after: int | None = None
    where: str = ""
    nbytes: int | None = 0
    source: str | None = None

    def __str__(self) -> str:
        text = self.subject
        if self.before != self.after:
            text += f" {self._number(self.before)} → {self._number(self.after)}"
        text += f" {self.where}" if self.where else ""
        if self.aspect in {Aspect.FULL_BUFFER_WRITE, Aspect.TRANSFER}:
            if self.nbytes is None:
                text += ", unknown how often"
            elif self.nbytes:
                sign = "+" if self.nbytes > 0 else "−"
                text += f", {sign}{format_bytes(abs(self.nbytes))} per run"
        return f"{text}, {self.source}" if self.source else text

    def _number(self, number: int | None) -> str:
        if number is None:
            return "unknown"
        return format_bytes(number) if self.aspect is Aspect.MEMORY else str(number)

    @property
    def weight(self) -> tuple[int, float, str]:
        """Sorts the most important first: by aspect, then by bytes."""
        size = float("inf") if self.nbytes is None else abs(self.nbytes)
        return list(Aspect).index(self.aspect), -size, str(self)


class Means(Enum):
    """The origin of an inspected module."""

    COMPILED = "compiled"
    AS_IT_STANDS = "read as it stands"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """An asynchronous operation with times from a device model.

    ``needed_seconds`` is the time of one execution, ``work_seconds`` that of the work between start
    and done. None if the schedule or the model lacks the number.
    """

    pair: AsyncPair
    needed_seconds: float | None
    work_seconds: float | None

    @property
    def hidden_seconds(self) -> float | None:
        """The part of one execution that overlapping work hides."""
        if self.needed_seconds is None or self.work_seconds is None:
            return None
        return min(self.needed_seconds, self.work_seconds)

    @property
    def exposed_seconds_per_run(self) -> float | None:
        """The time per run of the module that nothing hides."""
        needed, hidden, executions = self.needed_seconds, self.hidden_seconds, self.pair.executions
        if needed is None or hidden is None or executions is None:
            return None
        return (needed - hidden) * executions


_NO_MODULE = ModuleSummary(name="", instructions=0, computations=0, loops=(), transfers=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The measurements of one program; ``evidence.target`` is "" without a target.

    ``device`` is the model of the target's device, if there is one. ``notes`` say how the program
    was read.
    """

    subject: str
    means: Means
    evidence: Evidence
    device: DeviceModel | None = None
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The subject, and the target if there is one."""
        return f"{self.subject} on {self.evidence.target}" if self.evidence.target else self.subject

    @property
    def _module(self) -> ModuleSummary:
        return self.evidence.module or _NO_MODULE

    @property
    def error(self) -> str:
        """Why there are no measurements, in one line; empty if there are."""
        why, failure = self.evidence.unavailable, self.evidence.failure
        if why is not None:
            return f"the target or the toolchain cannot do it: {why}"
        return describe(failure) if failure else ""

    @property
    def fits(self) -> bool | None:
        """Whether the program fits the device's memory; None if unknown."""
        failure, headroom = self.evidence.failure, self.headroom_bytes
        if failure is not None and failure.kind is FailureKind.OUT_OF_MEMORY:
            return False
        return None if headroom is None else headroom >= 0

    @property
    def headroom_bytes(self) -> int | None:
        """Device memory that the program leaves free; negative if the program does not fit."""
        needed, capacity = self.evidence.needed_bytes, self.evidence.device_memory_bytes
        return None if needed is None or capacity is None else capacity - needed

    @property
    def peak_bytes(self) -> int | None:
        """The largest amount of device memory that is alive at once."""
        return self._module.peak.nbytes if self._module.peak else None

    @property
    def copies(self) -> tuple[FullBufferWrite, ...]:
        """The full-buffer writes: those in loops first, the most bytes per run first.

        Writes across the host link are among the transfers instead.
        """
        writes = self._module.full_buffer_writes
        moved = (each for each in writes if each.executions != 0 and not each.crosses_host_link)
        return tuple(sorted(moved, key=_loops_first))

    @property
    def overlaps(self) -> tuple[Overlap, ...]:
        """The asynchronous operations, the longest exposed first; unknown ones at the end."""
        device = self.device
        found = (
            Overlap(
                pair=pair,
                needed_seconds=pair.seconds(device) if device else None,
                work_seconds=pair.between.seconds(device) if device and pair.between else None,
            )
            for pair in self._module.overlaps
        )
        return tuple(sorted(found, key=_exposed_first))

    @property
    def lost_donations(self) -> tuple[Donation, ...]:
        """The donated arguments that no output reuses or that are copied, largest first."""
        lost = (each for each in self._module.donations if each.honoured is False)
        return tuple(sorted(lost, key=lambda each: -each.shape.nbytes))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the measurements lack, and unintended properties of the program."""
        return (*self.notes, *self.evidence.warnings, *self._warnings())

    def _warnings(self) -> Iterator[str]:
        evidence, module, headroom = self.evidence, self.evidence.module, self.headroom_bytes
        if evidence.module_unreadable:
            yield (
                "it compiles, but this jaxlib cannot read what was compiled: "
                f"{evidence.module_unreadable}"
            )
        if module and not module.buffers_assigned:
            yield (
                "no buffer assignment: whether updates are in place, and what is alive at the "
                "peak, is not known; dump with --xla_dump_hlo_as_proto and pass the .hlo.pb"
            )
        if module and not evidence.separate_host_memory:
            yield "a CPU has one memory and ignores placement: transfers to the host do not show"
        for loop in self._module.loops:
            if loop.trips is None:
                source = f" ({loop.source})" if loop.source else ""
                yield (
                    f"unknown trips of {loop.instruction}{source}: {loop.reason or 'no bound'}; "
                    "what it does per step is not counted"
                )
        if headroom is not None and headroom < 0:
            yield f"does not fit: {format_bytes(-headroom)} more than the device has"
        for each in self.lost_donations:
            size = format_bytes(each.shape.nbytes)
            yield f"donation lost: {each.argument} ({size}) {why_lost(each)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How a program differs from the one called ``before``, most important first.

    ``differences`` is None if one of the two has no module; ``error`` is that of ``before``.
    ``notes`` say what was not compared.
    """

    before: str
    error: str
    differences: tuple[Difference, ...] | None
    notes: tuple[str, ...] = ()


def why_lost(donation: Donation) -> str:
    """Why a donation saves nothing."""
    if donation.output_index is None:
        return "is given away, but no output takes its buffer"
    return f"is given away, but copied by {', '.join(donation.copied_by)}"


def describe(failure: Failure) -> str:
    """The failure in one line, with its stage and its sizes, if they are known."""
    stage = f" (stage: {failure.during.value})" if failure.during else ""
    sizes = ""
    if failure.needed_bytes is not None and failure.capacity_bytes is not None:
        needed, capacity = format_bytes(failure.needed_bytes), format_bytes(failure.capacity_bytes)
        sizes = f": needs {needed}, the device has {capacity}"
    place = f"{failure.line}: " if failure.line else ""
    return f"it {failure.kind.phrase}{stage}{sizes}: {place}{failure.message}"


def _loops_first(write: FullBufferWrite) -> tuple[bool, float, str]:
    nbytes = write.nbytes_per_run
    return not write.loop, float("-inf") if nbytes is None else -nbytes, write.instruction


def _exposed_first(overlap: Overlap) -> tuple[bool, float, int]:
    exposed = overlap.exposed_seconds_per_run
    return exposed is None, -(exposed or 0.0), -overlap.pair.nbytes
