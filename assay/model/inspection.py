"""An inspection: one program on one target; and how two inspections differ."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.module import AsyncPair
from assay.model.summary import Donation, FullBufferWrite
from assay.model.target import DeviceModel
from assay.model.units import format_bytes


class Aspect(Enum):
    """What of a program a difference is about; most important first."""

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
    """One thing of which the second program has more, fewer or others than the first.

    ``before`` and ``after`` count the ``subject``; for memory they are bytes. One None is an
    unknown count; two are a difference without counts. ``nbytes`` is the second program's size
    minus the first's, None if unknown. For full-buffer writes and transfers it counts bytes per
    run, otherwise the arrays themselves. ``source`` names the source lines of the difference.
    """

    aspect: Aspect
    subject: str
    before: int | None = None
    after: int | None = None
    where: str = ""
    nbytes: int | None = 0
    source: str | None = None

    def __str__(self) -> str:
        changed = self.before != self.after
        in_words = _bytes if self.aspect is Aspect.MEMORY else _count
        counts = f" {in_words(self.before)} → {in_words(self.after)}" if changed else ""
        where = f" {self.where}" if self.where else ""
        source = f", {self.source}" if self.source else ""
        return f"{self.subject}{counts}{where}{self._traffic}{source}"

    @property
    def _traffic(self) -> str:
        if self.aspect not in {Aspect.FULL_BUFFER_WRITE, Aspect.TRANSFER}:
            return ""
        if self.nbytes is None:
            return ", unknown how often"
        return f", {_signed(self.nbytes)} per run" if self.nbytes else ""

    @property
    def weight(self) -> tuple[int, float, str]:
        """Sorts the most important first: by aspect, then by bytes."""
        size = float("inf") if self.nbytes is None else abs(self.nbytes)
        return list(Aspect).index(self.aspect), -size, str(self)


def _count(count: int | None) -> str:
    return "unknown" if count is None else str(count)


def _bytes(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else format_bytes(nbytes)


def _signed(nbytes: int) -> str:
    return f"{'+' if nbytes > 0 else '−'}{format_bytes(abs(nbytes))}"


class Means(Enum):
    """How the module that is shown came about."""

    COMPILED = "compiled"
    AS_IT_STANDS = "read as it stands"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """An asynchronous operation, and the seconds that a device model gives it.

    ``needed_seconds`` is the time of one execution. ``work_seconds`` is the time of the work that
    the schedule puts between start and done. None if the schedule or the model lacks the number.
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
        if self.needed_seconds is None or self.hidden_seconds is None:
            return None
        if self.pair.executions is None:
            return None
        return (self.needed_seconds - self.hidden_seconds) * self.pair.executions


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was seen of one program; ``evidence.target`` is "" where none was named.

    ``device`` is the model of the target's device, None where there is none. ``notes`` are what
    the reader must know of how the program was taken in.
    """

    subject: str
    means: Means
    evidence: Evidence
    device: DeviceModel | None = None
    notes: tuple[str, ...] = ()

    @property
    def error(self) -> str:
        """Why there is nothing to show, in one line; "" where there is."""
        evidence = self.evidence
        if evidence.unavailable is not None:
            why = evidence.unavailable
            remedy = f"; do this: {why.remedy}" if why.remedy else ""
            return f"the target or the toolchain cannot do it: {why.reason}{remedy}"
        return describe(evidence.failure) if evidence.failure else ""

    @property
    def fits(self) -> bool | None:
        """Whether the program fits the device's memory; None if that is not known."""
        failure = self.evidence.failure
        if failure is not None and failure.kind is FailureKind.OUT_OF_MEMORY:
            return False
        headroom = self.headroom_bytes
        return None if headroom is None else headroom >= 0

    @property
    def headroom_bytes(self) -> int | None:
        """Device memory that the program leaves free; negative if the program does not fit."""
        needed, capacity = self.evidence.needed_bytes, self.evidence.device_memory_bytes
        return None if needed is None or capacity is None else capacity - needed

    @property
    def peak_bytes(self) -> int | None:
        """Device memory at the moment when most is alive."""
        module = self.evidence.module
        return module.peak.nbytes if module is not None and module.peak is not None else None

    @property
    def copies(self) -> tuple[FullBufferWrite, ...]:
        """The arrays that are moved whole: those in loops first, the most bytes per run first.

        What crosses the host link is among the transfers instead.
        """
        module = self.evidence.module
        found = () if module is None else module.full_buffer_writes
        moved = (each for each in found if each.executions != 0 and not each.crosses_host_link)
        return tuple(sorted(moved, key=_loops_first))

    @property
    def overlaps(self) -> tuple[Overlap, ...]:
        """The asynchronous operations, the longest exposed first; unknown ones at the end."""
        module = self.evidence.module
        pairs = () if module is None else module.overlaps
        return tuple(sorted(map(self._overlap, pairs), key=_exposed_first))

    @property
    def lost_donations(self) -> tuple[Donation, ...]:
        """The arguments that were given away for nothing, largest first."""
        module = self.evidence.module
        found = () if module is None else module.donations
        lost = (each for each in found if each.honoured is False)
        return tuple(sorted(lost, key=lambda each: -each.shape.nbytes))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What limits the answer, and what the program does that its writer did not ask for."""
        return (*self.notes, *self.evidence.warnings, *self._limits(), *self._losses())

    def _overlap(self, pair: AsyncPair) -> Overlap:
        if self.device is None:
            return Overlap(pair=pair, needed_seconds=None, work_seconds=None)
        return Overlap(
            pair=pair,
            needed_seconds=pair.seconds(self.device),
            work_seconds=pair.between.seconds(self.device) if pair.between else None,
        )

    def _limits(self) -> Iterator[str]:
        evidence, module = self.evidence, self.evidence.module
        if evidence.module_unreadable:
            yield (
                "it compiles, but this jaxlib cannot read what was compiled: "
                f"{evidence.module_unreadable}"
            )
        if module is None:
            return
        if not module.buffers_assigned:
            yield (
                "no buffer assignment: whether updates are in place, and what is alive at the "
                "peak, is not known; dump with --xla_dump_hlo_as_proto and pass the .hlo.pb"
            )
        if not evidence.separate_host_memory:
            yield "a CPU has one memory and ignores placement: transfers to the host do not show"
        for loop in module.loops:
            if loop.trips is None:
                yield (
                    f"unknown trips of {loop.instruction}"
                    f"{f' ({loop.source})' if loop.source else ''}: {loop.reason or 'no bound'}; "
                    "what it does per step is not counted"
                )

    def _losses(self) -> Iterator[str]:
        headroom = self.headroom_bytes
        if headroom is not None and headroom < 0:
            yield f"does not fit: {format_bytes(-headroom)} more than the device has"
        for each in self.lost_donations:
            yield (
                f"donation lost: {each.argument} ({format_bytes(each.shape.nbytes)}) "
                f"{why_lost(each)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How a program differs from the one called ``before``, most important first.

    ``differences`` is None where one of the two has no module; ``error`` says why, if it is the one
    before. ``notes`` say what was not compared.
    """

    before: str
    error: str
    differences: tuple[Difference, ...] | None
    notes: tuple[str, ...] = ()


def why_lost(donation: Donation) -> str:
    """What became of an argument that was given away for nothing."""
    if donation.output_index is None:
        return "is given away, but no output takes its buffer"
    return f"is given away, but copied by {', '.join(donation.copied_by)}"


def describe(failure: Failure) -> str:
    """The failure in one line, with its stage or its sizes, if they are known."""
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
