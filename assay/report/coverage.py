"""Coverage in words: one line of what a run reached, and one for each gap."""

from collections.abc import Collection, Iterable, Mapping

from assay.model.coverage import Gap, Reached, Slot
from assay.model.invocation import Missing
from assay.report.words import plural

_NAMED = 4


def coverage_line(
    expected: Mapping[Slot, int], reached: Reached, not_run: Mapping[str, str]
) -> str:
    """How many of the expected verdicts were reached; ``not_run`` maps frameworks to reasons."""
    due = {slot: count for slot, count in expected.items() if slot.framework not in not_run}
    there = sum(min(count, reached.counts.get(slot, 0)) for slot, count in due.items())
    wanted = sum(due.values())
    targets = len({slot.target for slot in due})
    parts = [f"{there:,} of {wanted:,} expected verdicts on {plural(targets, 'target')}"]
    for framework, reason in not_run.items():
        slots = [slot for slot in expected if slot.framework == framework]
        if slots:
            number = sum(expected[slot] for slot in slots)
            suites = plural(len({slot.suite for slot in slots}), "suite")
            parts.append(f"{plural(number, 'verdict')} of {suites} not run: {reason}")
    more = sum(max(0, n - expected.get(slot, 0)) for slot, n in reached.counts.items())
    if more:
        parts.append(f"{more:,} more than expected, record them with --update-baselines=new")
    return "; ".join(parts)


def missing_of(gaps: Iterable[Gap], unavailable: Mapping[str, str]) -> tuple[Missing, ...]:
    """A line for each gap; of a target that is not available, one line for all suites."""
    found: dict[tuple[str, str], Missing] = {}
    for gap in gaps:
        if gap.target in unavailable:
            reason = f"{gap.target} is not available: {unavailable[gap.target]}"
            found.setdefault((gap.target, ""), Missing(target=gap.target, reason=reason))
            continue
        place = f"{gap.suite} on {gap.target}"
        counts = f"{gap.reached:,} of {gap.expected:,} expected verdicts"
        if gap.reason:
            why = f"none of {counts} judged anything: {gap.reason}"
        else:
            named = ", ".join(gap.claims[:_NAMED])
            more = f" and {len(gap.claims) - _NAMED} more" if len(gap.claims) > _NAMED else ""
            why = (
                f"{counts} ({named}{more}); bring the checks back, or accept that with "
                "--update-baselines=all"
            )
        reason = f"{place}: {why}"
        found[gap.target, gap.suite + gap.framework] = Missing(target=gap.target, reason=reason)
    return tuple(found.values())


def nothing_judged(target: str, reasons: Collection[str]) -> Missing:
    """The line of a target that was named, and on which no claim was judged."""
    why = next(iter(reasons), "no workload's scopes try it at this level")
    return Missing(target=target, reason=f"nothing was judged on {target}: {why}")
