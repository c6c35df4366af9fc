"""The state of each suite in a few lines: counts, coverage, and its upstream issues today."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from textwrap import shorten

from assay.model.invocation import Count, Gap, Missing, Reached, Slot
from assay.model.units import format_quantity
from assay.model.verdict import MUST_FAIL, Outcome, Record
from assay.model.workload import RemedyEffect, UpstreamIssue, matches_any
from assay.report.explanation import Detail
from assay.report.labels import DASH, counts, plain, plural
from assay.report.tables import in_order

_NAMED = 4


def coverage_line(
    expected: Mapping[Slot, Count], reached: Reached, not_run: Mapping[str, str]
) -> str:
    """How many of the expected verdicts judged; ``not_run`` maps frameworks to reasons."""
    due = {slot: count for slot, count in expected.items() if slot.framework not in not_run}
    found = {slot: reached.counts.get(slot, Count(0, 0)) for slot in {**due, **reached.counts}}
    there = sum(min(count.judged, found[slot].judged) for slot, count in due.items())
    judged = max(0, there - reached.noisy)
    wanted = sum(count.judged for count in due.values())
    targets = len({slot.target for slot in due})
    parts = [f"{judged:,} of {wanted:,} expected verdicts judged on {plural(targets, 'target')}"]
    for framework, reason in not_run.items():
        slots = [slot for slot in expected if slot.framework == framework]
        if slots:
            number = sum(expected[slot].verdicts for slot in slots)
            suites = plural(len({slot.suite for slot in slots}), "suite")
            parts.append(f"{plural(number, 'verdict')} of {suites} not run: {reason}")
    if reached.noisy:
        parts.append(f"{plural(reached.noisy, 'timing')} inconclusive")
    more = sum(
        max(0, count.verdicts - expected[slot].verdicts if slot in expected else count.verdicts)
        for slot, count in found.items()
    )
    if more:
        parts.append(f"{more:,} more than expected, record them with --assay-update-baselines=new")
    return "; ".join(parts)


def missing_of(gaps: Iterable[Gap], unavailable: Mapping[str, str]) -> tuple[Missing, ...]:
    """A line for each gap; of a target that is not available, one line for all suites."""
    found: dict[tuple[str, str], Missing] = {}
    for gap in gaps:
        if gap.target in unavailable:
            reason = f"{gap.target} is not available: {unavailable[gap.target]}"
            found.setdefault((gap.target, ""), Missing(target=gap.target, reason=reason))
            continue
        named = ", ".join(gap.claims[:_NAMED])
        more = f" and {len(gap.claims) - _NAMED} more" if len(gap.claims) > _NAMED else ""
        where = f"{gap.suite} on {gap.target}"
        counts = f"{gap.judged:,} of {gap.expected:,} expected verdicts judged ({named}{more})"
        what = (
            gap.reason or "bring the checks back, or store that with --assay-update-baselines=all"
        )
        reason = f"{where}: {counts}: {what}"
        found[gap.target, gap.suite + gap.framework] = Missing(target=gap.target, reason=reason)
    return tuple(found.values())


def nothing_judged(target: str, reasons: Collection[str]) -> Missing:
    """The line of a target that was named, and on which no claim was judged."""
    why = next(iter(reasons), "no workload's scopes try it at this level")
    return Missing(target=target, reason=f"nothing was judged on {target}: {why}")


_FAMILIES = ("gpu", "tpu", "cpu")
_LISTED = 8
"""Suites that passed whole and describe no issue are listed up to this number."""
_REASON_CHARACTERS = 100
_DECIMALS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteStatus:
    """What one suite came to, and a few details of each upstream issue."""

    name: str
    verdicts: str
    details: tuple[Detail, ...] = ()


def suite_statuses(
    records: Iterable[Record], issues: Mapping[str, Sequence[UpstreamIssue]]
) -> Iterator[SuiteStatus]:
    """One for each suite, by first appearance; many that have nothing to tell share the last."""
    suites: dict[str, list[Record]] = {}
    for record in records:
        suites.setdefault(record.suite, []).append(record)
    silent = [name for name, found in suites.items() if _is_silent(found, issues.get(name, ()))]
    folded = silent if len(silent) > _LISTED else []
    for name, found in suites.items():
        if name not in folded:
            yield _status(name, found, issues.get(name, ()))
    if folded:
        rest = [record for name in folded for record in suites[name]]
        yield _status(f"{len(folded)} other suites", rest, ())


def _is_silent(records: Iterable[Record], issues: Sequence[UpstreamIssue]) -> bool:
    return not issues and all(record.verdict is Outcome.PASSED for record in records)


def _status(name: str, records: Sequence[Record], issues: Sequence[UpstreamIssue]) -> SuiteStatus:
    counted = counts(records)
    # What fails or improved is explained elsewhere; an issue is the reason of its defects.
    for outcome in (Outcome.KNOWN_DEFECT, Outcome.INCONCLUSIVE, Outcome.UNSUPPORTED):
        if outcome in counted and not (issues and outcome is Outcome.KNOWN_DEFECT):
            counted[outcome] += _top_reason(records, outcome)
    passed = counted.pop(Outcome.PASSED, "")
    in_words = ", ".join(filter(None, (passed, *counted.values())))
    return SuiteStatus(
        name=plain(name),
        verdicts=plain(f"{plural(len(records), 'verdict')}: {in_words}"),
        details=tuple(detail for issue in issues for detail in _details(records, issue)),
    )


def _top_reason(records: Iterable[Record], outcome: Outcome) -> str:
    """The most frequent reason in parentheses: its first clause, which no number is part of."""
    reasons = Counter(
        record.reason.partition("; ")[0] for record in records if record.verdict is outcome
    )
    reason = shorten(reasons.most_common(1)[0][0], _REASON_CHARACTERS, placeholder=" …")
    return f" ({reason})" if reason else ""


def _details(records: Sequence[Record], issue: UpstreamIssue) -> Iterator[Detail]:
    yield Detail(label="today", text=plain(_today(records, issue)))
    if issue.remedy:
        yield Detail(label="remedy", text=plain(_remedy(records, issue)))
    yield Detail(label="upstream", text=plain(issue.link), verbatim=True)


def _today(records: Iterable[Record], issue: UpstreamIssue) -> str:
    """On how many compilers the problem is seen, of those that were judged in this run."""
    judged: dict[str, set[Outcome]] = {}
    for record in records:
        if record.verdict.judged and _shows(record, issue):
            judged.setdefault(record.target, set()).add(record.verdict)
    if not judged:
        return f"{issue.problem}: not tested in this run."
    seen = [target for target, verdicts in judged.items() if not all(v.holds for v in verdicts)]
    families = (
        f"{family.upper()} {_of_family(seen, family)} of {_of_family(judged, family)}"
        for family in _FAMILIES
        if _of_family(judged, family)
    )
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


def _of_family(targets: Iterable[str], family: str) -> int:
    return sum(target.startswith(family) for target in targets)


def _remedy(records: Sequence[Record], issue: UpstreamIssue) -> str:
    found = (_effect(records, effect) for effect in issue.effects)
    return "; ".join((issue.remedy, *filter(None, found))[:2]) + "."


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
                change = [_number(without), _number(remedied)]
                if len(set(change)) > 1:
                    return f"{effect.quantity} on {target}: {' → '.join(change)}"
    return ""


def _number(record: Record) -> str:
    if record.measured is None:
        return DASH
    return format_quantity(record.measured, record.unit, decimals=_DECIMALS)
