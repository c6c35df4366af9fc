"""What a reader of a run needs to know: the cause of each verdict, the state of each suite."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from textwrap import shorten
from typing import NamedTuple

from assay.model.invocation import USUAL
from assay.model.units import format_quantity
from assay.model.verdict import MUST_FAIL, Outcome, Record
from assay.model.workload import RemedyEffect, UpstreamIssue, matches_any
from assay.report.labels import DASH, LABELS, RANK, amount, counts, in_order, plural, rerun

_PROGRAMS_SHOWN = 3
_FAMILIES = ("gpu", "tpu", "cpu")
_SILENT_SUITES_SHOWN = 8
_REASON_CHARACTERS = 100


class Detail(NamedTuple):
    """One labelled line; a verbatim one is there to be copied and must not be wrapped."""

    label: str
    text: str
    verbatim: bool = False


class Entry(NamedTuple):
    """A cause (with its ``verdict``) or a suite: a line of name and text, then labelled lines."""

    name: str
    text: str
    details: tuple[Detail, ...] = ()
    verdict: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """One or more records of one verdict and one cause; ``records`` is never empty."""

    verdict: Outcome
    records: tuple[Record, ...]

    @property
    def stands_alone(self) -> bool:
        """Whether it is a single record that fails or improves."""
        return self.verdict.fails or self.verdict is Outcome.IMPROVED

    @property
    def example(self) -> Record:
        """The first record that has a measurement, else the first."""
        measured = (record for record in self.records if record.measured is not None)
        return next(measured, self.records[0])

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets of the records, live targets first."""
        return in_order(record.target for record in self.records)

    @property
    def claims(self) -> tuple[str, ...]:
        """The claims of the records, in order of appearance."""
        return tuple(dict.fromkeys(record.claim for record in self.records))

    @property
    def programs(self) -> str:
        """The workloads and variants of the records, as many as one line holds."""
        names = list(dict.fromkeys(f"{each.workload}/{each.variant}" for each in self.records))
        more = len(names) - _PROGRAMS_SHOWN
        return ", ".join(names[:_PROGRAMS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def causes(records: Iterable[Record]) -> tuple[Cause, ...]:
    """All records that did not pass, each in one cause; worst first, then in order of appearance.

    What fails or improves stands alone. Known defects share a cause if suite, variant and upstream
    link agree; what could not be judged, if reason and advice agree.
    """
    groups: dict[Hashable, list[Record]] = {}
    for number, record in enumerate(records):
        key: tuple[Hashable, ...] = (number,)
        if record.verdict is Outcome.KNOWN_DEFECT:
            key = (record.suite, record.variant, record.upstream)
        elif record.verdict in (Outcome.UNSUPPORTED, Outcome.INCONCLUSIVE):
            key = (record.reason, record.advice)
        if record.verdict is not Outcome.PASSED:
            groups.setdefault((record.verdict, *key), []).append(record)
    found = (Cause(group[0].verdict, tuple(group)) for group in groups.values())
    return tuple(sorted(found, key=lambda cause: RANK[cause.verdict]))


def explain(cause: Cause, command: Sequence[str] = USUAL.command) -> Entry:
    """The cause in words; a group names one example and all its claims and targets.

    ``command`` is the command that repeats the run.
    """
    details = tuple(_details(cause, command))
    return Entry(LABELS[cause.verdict].text, _title(cause), details, cause.verdict)


def _title(cause: Cause) -> str:
    example = cause.example
    if cause.stands_alone:
        program = f"{example.suite}/{example.workload}/{example.variant}"
        return f"{example.claim} · {program} on {example.target}"
    spread = f"{plural(len(cause.claims), 'claim')} on {plural(len(cause.targets), 'target')}"
    numbers = f"{plural(len(cause.records), 'verdict')}, {spread}"
    if cause.verdict is Outcome.KNOWN_DEFECT:
        workloads = ", ".join(dict.fromkeys(record.workload for record in cause.records))
        return f"{example.suite}/{workloads}/{example.variant} · {numbers}"
    return f"{LABELS[cause.verdict].meaning} · {cause.programs} · {numbers}"


def _details(cause: Cause, command: Sequence[str]) -> Iterator[Detail]:
    example = cause.example
    known = cause.verdict is Outcome.KNOWN_DEFECT
    if not cause.stands_alone:
        yield Detail("on", ", ".join(cause.targets))
        yield Detail("claims", ", ".join(cause.claims))
    if known:
        place = f"{example.claim} of {example.workload} on {example.target}"
        yield Detail("example", f"{place}: {_numbers(example)}")
    elif cause.stands_alone and (example.measured is not None or example.limit is not None):
        yield Detail("measured", _numbers(example))
    if example.reason:
        yield Detail("cause", example.reason)
    if next_step := example.advice or LABELS[example.verdict].next_step:
        advice, colon, inspection = next_step.partition(": assay inspect ")
        yield Detail("next", advice)
        if colon:
            yield Detail("run", f"assay inspect {inspection}", verbatim=True)
    if example.upstream and example.verdict.judged:
        yield Detail("upstream", example.upstream, verbatim=True)
    if known or cause.stands_alone:
        yield Detail("rerun", rerun(example, command), verbatim=True)


def _numbers(record: Record) -> str:
    numbers = f"{amount(record.measured, record.unit)} · limit {amount(record.limit, record.unit)}"
    if (baseline := record.baseline) is None:
        return numbers
    versions = sorted(baseline.toolchain.items())
    toolchain = ", ".join(f"{name} {version}" for name, version in versions)
    return f"{numbers} · baseline {amount(baseline.value, record.unit)} on {toolchain}"


def suite_statuses(
    records: Iterable[Record], issues: Mapping[str, Sequence[UpstreamIssue]]
) -> Iterator[Entry]:
    """The counts of each suite and the state of its upstream issues, by first appearance.

    Many suites that passed whole and describe no issue share the last entry.
    """
    suites: dict[str, list[Record]] = {}
    for record in records:
        suites.setdefault(record.suite, []).append(record)
    silent = [
        name
        for name, found in suites.items()
        if not issues.get(name) and all(each.verdict is Outcome.PASSED for each in found)
    ]
    folded = silent if len(silent) > _SILENT_SUITES_SHOWN else []
    for name, found in suites.items():
        if name not in folded:
            yield _status(name, found, issues.get(name, ()))
    if folded:
        rest = [record for name in folded for record in suites[name]]
        yield _status(f"{len(folded)} other suites", rest, ())


def _status(name: str, records: Sequence[Record], issues: Sequence[UpstreamIssue]) -> Entry:
    counted = counts(records)
    # What fails or improved is explained elsewhere; an issue is the reason of its defects.
    for outcome in (Outcome.KNOWN_DEFECT, Outcome.INCONCLUSIVE, Outcome.UNSUPPORTED):
        if outcome in counted and not (issues and outcome is Outcome.KNOWN_DEFECT):
            counted[outcome] += _top_reason(records, outcome)
    passed = counted.pop(Outcome.PASSED, "")
    words = ", ".join(filter(None, (passed, *counted.values())))
    details = tuple(detail for issue in issues for detail in _issue(records, issue))
    return Entry(name, f"{plural(len(records), 'verdict')}: {words}", details)


def _top_reason(records: Iterable[Record], outcome: Outcome) -> str:
    """The first clause of the most frequent reason, in parentheses; it contains no numbers."""
    reasons = Counter(each.reason.partition("; ")[0] for each in records if each.verdict is outcome)
    reason = shorten(reasons.most_common(1)[0][0], _REASON_CHARACTERS, placeholder=" …")
    return f" ({reason})" if reason else ""


def _issue(records: Sequence[Record], issue: UpstreamIssue) -> Iterator[Detail]:
    yield Detail("today", _today(records, issue))
    if issue.remedy:
        effects = filter(None, (_effect(records, effect) for effect in issue.effects))
        first = next(effects, "")
        yield Detail("remedy", f"{issue.remedy}{f'; {first}' if first else ''}.")
    yield Detail("upstream", issue.link, verbatim=True)


def _today(records: Iterable[Record], issue: UpstreamIssue) -> str:
    """The number of compilers that show the problem, of those that were judged in this run."""
    judged: dict[str, set[Outcome]] = {}
    for record in records:
        if record.verdict.judged and _shows(record, issue):
            judged.setdefault(record.target, set()).add(record.verdict)
    if not judged:
        return f"{issue.problem}: not tested in this run."
    seen = [target for target, verdicts in judged.items() if not all(v.holds for v in verdicts)]
    families = []
    for family in _FAMILIES:
        if tried := sum(target.startswith(family) for target in judged):
            shown = sum(target.startswith(family) for target in seen)
            families.append(f"{family.upper()} {shown} of {tried}")
    fixed = in_order(
        target
        for target, verdicts in judged.items()
        if Outcome.FIXED_UPSTREAM in verdicts and target not in seen
    )
    ending = f"; fixed upstream on {', '.join(fixed)}." if fixed else "."
    spread = f"{len(seen)} of {plural(len(judged), 'compiler')} ({', '.join(families)})"
    return f"{issue.problem} on {spread}{ending}"


def _shows(record: Record, issue: UpstreamIssue) -> bool:
    return (
        matches_any(record.workload, issue.workloads)
        and matches_any(record.variant, issue.variants)
        and matches_any(record.claim, issue.claims)
        and not record.must_fail
    )


def _effect(records: Iterable[Record], effect: RemedyEffect) -> str:
    """The number without and with the remedy, on a target where the remedy holds and changes it."""
    numbers = {
        (record.variant, record.target): record
        for record in records
        if record.workload == effect.workload
        and record.claim.removesuffix(MUST_FAIL) == effect.claim
        and record.verdict.judged
    }
    targets = in_order(target for _, target in numbers)
    for pattern in effect.targets:
        for target in filter(lambda name: fnmatchcase(name, pattern), targets):
            without = numbers.get((effect.without, target))
            remedied = numbers.get((effect.remedied, target))
            if without and remedied and remedied.verdict.holds:
                before, after = _rounded(without), _rounded(remedied)
                if before != after:
                    return f"{effect.quantity} on {target}: {before} → {after}"
    return ""


def _rounded(record: Record) -> str:
    if record.measured is None:
        return DASH
    return format_quantity(record.measured, record.unit, decimals=1)
