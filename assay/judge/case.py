"""One claim on one case: from measurements, known defects and controls to the recorded finding."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import isfinite, isinf

from assay.judge.baseline import in_range
from assay.model.blame import in_words, is_ours
from assay.model.claim import Case, Claim, Stopped
from assay.model.evidence import FailureKind
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


_PASSED = (Outcome.PASSED, Outcome.IMPROVED)


def judge(claim: Claim, case: Case) -> Finding:
    """The claim's finding; whatever goes wrong while judging is never a pass.

    What Assay itself raises is an ``error``, what the check's own code raises fails the claim. A
    claim that says passed or improved without a measurement and a limit broke its own law: an
    error. So is a number that is not finite; a failed claim alone may measure infinity.
    """
    try:
        finding = claim.judge(case)
    except Stopped as stopped:
        finding = stopped.finding
    # A claim and its formulas may be anyone's code; their fault must not take the run down.
    except Exception as fault:  # noqa: BLE001
        return at_fault(fault, f"claim {claim.name!r}")
    if finding.outcome in _PASSED and None in (finding.measured, finding.limit):
        return replace(
            finding,
            outcome=Outcome.ERROR,
            reason=f"claim {claim.name!r} says {finding.outcome.value} but measured nothing",
            advice=f"return measured and limit with every {finding.outcome.value} finding",
        )
    return _finite(claim, finding)


def _finite(claim: Claim, finding: Finding) -> Finding:
    numbers = {"measured": finding.measured, "limit": finding.limit}
    odd = {name: number for name, number in numbers.items() if not isfinite(number or 0)}
    if finding.outcome is Outcome.FAILED and isinf(odd.get("measured") or 0):
        del odd["measured"]
    if not odd:
        return finding
    words = ", ".join(f"{name}={number}" for name, number in odd.items())
    return replace(
        finding,
        outcome=Outcome.ERROR,
        reason=f"claim {claim.name!r} gives {words}, which is not finite: {finding.reason}",
        advice="return finite numbers, or an inconclusive finding that says why there is none",
    )


def at_fault(fault: Exception, what: str) -> Finding:
    """The finding that an exception from a check amounts to: whose code raised it decides."""
    if is_ours(fault):
        return Finding(
            outcome=Outcome.ERROR,
            reason=f"{what} failed: {in_words(fault)}",
            advice="this is a fault of Assay, not of the program; report it",
        )
    return Finding(
        outcome=Outcome.FAILED,
        reason=f"nothing to measure: the check's own code failed ({what}): {in_words(fault)}",
        advice="fix the check at that line; this says nothing about the compiler",
    )


def judge_variant(claim: Claim, case: Case) -> tuple[Finding, KnownDefect | None]:
    """The finding on a variant, set against the workload's known defects."""
    name = claim.name
    entries = known_defects(
        case.workload.known_defects,
        workload=case.workload.name,
        variant=case.variant.name,
        claim=name,
        target=case.evidence.target,
        versions=case.evidence.toolchain.versions,
    )
    finding = judge(claim, case)
    try:
        return against_defects(finding, entries, name, case)
    # What an entry expects may be a formula of the suite's own, which may raise anything.
    except Exception as fault:  # noqa: BLE001
        return at_fault(fault, f"a known defect of {name!r}"), None


def judge_negative_control(claim: Claim, case: Case) -> Finding:
    """The verdict on the detector: sound only if this negative control fails the claim.

    The control must fail it by a measurement, or with the kind of failure that its variant names.
    One that fails it for another reason proves nothing: the detector is as untested as if the
    control had passed, and both are ``failed``.
    """
    finding = judge(claim, case)
    if finding.outcome in _PASSED:
        return _blind(
            finding, f"the negative control passes the claim, which is blind: {finding.reason}"
        )
    if finding.outcome is not Outcome.FAILED:
        return finding
    unproven = _why_unproven(finding, case.variant.fails_with)
    if unproven:
        return _blind(finding, f"the negative control proves nothing, {unproven}: {finding.reason}")
    return replace(
        finding,
        outcome=Outcome.PASSED,
        reason=f"the negative control fails the claim, as it must: {finding.reason}",
        advice="",
    )


def _why_unproven(finding: Finding, expected: FailureKind | None) -> str:
    """Why a failed claim does not show that the detector works; empty if it does."""
    if finding.failure is not None and finding.failure.kind is not expected:
        if expected is None:
            return "for it failed, and its variant names no failure (fails_with)"
        return f"for it must be one that {expected.phrase} (fails_with)"
    if finding.measured is None or finding.limit is None:
        return "for nothing was measured"
    return "" if isfinite(finding.measured) else "for what it measures is not finite"


def _blind(finding: Finding, reason: str) -> Finding:
    return replace(
        finding,
        outcome=Outcome.FAILED,
        reason=reason,
        advice="correct the detector or the negative control; until then no verdict of this claim "
        "counts",
    )


def no_control(finding: Finding) -> Finding:
    """The verdict on a control that cannot be judged where the claim can."""
    return _blind(finding, f"the negative control cannot be judged here: {finding.reason}")


def vouched(finding: Finding, controls: Iterable[tuple[str, Finding]]) -> Finding:
    """The finding if every negative control failed the claim, else ``inconclusive``.

    ``controls`` gives each one's name and the finding of ``judge_negative_control``.
    """
    for name, control in controls:
        if control.outcome is not Outcome.PASSED:
            return replace(
                finding,
                outcome=Outcome.INCONCLUSIVE,
                reason=f"the negative control {name!r} did not fail: {control.reason}",
                advice=control.advice,
            )
    return finding
