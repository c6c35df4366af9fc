"""The programs of a run, as its page shows them: bars of bytes, the schedule, overlap, the peak."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from assay.model.evidence import Evidence
from assay.model.inspection import Inspection, Means, Overlap
from assay.model.summary import LiveBuffer, Peak, copied_bytes_per_iteration
from assay.model.target import DeviceModel
from assay.model.timing import format_seconds
from assay.model.units import Unit, format_bytes
from assay.model.verdict import Invocation, Outcome, Record
from assay.report.html_page import TONES
from assay.report.labels import RANK, counts, plural, rerun
from assay.report.plot import Series

Programs = Mapping[tuple[str, str, str, str], Evidence]
"""Measurements by suite, workload, variant and target."""

_BUFFERS_SHOWN: Final = 5
_LEAST_SHARE: Final = 0.01  # a buffer of less than a hundredth of the peak explains little
_OVERLAPS_SHOWN: Final = 6
_FEWEST_SIZES: Final = 3  # of a plot
_PARTS: Final = 80  # of a schedule's outline
HEIGHT: Final = 24
"""The height of the drawing of a schedule."""

_KINDS: Final = (
    ("device memory", "memory", "bar"),
    ("host memory", "memory", "bar host"),
    ("to host", "transfers", "bar"),
    ("to device", "transfers", "bar host"),
    ("all copies per iteration", "copies", "bar copies"),
)
"""Each column of bytes: its head, the scale that it shares, and the style of its bar."""


class Mark(NamedTuple):
    """The worst of some verdicts, and how many there are of each."""

    verdict: Outcome
    text: str

    @property
    def tone(self) -> str:
        """The class of its style."""
        return TONES[self.verdict]


class Bar(NamedTuple):
    """Bytes, None if they were not measured, and their share of the largest on the same scale.

    Negative controls set a scale only if there is nothing else. Their bar ``is_cut`` if it would be
    longer than the scale.
    """

    nbytes: int | None
    share: float
    style: str
    is_cut: bool = False


class Hidden(NamedTuple):
    """An asynchronous operation in words; its hidden and exposed time as shares of the longest."""

    text: str
    hidden: float = 0.0
    exposed: float = 0.0


class Schedule(NamedTuple):
    """The outline of the bytes alive over the schedule, as an SVG path of this ``width``.

    ``capacity`` is where the line of the device's memory is, None if that is unknown or far above.
    """

    path: str
    width: int
    capacity: float | None
    text: str


class Row(NamedTuple):
    """A variant on a target: its verdicts and what was measured of it."""

    anchor: str
    variant: str
    mark: Mark
    records: Sequence[Record]
    command: str
    bars: Sequence[Bar] = ()
    schedule: Schedule | None = None
    buffers: Sequence[LiveBuffer] = ()
    overlaps: Sequence[Hidden] = ()

    @property
    def is_open(self) -> bool:
        """Whether the reader must see it."""
        return self.mark.verdict.fails


class Place(NamedTuple):
    """The variants of a workload on a target, under the ``heads`` of what was measured."""

    workload: str
    target: str
    mark: Mark
    heads: Sequence[str]
    rows: Sequence[Row]

    @property
    def is_open(self) -> bool:
        """Whether the reader must see the rows."""
        return self.mark.verdict.fails


def mark(records: Sequence[Record]) -> Mark:
    """The worst verdict, and the counts of all."""
    worst = min((each.verdict for each in records), key=RANK.__getitem__)
    return Mark(worst, ", ".join(counts(records).values()))


def place(
    records: Sequence[Record],
    programs: Programs,
    devices: Mapping[str, DeviceModel],
    invocation: Invocation,
    anchor: str,
) -> Place:
    """The variants of one workload on one target, from their ``records``."""
    variants: dict[str, list[Record]] = {}
    for record in records:
        variants.setdefault(record.variant, []).append(record)
    first = records[0]
    seen = [
        programs.get((first.suite, first.workload, variant, first.target)) for variant in variants
    ]
    is_control = [all(each.must_fail for each in found) for found in variants.values()]
    heads, bars = _bars(seen, is_control)
    rows = [
        Row(
            anchor=f"{anchor}-{number}",
            variant=variant,
            mark=mark(found),
            records=sorted(found, key=lambda each: RANK[each.verdict]),
            command=rerun(found[:1], invocation.command),
            bars=bars[number],
            schedule=_schedule(seen[number]),
            buffers=_buffers(seen[number]),
            overlaps=_overlaps(seen[number], devices.get(first.target)),
        )
        for number, (variant, found) in enumerate(variants.items())
    ]
    return Place(first.workload, first.target, mark(records), heads, rows)


def _bars(
    seen: Sequence[Evidence | None], is_control: Sequence[bool]
) -> tuple[list[str], list[list[Bar]]]:
    """The heads of the kinds that any program has, and their bars for each program.

    A negative control may need a thousand times as much: the others' largest bar is the widest.
    """
    columns = list(zip(*map(_bytes, seen), strict=True))
    most: dict[str, int] = {}
    for column, (_, scale, _) in zip(columns, _KINDS, strict=True):
        pairs = zip(column, is_control, strict=True)
        compared = [nbytes for nbytes, control in pairs if not control] or column
        most[scale] = max((most.get(scale, 0), *filter(None, compared)))
    heads: list[str] = []
    rows: list[list[Bar]] = [[] for _ in seen]
    for column, (head, scale, style) in zip(columns, _KINDS, strict=True):
        if all(nbytes is None for nbytes in column):
            continue
        heads.append(head)
        for row, nbytes in zip(rows, column, strict=True):
            share = (nbytes or 0) / (most[scale] or 1)
            row.append(Bar(nbytes, min(1.0, share), style, share > 1))
    return heads, rows


def _bytes(seen: Evidence | None) -> tuple[int | None, ...]:
    memory, module = (seen.memory, seen.module) if seen else (None, None)
    transfers: tuple[int | None, ...] = (None, None)
    # Where host and device share one memory, no transfer can be seen.
    if module and seen and seen.separate_host_memory:
        transfers = module.to_host_bytes_per_run, module.to_device_bytes_per_run
    return (
        memory.device_bytes if memory else None,
        memory.host_bytes if memory else None,
        *transfers,
        copied_bytes_per_iteration(module.full_buffer_writes, 0) if module else None,
    )


def source_lines(seen: Evidence) -> Iterator[str]:
    """The lines that write whole arrays, and those of what is alive at the peak."""
    if seen.module:
        yield from filter(None, (each.source for each in seen.module.full_buffer_writes))
    if peak := _peak(seen):
        yield from filter(None, (peak.line, *(each.line for each in _buffers(seen))))


def _peak(seen: Evidence | None) -> Peak | None:
    return seen.module.peak if seen and seen.module else None


def _buffers(seen: Evidence | None) -> list[LiveBuffer]:
    peak = _peak(seen)
    shown = peak.buffers[:_BUFFERS_SHOWN] if peak else ()
    return [each for each in shown if peak and each.nbytes >= _LEAST_SHARE * peak.nbytes]


def _schedule(seen: Evidence | None) -> Schedule | None:
    """The outline keeps the highest level of each of its parts; None if no levels are known."""
    peak = _peak(seen)
    if seen is None or peak is None or not any(peak.levels):
        return None
    part = -(-len(peak.levels) // _PARTS)
    heights = [max(peak.levels[at : at + part]) for at in range(0, len(peak.levels), part)]
    where = f" at {peak.at}" + (f" ({peak.line})" if peak.line else "") if peak.at else ""
    text = f"{format_bytes(peak.nbytes, decimals=2)}{where}, from the first to the last instruction"
    top, capacity = max(heights), seen.device_memory_bytes
    if capacity is None or capacity > 2 * top:
        return Schedule(_outline(heights, top), len(heights), None, text)
    text += f"; the device has {format_bytes(capacity, decimals=2)}"
    top = max(top, capacity)
    line = HEIGHT * (1 - capacity / top)
    return Schedule(_outline(heights, top), len(heights), line, text)


def _outline(heights: Sequence[int], top: int) -> str:
    """The commands of an SVG path: one step for each run of equal heights."""
    levels = [f"{HEIGHT * (1 - height / top):.3g}" for height in heights]
    steps = (f"V{level}h{sum(1 for _ in run)}" for level, run in groupby(levels))
    return f"M0 {HEIGHT}{''.join(steps)}V{HEIGHT}z"


def _overlaps(seen: Evidence | None, device: DeviceModel | None) -> list[Hidden]:
    """The longest exposed first; the operations that are left out are counted."""
    if seen is None:
        return []
    inspection = Inspection(
        subject=seen.variant, means=Means.COMPILED, evidence=seen, device=device
    )
    found = inspection.overlaps
    longest = max((each.needed_seconds or 0.0 for each in found), default=0.0) or 1.0
    rows = [_hidden(each, longest) for each in found[:_OVERLAPS_SHOWN]]
    if more := len(found) - len(rows):
        rows.append(Hidden(f"and {plural(more, 'other operation')}"))
    return rows


def _hidden(overlap: Overlap, longest: float) -> Hidden:
    pair, needed, hidden = overlap.pair, overlap.needed_seconds, overlap.hidden_seconds
    what = f"{format_bytes(pair.nbytes, decimals=2)} {pair.kind.value}, {pair.start}"
    if pair.executions is not None:
        what += f", {'at most ' if pair.at_most else ''}{pair.executions:,} × per run"
    if needed is None or hidden is None:
        return Hidden(f"{what}: duration not known")
    words = f"{what}: takes {format_seconds(needed)}, {format_seconds(hidden)} hidden"
    return Hidden(words, hidden / longest, (needed - hidden) / longest)


def over_size(programs: Iterable[Evidence]) -> list[Series]:
    """The bytes of the programs of a suite that have several sizes, and the times of growing loops.

    One plot for each workload, target and quantity; none of fewer than three sizes, or of what is 0
    everywhere.
    """
    plots: dict[tuple[str, str, str], dict[str, dict[int, float]]] = {}
    for seen in programs:
        name = seen.variant.removesuffix(f"-at-{seen.size}")  # as ``SizedVariant.at`` names it
        for what, size, number in _sized_numbers(seen):
            lines = plots.setdefault((seen.workload, seen.target, what), {})
            lines.setdefault(name, {})[size] = number
    return [
        Series(
            title=f"{what} of {workload} on {target}",
            unit=Unit.SECONDS if what == _TIME else Unit.BYTES,
            lines={name: sorted(line.items()) for name, line in lines.items()},
        )
        for (workload, target, what), lines in plots.items()
        if max(map(len, lines.values())) >= _FEWEST_SIZES
        and any(any(line.values()) for line in lines.values())
    ]


_TIME: Final = "time"


def _sized_numbers(seen: Evidence) -> list[tuple[str, int, float]]:
    if seen.growth is not None:
        pairs = zip(seen.growth.lengths, seen.growth.fastest, strict=True)
        return [(_TIME, length, seconds) for length, seconds in pairs]
    if seen.size is None or seen.memory is None:
        return []
    found: list[tuple[str, int, float]] = [("temporaries", seen.size, seen.memory.temp_bytes)]
    if seen.module:
        copied = copied_bytes_per_iteration(seen.module.full_buffer_writes, 0)
        found.append(("copies per iteration", seen.size, copied))
    return found
