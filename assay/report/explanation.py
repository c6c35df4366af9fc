"""Failures with one cause, and their explanation: measured, limit, cause, next step, rerun."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from assay.model.invocation import USUAL
from assay.model.verdict import Outcome, Record
from assay.report.labels import LABELS, RANK, amount, plain, plural, rerun
from assay.report.tables import in_order


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


_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One labelled line; a verbatim one is there to be copied and must not be wrapped."""

    label: str
    text: str
    verbatim: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a reader needs to act on one cause."""

    verdict: Outcome
    title: str
    details: tuple[Detail, ...]


def explain(cause: Cause, command: Sequence[str] = USUAL.command) -> Explanation:
    """The cause in words; a group names one example and everywhere it was seen.

    ``command`` is what reaches the run's items again.
    """
    alone = cause.verdict.fails or cause.verdict is Outcome.IMPROVED
    return Explanation(
        verdict=cause.verdict,
        title=plain(_where(cause.example) if alone else _title(cause)),
        details=tuple(_of_one(cause.example, command) if alone else _of_many(cause, command)),
    )


def _where(record: Record) -> str:
    place = f"{record.suite}/{record.workload}/{record.variant}"
    return f"{record.claim} · {place} on {record.target}"


def _title(cause: Cause) -> str:
    spread = f"{plural(len(cause.claims), 'claim')} on {plural(len(cause.targets), 'target')}"
    counts = f"{plural(len(cause.records), 'verdict')}, {spread}"
    if cause.verdict is Outcome.KNOWN_DEFECT:
        workloads = ", ".join(dict.fromkeys(record.workload for record in cause.records))
        return f"{cause.example.suite}/{workloads}/{cause.example.variant} · {counts}"
    return f"{LABELS[cause.verdict].meaning} · {programs(cause)} · {counts}"


def programs(cause: Cause) -> str:
    """The workloads and variants of a cause, as many as one line holds."""
    names = dict.fromkeys(f"{record.workload}/{record.variant}" for record in cause.records)
    shown = list(names)[:_SHOWN]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _of_one(record: Record, command: Sequence[str]) -> Iterator[Detail]:
    if record.measured is not None or record.limit is not None:
        yield Detail(label="measured", text=_numbers(record))
    yield from _why(record)
    yield Detail(label="rerun", text=plain(rerun(record, command)), verbatim=True)


def _of_many(cause: Cause, command: Sequence[str]) -> Iterator[Detail]:
    yield Detail(label="on", text=plain(", ".join(cause.targets)))
    yield Detail(label="claims", text=plain(", ".join(cause.claims)))
    if cause.verdict is Outcome.KNOWN_DEFECT:
        example = cause.example
        text = f"{example.claim} of {example.workload} on {example.target}: {_numbers(example)}"
        yield Detail(label="example", text=plain(text))
    yield from _why(cause.example)
    if cause.verdict is Outcome.KNOWN_DEFECT:
        yield Detail(label="rerun", text=plain(rerun(cause.example, command)), verbatim=True)


def _why(record: Record) -> Iterator[Detail]:
    next_step = record.advice or LABELS[record.verdict].next_step
    if record.reason:
        yield Detail(label="cause", text=plain(record.reason))
    advice, colon, command = next_step.partition(": assay inspect ")
    if next_step:
        yield Detail(label="next", text=plain(advice))
    if colon:
        yield Detail(label="run", text=plain(f"assay inspect {command}"), verbatim=True)
    if record.upstream and record.verdict.judged:
        yield Detail(label="upstream", text=plain(record.upstream), verbatim=True)


def _numbers(record: Record) -> str:
    numbers = f"{amount(record.measured, record.unit)} · limit {amount(record.limit, record.unit)}"
    if record.baseline is None:
        return numbers
    versions = sorted(record.baseline.toolchain.items())
    baseline = ", ".join(f"{name} {version}" for name, version in versions)
    return plain(f"{numbers} · baseline {amount(record.baseline.value, record.unit)} on {baseline}")
