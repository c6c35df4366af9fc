"""``report.html``: a run as one self-contained page, readable offline and without scripts."""

from collections.abc import Iterable, Sequence
from statistics import quantiles
from typing import Final, NamedTuple

from assay.model.evidence import Evidence, Memory
from assay.model.history import Trend
from assay.model.rerun import Rerun
from assay.model.summary import LiveBuffer, copied_bytes_per_iteration
from assay.model.timing import Times, VariantTimes, format_seconds
from assay.model.verdict import USUAL, Invocation, Outcome, Record
from assay.report.causes import Entry, by_urgency, explain
from assay.report.document import rerun_lines, suite_statuses
from assay.report.history_output import history_section
from assay.report.html_page import TONES, render
from assay.report.labels import (
    LABELS,
    RANK,
    closing_sentence,
    counts,
    coverage_lines,
    headline,
    in_order,
    plural,
    rerun,
    result,
    toolchain_versions,
    uncontrolled_lines,
)

_BUFFERS_SHOWN: Final = 5
_LEAST_SHARE: Final = 0.01  # a buffer of less than a hundredth of the peak explains little


class Mark(NamedTuple):
    """The worst of some verdicts, and how many there are of each."""

    verdict: Outcome
    text: str

    @property
    def tone(self) -> str:
        """The class of its style."""
        return TONES[self.verdict]


class Row(NamedTuple):
    """A variant on a target: its verdicts, its memory and the largest buffers at its peak."""

    variant: str
    mark: Mark
    memory: Memory | None
    copied_bytes: int | None
    buffers: Sequence[LiveBuffer]
    records: Sequence[Record]
    command: str


class Programs(NamedTuple):
    """The variants of a workload on a target; ``most_bytes`` is the width of a whole bar."""

    workload: str
    target: str
    mark: Mark
    rows: Sequence[Row]
    most_bytes: int

    @property
    def is_open(self) -> bool:
        """Whether the reader must see the rows."""
        return self.mark.verdict.fails


class Suite(NamedTuple):
    """A suite: its state in words, its verdicts by target, and its programs."""

    entry: Entry
    marks: Sequence[tuple[str, Mark]]
    programs: Sequence[Programs]


class Box(NamedTuple):
    """Samples of a program: least, quartiles and greatest, as shares of the greatest in a group."""

    variant: str
    text: str
    shares: Sequence[float]


class Timing(NamedTuple):
    """The boxes of two programs that alternated, or of one."""

    program: str
    boxes: Sequence[Box]


def run_page(
    records: Iterable[Record],
    times: Iterable[Times] = (),
    reruns: Iterable[Rerun] = (),
    invocation: Invocation = USUAL,
    programs: Iterable[Evidence] = (),
    history: Sequence[Trend] = (),
) -> str:
    """The page: the result and what to act on, suites by target, programs, times, known defects.

    ``programs`` are the measurements of the run, which the records alone do not hold; ``history``
    are its series in a database. All texts of programs and messages are escaped.
    """
    seen, ending = tuple(records), invocation.ending
    evidence = {each.key: each for each in programs}
    urgent, others = by_urgency(seen, ending)
    targets = in_order(record.target for record in seen)
    suites = [
        _suite(entry, [each for each in seen if each.suite == entry.name], evidence, invocation)
        for entry in suite_statuses(seen, invocation.upstream_issues, fold=False)
    ]
    return render(
        "run.html",
        title=result(seen, ending),
        tone="bad" if ending.code(seen).value else "good",
        headline=headline(seen),
        closing=closing_sentence(seen, ending),
        coverage=[*uncontrolled_lines(invocation.uncontrolled), *coverage_lines(ending)],
        command=" ".join(invocation.command),
        urgent=_explained(urgent, invocation),
        known=_explained((each for each in others if each[0].verdict.judged), invocation),
        unjudged=_explained((each for each in others if not each[0].verdict.judged), invocation),
        targets=targets,
        suites=suites,
        timings=list(map(_timing, times)),
        reruns=list(rerun_lines(reruns)),
        history=history_section(history),
        versions=toolchain_versions(seen),
        labels=LABELS,
    )


def _explained(
    found: Iterable[Sequence[Record]], invocation: Invocation
) -> list[tuple[Entry, str]]:
    """Each cause in words, and the class of its style."""
    return [(explain(cause, invocation.command), TONES[cause[0].verdict]) for cause in found]


def _suite(
    entry: Entry,
    records: Sequence[Record],
    evidence: dict[tuple[str, str, str, str], Evidence],
    invocation: Invocation,
) -> Suite:
    by_target: dict[str, list[Record]] = {}
    for record in records:
        by_target.setdefault(record.target, []).append(record)
    places = dict.fromkeys((each.workload, each.target) for each in records)
    return Suite(
        entry=entry,
        marks=[(target, _mark(by_target[target])) for target in in_order(by_target)],
        programs=[
            _programs(
                [each for each in by_target[target] if each.workload == workload],
                evidence,
                invocation,
            )
            for workload, target in places
        ],
    )


def _mark(records: Sequence[Record]) -> Mark:
    worst = min((each.verdict for each in records), key=RANK.__getitem__)
    return Mark(worst, ", ".join(counts(records).values()))


def _programs(
    records: Sequence[Record],
    evidence: dict[tuple[str, str, str, str], Evidence],
    invocation: Invocation,
) -> Programs:
    variants: dict[str, list[Record]] = {}
    for record in records:
        variants.setdefault(record.variant, []).append(record)
    first = records[0]
    rows = [
        _row(found, evidence.get((first.suite, first.workload, variant, first.target)), invocation)
        for variant, found in variants.items()
    ]
    sizes = [max(row.memory.device_bytes, row.memory.host_bytes) for row in rows if row.memory]
    return Programs(
        workload=first.workload,
        target=first.target,
        mark=_mark(records),
        rows=rows,
        most_bytes=max(sizes, default=0) or 1,
    )


def _row(records: Sequence[Record], seen: Evidence | None, invocation: Invocation) -> Row:
    module = seen.module if seen else None
    peak = module.peak if module else None
    buffers = peak.buffers[:_BUFFERS_SHOWN] if peak else ()
    return Row(
        variant=records[0].variant,
        mark=_mark(records),
        memory=seen.memory if seen else None,
        copied_bytes=copied_bytes_per_iteration(module.full_buffer_writes, 0) if module else None,
        buffers=[each for each in buffers if peak and each.nbytes >= _LEAST_SHARE * peak.nbytes],
        records=records,
        command=rerun(records[0], invocation.command),
    )


def _timing(times: Times) -> Timing:
    timed = [each for each in (times.reference, times.judged) if each.samples]
    most = max((max(each.samples) for each in timed), default=1.0)
    return Timing(
        program=f"{times.suite}/{times.workload} on {times.target}",
        boxes=[_box(each, most) for each in timed],
    )


def _box(times: VariantTimes, most: float) -> Box:
    samples = times.samples
    quarters = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [*samples] * 3
    return Box(
        variant=times.variant,
        text=f"{format_seconds(quarters[1])}, {plural(len(samples), 'sample')}",
        shares=[each / most for each in (min(samples), *quarters, max(samples))],
    )
