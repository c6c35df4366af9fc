"""The table of error rates: how often each rule was wrong, and how sure that is."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from scipy.stats import beta

from assay.judge.changes import Change
from benchmarks.timing_judgement.comparisons import Cell, Comparison
from benchmarks.timing_judgement.rules import RULES
from benchmarks.timing_judgement.runs import ADDED

OURS: Final = "Assay"
_CONFIDENCE: Final = 0.95
_CHANGED: Final = (Change.SLOWER, Change.FASTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share of comparisons, with the Clopper-Pearson bounds for as many as are independent."""

    count: int
    of: int
    independent: float

    @property
    def share(self) -> float:
        """The share itself."""
        return self.count / self.of

    @property
    def bounds(self) -> tuple[float, float]:
        """Two-sided bounds of 95 %."""
        hits = self.share * self.independent
        misses = self.independent - hits
        tail = (1 - _CONFIDENCE) / 2
        low = float(beta.ppf(tail, hits, misses + 1)) if hits else 0.0
        return low, float(beta.ppf(1 - tail, hits + 1, misses)) if misses else 1.0

    def __str__(self) -> str:
        if not self.of:
            return "none"
        low, high = self.bounds
        return f"{self.count}/{self.of} = {self.share:.1%} ({low:.1%} to {high:.1%})"


def rate(
    comparisons: Sequence[Comparison],
    independent: float,
    counts: Callable[[Comparison], bool],
    among: Callable[[Comparison], bool] = lambda _: True,
) -> Rate:
    """How many of the comparisons ``among`` count, and for how many independent ones it speaks."""
    of = [each for each in comparisons if among(each)]
    share = len(of) / len(comparisons) if comparisons else 0.0
    return Rate(count=sum(map(counts, of)), of=len(of), independent=independent * share)


def decided(comparison: Comparison) -> bool:
    """Whether Assay says anything at all."""
    return comparison.change not in (None, Change.TOO_NOISY)


def changed(comparison: Comparison) -> bool:
    """Whether Assay says that a program against itself changed, either way."""
    return comparison.change in _CHANGED


def slower(comparison: Comparison) -> bool:
    """Whether Assay says that a program with work added is slower."""
    return comparison.change is Change.SLOWER


def lines(cells: Iterable[Cell]) -> list[str]:
    """The table in Markdown: a line for each row, program and rule."""
    names = [
        "compared",
        "program",
        "rule",
        "false alarms",
        *(f"found at {added} %" for added in ADDED[1:]),
        "too noisy",
        "baseline refused",
        "s each",
    ]
    found = [_line(names), _line(["---"] * len(names))]
    by_row: dict[tuple[str, str], dict[int, Cell]] = {}
    for cell in cells:
        by_row.setdefault((cell.row, cell.program), {})[cell.added] = cell
    for (row, program), own in by_row.items():
        found += [_line([row, program, *texts]) for texts in _rules(own)]
    return found


def _rules(cells: dict[int, Cell]) -> Iterable[list[str]]:
    everything = [each for cell in cells.values() for each in cell.comparisons]
    seconds = sum(each.seconds for each in everything) / len(everything)
    cost = f"{seconds:.2g}"
    if any(each.change is not None for each in everything):
        judged = [each for each in everything if not each.refused]
        noisy = sum(not decided(each) for each in judged)
        refused = sum(bool(each.refused) for each in everything)
        yield [
            OURS,
            *(str(ours(cells[added])) if added in cells else "" for added in ADDED),
            f"{noisy}/{len(judged)} = {noisy / len(judged):.1%}",
            f"{refused / len(everything):.1%}" if refused else "",
            cost,
        ]
    for name, rule in RULES.items():
        rates = [
            str(
                rate(
                    cells[added].comparisons,
                    cells[added].independent,
                    lambda each, rule=rule: rule(each.first, each.second),  # type: ignore[misc]
                )
            )
            if added in cells
            else ""
            for added in ADDED
        ]
        yield [name, *rates, "", "", cost]


def ours(cell: Cell) -> Rate:
    """Assay's false alarms, among all that it judged; or what it found, among those it decided."""
    if cell.added == 0:
        judged = [each for each in cell.comparisons if not each.refused]
        share = len(judged) / len(cell.comparisons)
        return rate(judged, cell.independent * share, changed)
    return rate(cell.comparisons, cell.independent, slower, decided)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
