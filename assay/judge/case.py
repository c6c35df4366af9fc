"""One claim on one case: from measurements, known defects and controls to the recorded finding."""

from collections.abc import Iterable
from dataclasses import replace
from math import isfinite, isinf

from assay.judge.baseline import in_range
from assay.model.blame import in_words, is_ours
from assay.model.claim import Case, Claim, Stopped, is_on_times
from assay.model.defect import KnownDefect, UpstreamState
from assay.model.evidence import FailureKind
from assay.model.inspection import describe
from assay.model.verdict import Finding, Outcome
from assay.model.workload import matches_any

TOO_SMALL = "not judged, because this machine has too little memory: {}"
"""The reason of an inconclusive verdict; it ends with the failure."""
_PASSED = (Outcome.PASSED, Outcome.IMPROVED)


def judge(claim: Claim, case: Case) -> Finding:
    """The claim's finding. An exception is never a pass: Assay's own is an error, others fail.

    A finding that passes without a measurement, or without a limit, is an error. So is a number
    that is not finite, but a failed claim may measure infinity. If the program failed because this
    machine has too little memory, the claim is inconclusive.
    """
    try:
        finding = claim.judge(case)
    except Stopped as stopped:
        finding = stopped.finding
    # A claim and its formulas may be anyone's code; their fault must not take the run down.
    except Exception as fault:  # noqa: BLE001
        return at_fault(fault, f"claim {claim.name!r}")
    if finding.failure is not None and finding.failure.of_machine:
        return replace(
            finding,
            outcome=Outcome.INCONCLUSIVE,
            measured=None,
            limit=None,
            reason=TOO_SMALL.format(describe(finding.failure)),
            advice="run fewer workers (-n), or use a machine with more memory; to judge the memory "
            "of the compiler itself, give --assay-memory-limit",
            failure=None,
        )
    unsound = _why_unsound(finding)
    if not unsound:
        return finding
    return replace(
        finding,
        outcome=Outcome.ERROR,
        reason=f"claim {claim.name!r} {unsound}",
        advice="return finite numbers, or an inconclusive finding that says why there is none",
    )


def _why_unsound(finding: Finding) -> str:
    """What is wrong with the finding; empty if nothing is."""
    if finding.outcome in _PASSED and None in (finding.measured, finding.limit):
        return f"says {finding.outcome.value} but measured nothing"
    numbers = {"measured": finding.measured, "limit": finding.limit}
    if finding.outcome is Outcome.FAILED and isinf(finding.measured or 0):
        del numbers["measured"]
    odd = [f"{name}={each}" for name, each in numbers.items() if not isfinite(each or 0)]
    return f"gives {', '.join(odd)}, which is not finite: {finding.reason}" if odd else ""


def at_fault(fault: Exception, what: str) -> Finding:
    """The finding on an exception of a check, by the owner of the code that raised it."""
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


def known_defects(claim: str, case: Case) -> tuple[KnownDefect, ...]:
    """The workload's entries for this claim, variant, target and toolchain."""
    versions = case.evidence.toolchain.versions
    entries = on_any_toolchain(claim, case)
    return tuple(each for each in entries if in_range(each.toolchain, versions))


def on_any_toolchain(claim: str, case: Case) -> tuple[KnownDefect, ...]:
    """The workload's entries for this claim, variant and target, on any toolchain."""
    return tuple(
        entry
        for entry in case.workload.known_defects
        if matches_any(case.workload.name, entry.workloads)
        and matches_any(case.variant.name, entry.variants)
        and entry.ways(claim)
        and matches_any(case.evidence.target, entry.targets)
    )


def fails_as(entry: KnownDefect, claim: str, finding: Finding, case: Case) -> bool:
    """Whether the claim failed in a way that the entry expects; a formula may raise anything."""
    return finding.outcome is Outcome.FAILED and any(
        way.holds(finding.measured, finding.failure, case) for way in entry.ways(claim)
    )


def judge_variant(claim: Claim, case: Case) -> tuple[Finding, KnownDefect | None]:
    """The finding on a variant, and the known defect that applies.

    An expected failure is ``known-defect``, an unexpected pass ``fixed-upstream``. All else stays:
    another failure, a crash of Assay or a missing measurement is never a known defect.
    """
    entries = known_defects(claim.name, case)
    finding = judge(claim, case)
    if not entries:
        return finding, None
    entry = entries[0]
    if finding.outcome in _PASSED:
        fixed = replace(
            finding,
            outcome=Outcome.FIXED_UPSTREAM,
            reason=f"{finding.reason}; expected to fail: {entry.reason}",
            advice=f"retire the known defect last seen {entry.last_seen} ({entry.upstream.link})",
        )
        return fixed, entry
    if finding.outcome is not Outcome.FAILED:
        return finding, entry
    expected_by = (each for each in entries if fails_as(each, claim.name, finding, case))
    try:
        expected = next(expected_by, None)
    # What an entry expects may be a formula of the suite's own, which may raise anything.
    except Exception as fault:  # noqa: BLE001
        return at_fault(fault, f"a known defect of {claim.name!r}"), None
    if expected is None:
        other = f"{finding.reason}; this is not the known defect ({entry.upstream.link})"
        return replace(finding, reason=other), None
    known = replace(
        finding,
        outcome=Outcome.KNOWN_DEFECT,
        reason=f"{expected.reason}; seen: {finding.reason}",
        advice=_next_step(expected, case.variant.name),
    )
    return known, expected


def _next_step(entry: KnownDefect, variant: str) -> str:
    """The remedy if there is one, and where the report stands."""
    remedy, standing = entry.remedy(variant), entry.upstream.standing
    step = f"use variant {remedy!r}" if remedy else "no variant without the defect is known"
    if entry.upstream.state is UpstreamState.CLOSED:
        standing += ", still present"
    elif entry.upstream.state is UpstreamState.OPEN and not remedy:
        step = "no action needed"
    return f"{step}; {standing}"


def judge_negative_control(claim: Claim, case: Case, variants: Iterable[Case] = ()) -> Finding:
    """The verdict on the detector: ``passed`` only if this negative control fails the claim.

    The control must fail it by a measurement. If its program fails, that must be the kind of
    failure that its variant names. A control that passes, or fails for another reason, is
    ``failed``; so is one that is not judged although one of its ``variants`` can be judged. An
    inconclusive time does not count as not judged: one of the two can be too noisy to decide. A
    claim on a baseline needs the baseline of the reference variant; without it the verdict is
    ``inconclusive``.
    """
    finding = _judge_control(claim, case)
    outcome = finding.outcome
    noisy = outcome is Outcome.INCONCLUSIVE and is_on_times(claim)
    if outcome.judged or outcome is Outcome.ERROR or noisy:
        return finding
    if any(judge(claim, each).outcome.judged for each in variants):
        return undetected(finding, "cannot be judged here")
    return finding


def _judge_control(claim: Claim, case: Case) -> Finding:
    finding = judge(claim, case)
    if not finding.outcome.judged:
        return finding
    if claim.uses_baseline and case.baseline is None:
        return Finding(
            outcome=Outcome.INCONCLUSIVE,
            reason=f"no baseline is stored for its reference {case.variant.reference!r}",
            advice="store one with --assay-update-baselines=new",
        )
    why = _why_unproven(finding, case.variant.fails_with)
    if why:
        return undetected(finding, why)
    return replace(
        finding,
        outcome=Outcome.PASSED,
        reason=f"the negative control fails the claim, as it must: {finding.reason}",
        advice="",
    )


def _why_unproven(finding: Finding, expected: FailureKind | None) -> str:
    """Why the negative control does not show that the detector works; empty if it does."""
    if finding.outcome in _PASSED:
        return "passes the claim, so this check cannot detect the fault"
    if finding.failure is not None and finding.failure.kind is not expected:
        wanted = f"one that {expected.phrase}" if expected else "no failure"
        return f"proves nothing (its variant names {wanted} in fails_with)"
    if finding.measured is None or finding.limit is None:
        return "proves nothing (nothing was measured)"
    return "" if isfinite(finding.measured) else "proves nothing (its measurement is not finite)"


def undetected(finding: Finding, how: str) -> Finding:
    """The verdict on a negative control that does not prove the detector."""
    return replace(
        finding,
        outcome=Outcome.FAILED,
        reason=f"the negative control {how}: {finding.reason}",
        advice="correct the claim, or the variant that is its negative control; until then no "
        "verdict of this check counts",
    )


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
