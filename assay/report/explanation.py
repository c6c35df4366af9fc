"""What a reader of a run needs to know: the cause of each verdict, the state of each suite."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from textwrap import shorten
from typing import NamedTuple

from assay.model.verdict import MUST_FAIL, USUAL, Outcome, Record
from assay.model.workload import RemedyEffect, UpstreamIssue, matches_any
from assay.report.labels import LABELS, RANK, amount, counts, in_order, plural, rerun

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
    details: Sequence[Detail] = ()
    verdict: Outcome | None = None


def causes(records: Iterable[Record]) -> list[list[Record]]:
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
    return sorted(groups.values(), key=lambda cause: RANK[cause[0].verdict])


def stands_alone(verdict: Outcome) -> bool:
    """Whether each record of this verdict is a cause of its own."""
    return verdict.fails or verdict is Outcome.IMPROVED


def explain(cause: Sequence[Record], command: Sequence[str] = USUAL.command) -> Entry:
    """The cause in words; a group names one example and all its claims and targets.

    ``command`` is the command that repeats the run.
    """
    # Of a group, a record that has a measurement explains more.
    example = next((each for each in cause if each.measured is not None), cause[0])
    verdict, label = example.verdict, LABELS[example.verdict]
    details: list[Detail] = []
    if stands_alone(verdict):
        program = f"{example.suite}/{example.workload}/{example.variant}"
        title = f"{example.claim} · {program} on {example.target}"
        if example.measured is not None or example.limit is not None:
            details.append(Detail("measured", _numbers(example)))
    else:
        targets = in_order(each.target for each in cause)
        claims = tuple(dict.fromkeys(each.claim for each in cause))
        spread = f"{plural(len(claims), 'claim')} on {plural(len(targets), 'target')}"
        numbers = f"{plural(len(cause), 'verdict')}, {spread}"
        title = f"{label.meaning} · {_programs(cause)} · {numbers}"
        details += [Detail("on", ", ".join(targets)), Detail("claims", ", ".join(claims))]
    if verdict is Outcome.KNOWN_DEFECT:
        workloads = ", ".join(dict.fromkeys(each.workload for each in cause))
        title = f"{example.suite}/{workloads}/{example.variant} · {numbers}"
        place = f"{example.claim} of {example.workload} on {example.target}"
        details.append(Detail("example", f"{place}: {_numbers(example)}"))
    if example.reason:
        details.append(Detail("cause", example.reason))
    if next_step := example.advice or label.next_step:
        advice, colon, inspection = next_step.partition(": assay inspect ")
        details.append(Detail("next", advice))
        if colon:
            details.append(Detail("run", f"assay inspect {inspection}", verbatim=True))
    if example.upstream and verdict.judged:
        details.append(Detail("upstream", example.upstream, verbatim=True))
    if verdict is Outcome.KNOWN_DEFECT or stands_alone(verdict):
        details.append(Detail("rerun", rerun(example, command), verbatim=True))
    return Entry(label.text, title, details, verdict)


def _programs(records: Iterable[Record]) -> str:
    """Workloads and variants, as many as one line holds."""
    names = list(dict.fromkeys(f"{each.workload}/{each.variant}" for each in records))
    more = len(names) - _PROGRAMS_SHOWN
    return ", ".join(names[:_PROGRAMS_SHOWN]) + (f" and {more} more" if more > 0 else "")


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
            # The first clause of a reason contains no numbers.
            reasons = (
                each.reason.partition("; ")[0] for each in records if each.verdict is outcome
            )
            ((reason, _),) = Counter(reasons).most_common(1)
            if reason:
                counted[outcome] += f" ({shorten(reason, _REASON_CHARACTERS, placeholder=' …')})"
    passed = counted.pop(Outcome.PASSED, "")
    words = ", ".join(filter(None, (passed, *counted.values())))
    details: list[Detail] = []
    for issue in issues:
        details.append(Detail("today", _today(records, issue)))
        if issue.remedy:
            effects = (_effect(records, effect) for effect in issue.effects)
            remedy = "; ".join(filter(None, (issue.remedy, next(filter(None, effects), ""))))
            details.append(Detail("remedy", f"{remedy}."))
        details.append(Detail("upstream", issue.link, verbatim=True))
    return Entry(name, f"{plural(len(records), 'verdict')}: {words}", details)


def _today(records: Iterable[Record], issue: UpstreamIssue) -> str:
    """The number of compilers that show the problem, of those that were judged in this run."""
    judged: dict[str, set[Outcome]] = {}
    for record in records:
        if (
            record.verdict.judged
            and not record.must_fail
            and matches_any(record.workload, issue.workloads)
            and matches_any(record.variant, issue.variants)
            and matches_any(record.claim, issue.claims)
        ):
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
                before, after = (
                    amount(each.measured, each.unit, decimals=1) for each in (without, remedied)
                )
                if before != after:
                    return f"{effect.quantity} on {target}: {before} → {after}"
    return ""
