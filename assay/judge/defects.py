"""Setting a finding against the defects already known upstream."""

from collections.abc import Mapping
from dataclasses import replace

from assay.judge.toolchains import in_range
from assay.model.claim import Case
from assay.model.verdict import Finding, Outcome
from assay.model.workload import KnownDefect, matches_any


def known_defects(
    entries: tuple[KnownDefect, ...],
    *,
    workload: str,
    variant: str,
    claim: str,
    target: str,
    versions: Mapping[str, str],
) -> tuple[KnownDefect, ...]:
    """The entries that speak of this variant, claim, target and toolchain."""
    return tuple(
        entry
        for entry in entries
        if matches_any(workload, entry.workloads)
        and matches_any(variant, entry.variants)
        and entry.ways(claim)
        and matches_any(target, entry.targets)
        and in_range(entry.toolchain, versions)
    )


def against_defects(
    finding: Finding, entries: tuple[KnownDefect, ...], claim: str, case: Case
) -> tuple[Finding, KnownDefect | None]:
    """An expected failure is ``known-defect``; an unexpected pass is ``fixed-upstream``.

    Failed in any other way stays ``failed``. Any other outcome passes through: a crash of Assay or
    a missing measurement is never a known defect.
    """
    if not entries:
        return finding, None
    if finding.outcome is Outcome.FAILED:
        for entry in entries:
            ways = entry.ways(claim)
            if any(way.holds(finding.measured, finding.failure, case) for way in ways):
                reason = f"{entry.reason}; seen: {finding.reason}"
                known = replace(finding, outcome=Outcome.KNOWN_DEFECT, reason=reason, advice="")
                return known, entry
        other = f"{finding.reason}; this is not the known defect ({entries[0].upstream})"
        return replace(finding, reason=other), None
    if finding.outcome in (Outcome.PASSED, Outcome.IMPROVED):
        entry = entries[0]
        fixed = replace(
            finding,
            outcome=Outcome.FIXED_UPSTREAM,
            reason=f"{finding.reason}; expected to fail: {entry.reason}",
            advice=f"retire the known defect last seen {entry.last_seen} ({entry.upstream})",
        )
        return fixed, entry
    return finding, entries[0]
