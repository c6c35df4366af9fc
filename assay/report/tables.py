"""Tables of a run: the verdict of each variant on each target, and what was timed."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from assay.model.rerun import Enough, Rerun
from assay.model.timing import Ending, Times, VariantTimes, beside, format_seconds
from assay.model.verdict import Outcome, Record
from assay.report.labels import DASH, RANK

NEGATIVE_CONTROLS = "negative controls"
"""The row of a workload's negative controls; passed there means that each failed its claim, as it
must."""

_LIVE = ("cpu", "gpu", "tpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One variant of one workload."""

    suite: str
    workload: str
    variant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """How many verdicts of each kind a variant got on a target; never empty."""

    counts: dict[Outcome, int]

    @property
    def verdict(self) -> Outcome:
        """The one that stands for the cell: its worst."""
        return min(self.counts, key=RANK.__getitem__)

    @property
    def passed(self) -> int:
        """The claims that passed."""
        return self.counts.get(Outcome.PASSED, 0)

    @property
    def measurable(self) -> int:
        """The claims that passed, and those that could have been, had they been measured."""
        return self.passed + self.counts.get(Outcome.INCONCLUSIVE, 0)

    @property
    def partly_measured(self) -> bool:
        """Whether it stands as passed although some claims were not measured."""
        return self.verdict is Outcome.PASSED and self.passed < self.measurable


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Rows in order of first appearance, live targets first; a variant not tried has no cell."""

    rows: tuple[Row, ...]
    targets: tuple[str, ...]
    cells: dict[tuple[Row, str], Cell]

    def cell(self, row: Row, target: str) -> Cell | None:
        """The cell, or None where the variant was not tried on the target."""
        return self.cells.get((row, target))


def grid(records: Iterable[Record]) -> Grid:
    """Every record counted once; those of a workload's negative controls share a row, its last."""
    counts: dict[tuple[Row, str], Counter[Outcome]] = {}
    for record in records:
        variant = NEGATIVE_CONTROLS if record.must_fail else record.variant
        row = Row(suite=record.suite, workload=record.workload, variant=variant)
        counts.setdefault((row, record.target), Counter())[record.verdict] += 1
    return Grid(
        rows=_together(dict.fromkeys(row for row, _ in counts)),
        targets=in_order(target for _, target in counts),
        cells={key: Cell(counts=dict(counter)) for key, counter in counts.items()},
    )


def _together(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows, grouped by workload; workloads and variants in order of first appearance."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.suite, row.workload), []).append(row)
    for group in groups.values():
        group.sort(key=lambda row: row.variant == NEGATIVE_CONTROLS)
    return tuple(row for group in groups.values() for row in group)


def in_order(targets: Iterable[str]) -> tuple[str, ...]:
    """Each target once: the live cpu, gpu, tpu first, then by name."""
    return tuple(sorted(set(targets), key=_position))


def _position(target: str) -> tuple[int, str]:
    model = target.partition(":")[0]
    return (_LIVE.index(model) if model in _LIVE else len(_LIVE), target)


def short_names(targets: Iterable[str]) -> dict[str, str]:
    """Column heads: ``h100`` for ``gpu-h100:8``; longer only where two targets would share one."""
    names = tuple(targets)
    models, kindless = Counter(map(_model, names)), Counter(map(_without_kind, names))
    short = {}
    for name in names:
        if models[_model(name)] == 1:
            short[name] = _model(name)
        else:
            short[name] = _without_kind(name) if kindless[_without_kind(name)] == 1 else name
    return short


def _model(target: str) -> str:
    return target if target.startswith("cpu") else _without_kind(target).partition(":")[0]


def _without_kind(target: str) -> str:
    kind, dash, rest = target.partition("-")
    return rest if dash and kind in _LIVE else target


RERUNS_HEAD = "Against another toolchain"


def rerun_lines(reruns: Iterable[Rerun]) -> Iterator[str]:
    """What was measured of each, negative controls last, and why one ended early."""
    for rerun in sorted(reruns, key=lambda each: each.negative_control):
        if rerun.pairs:
            yield f"{rerun.suite}: {rerun.workload}/{rerun.variant}@{rerun.target}: {_told(rerun)}"


def _told(rerun: Rerun) -> str:
    unfinished = f"; {rerun.ended.phrase}" if rerun.ended is not Enough.DECIDED else ""
    if rerun.ratio is None:
        return f"{len(rerun.pairs)} pair of processes, too few to be judged{unfinished}"
    return f"{rerun.told}: {rerun.ratio.change.phrase}{unfinished}"


TIMES_HEAD = ("program", "beside", "steady run", "first run", "compiled in", "device", "samples")


def time_rows(all_times: Iterable[Times]) -> Iterator[tuple[str, ...]]:
    """The cells of a table under ``TIMES_HEAD``; medians are those of interleaved samples."""
    for times in all_times:
        for variant in (times.reference, times.judged):
            if variant.samples:
                yield _row(times, variant)


def _row(times: Times, variant: VariantTimes) -> tuple[str, ...]:
    unfinished = times.ended is Ending.UNFINISHED
    return (
        f"{times.workload}/{variant.variant}@{times.target}",
        beside(times, variant),
        _seconds(variant.steady),
        _seconds(variant.first),
        _seconds(variant.compile),
        _seconds(variant.on_device.busy if variant.on_device else None),
        f"{len(variant.samples)}{', unfinished' if unfinished else ''}",
    )


def _seconds(seconds: float | None) -> str:
    return DASH if seconds is None else format_seconds(seconds)
