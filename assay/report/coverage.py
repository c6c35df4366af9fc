"""Coverage in words: one line of what a run judged, and one for each gap."""

from collections.abc import Collection, Iterable, Mapping

from assay.model.coverage import Count, Gap, Reached, Slot
from assay.model.invocation import Missing
from assay.report.labels import plural

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
