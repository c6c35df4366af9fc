"""Causes: the records that need explaining, grouped so that each cause is read once."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from assay.model.verdict import Outcome, Record
from assay.report.grid import in_order
from assay.report.labels import RANK


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One or more records of one verdict and one cause; ``records`` is never empty."""

    verdict: Outcome
    records: tuple[Record, ...]

    @property
    def example(self) -> Record:
        """The first of them that has a measurement, else the first."""
        measured = (record for record in self.records if record.measured is not None)
        return next(measured, self.records[0])

    @property
    def targets(self) -> tuple[str, ...]:
        """Where it was seen, live targets first."""
        return in_order(record.target for record in self.records)

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of the claims it touches, in order of appearance."""
        return tuple(dict.fromkeys(record.claim for record in self.records))


def causes(records: Iterable[Record]) -> tuple[Cause, ...]:
    """All records but the passed ones, each in one cause; worst first, then as they came.

    What fails or improves stands alone. Known defects share a cause where suite, variant and
    upstream link agree; what could not be judged, where reason and advice agree.
    """
    groups: dict[Hashable, list[Record]] = {}
    for number, record in enumerate(records):
        if record.verdict is not Outcome.PASSED:
            groups.setdefault((record.verdict, *_cause(number, record)), []).append(record)
    found = (Cause(verdict=group[0].verdict, records=tuple(group)) for group in groups.values())
    return tuple(sorted(found, key=lambda cause: RANK[cause.verdict]))


def _cause(number: int, record: Record) -> tuple[Hashable, ...]:
    match record.verdict:
        case Outcome.KNOWN_DEFECT:
            return (record.suite, record.variant, record.upstream)
        case Outcome.UNSUPPORTED | Outcome.INCONCLUSIVE:
            return (record.reason, record.advice)
        case _:
            return (number,)
