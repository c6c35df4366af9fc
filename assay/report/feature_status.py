"""The status of a feature, from the claims on it, by rules in a fixed order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from assay.model.verdict import Outcome
from assay.report.judged_claim import Detector, JudgedClaim
from assay.report.labels import plural


class Decision(Enum):
    """What a target is said to do with a feature."""

    PASS = "pass"  # noqa: S105 - a decision, no secret
    FAIL = "fail"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureStatus:
    """The decision and why; ``known`` marks a failure reported upstream."""

    decision: Decision
    reason: str
    known: bool = False


def feature_status(claims: Sequence[JudgedClaim]) -> FeatureStatus:
    """Decide a feature.

    The first rule that applies decides:

    1. any ``error``: inconclusive, for Assay's fault says nothing of the compiler;
    2. any ``failed`` or ``fixed-upstream``: fail;
    3. any ``known-defect``: fail, marked known;
    4. nothing judged: unsupported if no claim could be, else inconclusive;
    5. a judged claim without a sound detector: inconclusive;
    6. pass.

    Rule 5 is strict and has no exception: *every* judged claim needs its negative controls, in the
    same run, suite, workload and target, and each of them must have failed. A claim that was never
    seen to fail may be unable to, so its verdict vouches for nothing, and a feature said to pass
    on five claims must not rest on four. A control that passed its claim, or on which Assay failed,
    outweighs one that failed it.
    """
    errors = _having(claims, Outcome.ERROR)
    if errors:
        return FeatureStatus(
            decision=Decision.INCONCLUSIVE, reason=f"Assay failed: {_name(errors)}"
        )
    failed = _having(claims, Outcome.FAILED, Outcome.FIXED_UPSTREAM)
    if failed:
        return FeatureStatus(decision=Decision.FAIL, reason=_name(failed))
    known = _having(claims, Outcome.KNOWN_DEFECT)
    if known:
        return FeatureStatus(decision=Decision.FAIL, reason=_name(known), known=True)
    judged = [claim for claim in claims if claim.verdict.judged]
    return _status_of_passed(judged, len(claims)) if judged else _status_of_unjudged(claims)


def _status_of_unjudged(claims: Sequence[JudgedClaim]) -> FeatureStatus:
    unmeasured = _having(claims, Outcome.INCONCLUSIVE)
    decision = Decision.INCONCLUSIVE if unmeasured else Decision.UNSUPPORTED
    reasons = dict.fromkeys(claim.reason for claim in unmeasured or claims)
    return FeatureStatus(decision=decision, reason="; ".join(reasons))


def _status_of_passed(judged: Sequence[JudgedClaim], total: int) -> FeatureStatus:
    blind = [claim.claim for claim in judged if claim.detector is Detector.BLIND]
    unproven = [claim.claim for claim in judged if claim.detector is Detector.UNPROVEN]
    if blind:
        reason = f"the negative control of {_list(blind)} did not fail in this run"
        return FeatureStatus(decision=Decision.INCONCLUSIVE, reason=reason)
    if unproven:
        reason = f"no negative control of {_list(unproven)} failed in this run"
        return FeatureStatus(decision=Decision.INCONCLUSIVE, reason=reason)
    passed = f"{plural(len(judged), 'claim')} passed, and every negative control failed as it must"
    left = f"; {total - len(judged)} more could not be judged" if total > len(judged) else ""
    return FeatureStatus(decision=Decision.PASS, reason=passed + left)


def _having(claims: Sequence[JudgedClaim], *verdicts: Outcome) -> list[JudgedClaim]:
    return [claim for claim in claims if claim.verdict in verdicts]


def _name(claims: Sequence[JudgedClaim]) -> str:
    first = claims[0]
    more = f" (and {len(claims) - 1} more)" if len(claims) > 1 else ""
    return f"{first.claim} in {first.workload}: {first.reason}{more}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
