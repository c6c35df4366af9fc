"""Tables of a run: the verdict of each variant on each target, times, and reruns."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from assay.model.rerun import Rerun
from assay.model.timing import Ending, Times, beside, format_seconds
from assay.model.verdict import Outcome, Record
from assay.report.labels import DASH, RANK, plural

NEGATIVE_CONTROLS = "negative controls"
"""The row of a workload's negative controls; ``passed`` means that each failed its claim."""

_LIVE = ("cpu", "gpu", "tpu")


class Row(NamedTuple):
    """One variant of one workload."""

    suite: str
    workload: str
    variant: str


@dataclass(frozen=True, slots=True)
class Cell:
    """The number of verdicts of each kind of a variant on a target; never empty."""

    counts: dict[Outcome, int]

    @property
    def verdict(self) -> Outcome:
        """The worst verdict."""
        return min(self.counts, key=RANK.__getitem__)

    @property
    def passed(self) -> int:
        """The claims that passed."""
        return self.counts.get(Outcome.PASSED, 0)

    @property
    def measurable(self) -> int:
        """The claims that passed or were inconclusive."""
        return self.passed + self.counts.get(Outcome.INCONCLUSIVE, 0)

    @property
    def partly_measured(self) -> bool:
        """Whether the cell passed although some claims were inconclusive."""
        return self.verdict is Outcome.PASSED and self.passed < self.measurable


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows in order of first appearance, live targets first; a variant not tried has no cell."""

    rows: tuple[Row, ...]
    targets: tuple[str, ...]
    cells: dict[tuple[Row, str], Cell]


def grid(records: Iterable[Record]) -> Grid:
    """The grid that counts every record once.

    Rows of a workload are adjacent. Its negative controls share the last one.
    """
    counts: dict[tuple[Row, str], Counter[Outcome]] = {}
    for record in records:
        variant = NEGATIVE_CONTROLS if record.must_fail else record.variant
        row = Row(record.suite, record.workload, variant)
        counts.setdefault((row, record.target), Counter())[record.verdict] += 1
    rows = dict.fromkeys(row for row, _ in counts)
    workloads = list(dict.fromkeys(row[:2] for row in rows))
    return Grid(
        rows=tuple(
            sorted(
                rows,
                key=lambda row: (workloads.index(row[:2]), row.variant == NEGATIVE_CONTROLS),
            )
        ),
        targets=in_order(target for _, target in counts),
        cells={key: Cell(counter) for key, counter in counts.items()},
    )


def in_order(targets: Iterable[str]) -> tuple[str, ...]:
    """Each target once: the live cpu, gpu, tpu first, then by name."""

    def position(target: str) -> tuple[int, str]:
        model = target.partition(":")[0]
        return (_LIVE.index(model) if model in _LIVE else len(_LIVE), target)

    return tuple(sorted(set(targets), key=position))


def short_names(targets: Iterable[str]) -> dict[str, str]:
    """Column heads: ``h100`` for ``gpu-h100:8``; longer only if two targets would share one."""
    names = tuple(targets)
    short = {name: name for name in names}
    for shorten in (_without_kind, _model):
        counts = Counter(map(shorten, names))
        short |= {name: shorten(name) for name in names if counts[shorten(name)] == 1}
    return short


def _model(target: str) -> str:
    return target if target.startswith("cpu") else _without_kind(target).partition(":")[0]


def _without_kind(target: str) -> str:
    kind, dash, rest = target.partition("-")
    return rest if dash and kind in _LIVE else target


RERUNS_HEAD = "Against another toolchain"


def rerun_lines(reruns: Iterable[Rerun]) -> Iterator[str]:
    """The measured change of each program, negative controls last, and why one ended early."""
    for rerun in sorted(reruns, key=lambda each: each.negative_control):
        if not rerun.pairs:
            continue
        words = f"{plural(len(rerun.pairs), 'pair')} of processes, too few to be judged"
        if rerun.ratio is not None:
            words = f"{rerun.told}: {rerun.ratio.change.phrase}"
        early = f"; {rerun.ended.phrase}" if rerun.ended is not Ending.ENOUGH else ""
        program = f"{rerun.workload}/{rerun.variant}@{rerun.target}"
        yield f"{rerun.suite}: {program}: {words}{early}"


TIMES_HEAD = ("program", "beside", "steady run", "first run", "compiled in", "device", "samples")


def time_rows(all_times: Iterable[Times]) -> Iterator[tuple[str, ...]]:
    """The cells of a table under ``TIMES_HEAD``; medians are those of interleaved samples."""
    for times in all_times:
        for variant in (times.reference, times.judged):
            if not variant.samples:
                continue
            on_device = variant.on_device.busy if variant.on_device else None
            seconds = (variant.steady, variant.first, variant.compile, on_device)
            early = ", unfinished" if times.ended is Ending.UNFINISHED else ""
            yield (
                f"{times.workload}/{variant.variant}@{times.target}",
                beside(times, variant),
                *(DASH if each is None else format_seconds(each) for each in seconds),
                f"{len(variant.samples)}{early}",
            )
