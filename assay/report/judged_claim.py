"""Judged claims: a verdict beside the negative controls that vouch for its detector."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from assay.model.units import Unit
from assay.model.verdict import MUST_FAIL, Outcome, Record


class Detector(Enum):
    """Whether a claim was shown, in this run, to notice what it is there to notice."""

    SOUND = "sound"
    BLIND = "blind"
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True, kw_only=True)
class NegativeControl:
    """One negative control's verdict: ``passed`` means that it failed the claim, as it must."""

    workload: str
    variant: str
    verdict: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClaim:
    """One claim on the feature in one workload, with the negative controls of its detector."""

    workload: str
    claim: str
    verdict: Outcome
    measured: int | float | None
    limit: int | float | None
    unit: Unit
    reason: str
    upstream: str
    detector: Detector
    negative_controls: tuple[NegativeControl, ...]


def judged_claim(record: Record, run: Sequence[Record]) -> JudgedClaim:
    """The record's claim with its negative controls among the records of one target."""
    negative_controls = _negative_controls(record, run)
    return JudgedClaim(
        workload=record.workload,
        claim=record.claim,
        verdict=record.verdict,
        measured=record.measured,
        limit=record.limit,
        unit=record.unit,
        reason=record.reason,
        upstream=record.upstream,
        detector=_detector(negative_controls),
        negative_controls=tuple(
            NegativeControl(
                workload=negative_control.workload,
                variant=negative_control.variant,
                verdict=negative_control.verdict,
            )
            for negative_control in negative_controls
        ),
    )


def _negative_controls(record: Record, run: Sequence[Record]) -> tuple[Record, ...]:
    """The claim's negative controls in the same workload."""
    key = (record.run, record.suite, record.workload, record.claim + MUST_FAIL)
    return tuple(
        other for other in run if (other.run, other.suite, other.workload, other.claim) == key
    )


def _detector(negative_controls: Sequence[Record]) -> Detector:
    if any(negative_control.verdict.fails for negative_control in negative_controls):
        return Detector.BLIND
    sound = negative_controls and all(
        negative_control.verdict is Outcome.PASSED for negative_control in negative_controls
    )
    return Detector.SOUND if sound else Detector.UNPROVEN
