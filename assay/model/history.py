"""History: the verdicts and numbers of one claim on one program over the runs of a database."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from assay.model.units import Unit
from assay.model.verdict import Outcome, Record


class HistoryError(ValueError):
    """A database that cannot be used, or a run that cannot be added to it."""


class SeriesName(NamedTuple):
    """What a series of verdicts is about."""

    suite: str
    workload: str
    variant: str
    claim: str
    target: str

    @classmethod
    def of(cls, record: Record) -> "SeriesName":
        """The series that a record belongs to."""
        return cls(record.suite, record.workload, record.variant, record.claim, record.target)


class Sample(NamedTuple):
    """A series' verdict in one run. ``at`` is when the run started, in UTC.

    ``reason`` is empty if the claim passed. ``commit`` is what the run tested, with ``-dirty`` if
    files were changed since; empty if it is not known.
    """

    run: str
    at: datetime
    verdict: Outcome
    measured: float | None
    limit: float | None
    reason: str
    toolchain: Mapping[str, str]
    commit: str = ""


class Change(NamedTuple):
    """What is different from a run on: the number's level, the verdict, or both.

    ``before`` is the last sample before ``after`` that has a number, or a verdict other than
    ``inconclusive``. ``levels`` are the medians before and after a change point, ``verdicts`` those
    that differ.
    """

    before: Sample
    after: Sample
    levels: tuple[float, float] | None
    verdicts: tuple[Outcome, Outcome] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The samples of a series, in the order of its runs, and what changed (``assay.stats``)."""

    name: SeriesName
    unit: Unit
    samples: tuple[Sample, ...]
    changes: tuple[Change, ...] = ()


class Added(NamedTuple):
    """What was added of a run to a database, and the bytes of a last line that is torn."""

    run: str
    new: int
    verdicts: int
    torn_bytes: int
