"""Rulings: what the claims on one feature come to, by rules in a fixed order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from assay.model.verdict import Outcome
from assay.report.judged_claim import Detector, JudgedClaim
from assay.report.words import plural


class Decision(Enum):
    """What a target is said to do with a feature."""

    PASS = "pass"  # noqa: S105 - a decision, no secret
    FAIL = "fail"
    CANNOT_RUN = "cannot-run"
    NOT_MEASURED = "not-measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The decision and why; ``known`` marks a failure reported upstream."""

    decision: Decision
    reason: str
    known: bool = False


def rule(claims: Sequence[JudgedClaim]) -> Ruling:
    """Decide a feature.

    The first rule that applies decides:

    1. any ``error``: not-measured, for Assay's fault says nothing of the compiler;
    2. any ``broken`` or ``fixed-upstream``: fail;
    3. any ``known-defect``: fail, marked known;
    4. nothing judged: cannot-run if no claim could be, else not-measured;
    5. a judged claim without a sound detector: not-measured;
    6. pass.

    Rule 5 is strict and has no exception: *every* judged claim needs its negative controls, in the
    same run, suite, workload and target, and each of them must have failed. A claim that was never
    seen to fail may be unable to, so its verdict vouches for nothing, and a feature said to pass
    on five claims must not rest on four. A control that kept its claim, or on which Assay failed,
    outweighs one that broke it.
    """
    errors = _having(claims, Outcome.ERROR)
    if errors:
        return Ruling(decision=Decision.NOT_MEASURED, reason=f"Assay failed: {_name(errors)}")
    broken = _having(claims, Outcome.BROKEN, Outcome.FIXED_UPSTREAM)
    if broken:
        return Ruling(decision=Decision.FAIL, reason=_name(broken))
    known = _having(claims, Outcome.KNOWN_DEFECT)
    if known:
        return Ruling(decision=Decision.FAIL, reason=_name(known), known=True)
    judged = [claim for claim in claims if claim.verdict.judged]
    return _rule_on_kept(judged, len(claims)) if judged else _rule_on_unjudged(claims)


def _rule_on_unjudged(claims: Sequence[JudgedClaim]) -> Ruling:
    unmeasured = _having(claims, Outcome.NOT_MEASURED)
    decision = Decision.NOT_MEASURED if unmeasured else Decision.CANNOT_RUN
    reasons = dict.fromkeys(claim.reason for claim in unmeasured or claims)
    return Ruling(decision=decision, reason="; ".join(reasons))


def _rule_on_kept(judged: Sequence[JudgedClaim], total: int) -> Ruling:
    blind = [claim.claim for claim in judged if claim.detector is Detector.BLIND]
    unproven = [claim.claim for claim in judged if claim.detector is Detector.UNPROVEN]
    if blind:
        reason = f"the must-fail twin of {_list(blind)} did not fail in this run"
        return Ruling(decision=Decision.NOT_MEASURED, reason=reason)
    if unproven:
        reason = f"no must-fail twin of {_list(unproven)} failed in this run"
        return Ruling(decision=Decision.NOT_MEASURED, reason=reason)
    kept = f"{plural(len(judged), 'claim')} kept, and every twin failed as it must"
    left = f"; {total - len(judged)} more could not be judged" if total > len(judged) else ""
    return Ruling(decision=Decision.PASS, reason=kept + left)


def _having(claims: Sequence[JudgedClaim], *verdicts: Outcome) -> list[JudgedClaim]:
    return [claim for claim in claims if claim.verdict in verdicts]


def _name(claims: Sequence[JudgedClaim]) -> str:
    first = claims[0]
    more = f" (and {len(claims) - 1} more)" if len(claims) > 1 else ""
    return f"{first.claim} in {first.workload}: {first.reason}{more}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
