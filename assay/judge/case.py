"""One claim on one case, from evidence to the finding that is recorded."""

from dataclasses import replace

from assay.judge.defects import against_defect, known_defect
from assay.model.blame import in_words, is_ours
from assay.model.claim import Case, Claim, Stopped
from assay.model.verdict import Finding, Outcome
from assay.model.workload import KnownDefect

_KEPT = (Outcome.KEPT, Outcome.IMPROVED)


def judge(claim: Claim, case: Case) -> Finding:
    """The claim's finding; whatever goes wrong while judging is never a pass.

    What Assay itself raises is an ``error``, what the check's own code raises breaks the claim. A
    claim that says kept or improved without a measurement and a limit broke its own law: an error.
    """
    try:
        finding = claim.judge(case)
    except Stopped as stopped:
        finding = stopped.finding
    # A claim and its formulas may be anyone's code; their fault must not take the run down.
    except Exception as fault:  # noqa: BLE001
        return at_fault(fault, f"claim {claim.name!r}")
    if finding.outcome in _KEPT and None in (finding.measured, finding.limit):
        return replace(
            finding,
            outcome=Outcome.ERROR,
            reason=f"claim {claim.name!r} says {finding.outcome.value} but measured nothing",
            advice=f"return measured and limit with every {finding.outcome.value} finding",
        )
    return finding


def at_fault(fault: Exception, what: str) -> Finding:
    """The finding that an exception from a check amounts to: whose code raised it decides."""
    if is_ours(fault):
        return Finding(
            outcome=Outcome.ERROR,
            reason=f"{what} failed: {in_words(fault)}",
            advice="this is a fault of Assay, not of the program; report it",
        )
    return Finding(
        outcome=Outcome.BROKEN,
        reason=f"nothing to measure: the check's own code failed ({what}): {in_words(fault)}",
        advice="fix the check at that line; this says nothing about the compiler",
    )


def judge_arm(claim: Claim, case: Case) -> tuple[Finding, KnownDefect | None]:
    """The finding on an arm, set against the workload's known defects."""
    defect = known_defect(
        case.workload.known_defects,
        workload=case.workload.name,
        arm=case.arm.name,
        claim=claim.name,
        target=case.evidence.target,
        versions=case.evidence.toolchain.versions,
    )
    return against_defect(judge(claim, case), defect), defect


def judge_twin(claim: Claim, case: Case) -> Finding:
    """The verdict on the detector: it is sound only if this must-fail twin breaks the claim.

    A twin that breaks it for want of a measurement proves nothing: ``not-measured``.
    """
    finding = judge(claim, case)
    if finding.outcome is Outcome.BROKEN and finding.measured is None:
        return replace(
            finding,
            outcome=Outcome.NOT_MEASURED,
            reason=f"the must-fail twin could not be measured: {finding.reason}",
            advice="",
        )
    if finding.outcome is Outcome.BROKEN:
        return replace(
            finding,
            outcome=Outcome.KEPT,
            reason=f"the twin breaks the claim, as it must: {finding.reason}",
            advice="",
        )
    if finding.outcome in _KEPT:
        return replace(
            finding,
            outcome=Outcome.BROKEN,
            reason=f"the claim is blind, its must-fail twin keeps it: {finding.reason}",
            advice="the detector or the twin is wrong; no verdict of this claim can be trusted",
        )
    return finding
