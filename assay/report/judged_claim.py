"""Judged claims: a verdict beside the must-fail twins that vouch for its detector."""

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
class Twin:
    """One must-fail twin's verdict: ``kept`` means that it broke the claim, as it must."""

    workload: str
    arm: str
    verdict: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClaim:
    """One claim on the feature in one workload, with the twins that vouch for its detector."""

    workload: str
    claim: str
    verdict: Outcome
    measured: int | float | None
    limit: int | float | None
    unit: Unit
    reason: str
    upstream: str
    detector: Detector
    twins: tuple[Twin, ...]


def judged_claim(record: Record, run: Sequence[Record]) -> JudgedClaim:
    """The record's claim with its twins among the records of one target."""
    twins = _twins(record, run)
    return JudgedClaim(
        workload=record.workload,
        claim=record.claim,
        verdict=record.verdict,
        measured=record.measured,
        limit=record.limit,
        unit=record.unit,
        reason=record.reason,
        upstream=record.upstream,
        detector=_detector(twins),
        twins=tuple(
            Twin(workload=twin.workload, arm=twin.arm, verdict=twin.verdict) for twin in twins
        ),
    )


def _twins(record: Record, run: Sequence[Record]) -> tuple[Record, ...]:
    """The claim's negative controls in the same workload."""
    key = (record.run, record.suite, record.workload, record.claim + MUST_FAIL)
    return tuple(
        other for other in run if (other.run, other.suite, other.workload, other.claim) == key
    )


def _detector(twins: Sequence[Record]) -> Detector:
    if any(twin.verdict.fails for twin in twins):
        return Detector.BLIND
    sound = twins and all(twin.verdict is Outcome.KEPT for twin in twins)
    return Detector.SOUND if sound else Detector.UNPROVEN
