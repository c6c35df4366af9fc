"""Setting a finding against the defects already known upstream."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from assay.judge.toolchains import in_range
from assay.model.verdict import Finding, Outcome
from assay.model.workload import KnownDefect, matches_any


def known_defect(
    defects: Iterable[KnownDefect],
    *,
    workload: str,
    arm: str,
    claim: str,
    target: str,
    versions: Mapping[str, str],
) -> KnownDefect | None:
    """The first entry that speaks of this arm, claim, target and toolchain."""
    for defect in defects:
        if (
            matches_any(workload, defect.workloads)
            and matches_any(arm, defect.arms)
            and matches_any(claim, defect.claims)
            and matches_any(target, defect.targets)
            and in_range(defect.toolchain, versions)
        ):
            return defect
    return None


def against_defect(finding: Finding, defect: KnownDefect | None) -> Finding:
    """Broken as expected is ``known-defect``; kept against expectation is ``fixed-upstream``.

    Any other outcome passes through: a crash of Assay or a missing measurement is never a known
    defect.
    """
    if defect is None:
        return finding
    if finding.outcome is Outcome.BROKEN:
        return replace(
            finding,
            outcome=Outcome.KNOWN_DEFECT,
            reason=f"{defect.reason}; seen: {finding.reason}",
            advice="",
        )
    if finding.outcome in (Outcome.KEPT, Outcome.IMPROVED):
        return replace(
            finding,
            outcome=Outcome.FIXED_UPSTREAM,
            reason=f"{finding.reason}; expected broken: {defect.reason}",
            advice=f"retire the known defect last seen {defect.last_seen} ({defect.upstream})",
        )
    return finding
