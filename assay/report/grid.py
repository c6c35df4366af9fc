"""The grid: workloads and variants down, targets across, one cell each."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from assay.model.verdict import Outcome, Record
from assay.report.labels import RANK

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
