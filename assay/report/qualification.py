"""Qualification: the status of each feature on one target, and the page for its vendor."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from assay.model.invocation import USUAL, Ending, lost_on
from assay.model.units import Unit
from assay.model.verdict import MUST_FAIL, ExitCode, Outcome, Record
from assay.report.labels import amount, code, escape, plural, table, toolchain_versions


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


QUALIFICATION_SCHEMA = 1
_LOST = "an item reached no verdict: its worker was lost, or the run ended before it"
_REPORTED = (Outcome.KNOWN_DEFECT, Outcome.FIXED_UPSTREAM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where the records come from; ``date`` is ISO 8601."""

    target: str
    toolchain: dict[str, str]
    platform: str
    python: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One variant of a suite over all its workloads.

    ``known`` marks a failure reported upstream.
    """

    suite: str
    variant: str
    decision: Decision
    known: bool
    reason: str
    upstream: tuple[str, ...]
    claims: tuple[JudgedClaim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualification:
    """The vendor's answer; ``exit_code`` follows the fixed rule on the target's records."""

    schema: int
    target: str
    runs: tuple[str, ...]
    environment: Environment
    features: tuple[Feature, ...]
    exit_code: ExitCode


def qualify(
    records: Iterable[Record],
    *,
    target: str,
    platform: str,
    python: str,
    date: str,
    ending: Ending = USUAL.ending,
) -> Qualification:
    """Decide every feature of one target from its records; those of other targets are ignored.

    What never reached a verdict is ``inconclusive``, and fails the qualification.
    """
    lost = [tuple(program.split("/")) for program in lost_on(ending, target)]
    mine = tuple(record for record in records if record.target == target)
    if ending.cut_short:  # Nobody knows which claims were still to come.
        lost += [(record.workload, record.variant) for record in mine]
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in mine:
        if not record.must_fail:
            groups.setdefault((record.suite, record.variant), []).append(record)
    return Qualification(
        schema=QUALIFICATION_SCHEMA,
        target=target,
        runs=tuple(dict.fromkeys(record.run for record in mine)),
        environment=Environment(
            target=target,
            toolchain=toolchain_versions(mine),
            platform=platform,
            python=python,
            date=date,
        ),
        features=(
            *(_feature(group, mine, lost) for group in groups.values()),
            *_lost_features(mine, lost),
        ),
        exit_code=ending.code(mine),
    )


def to_json(qualification: Qualification) -> bytes:
    """``qualification.json``: indented, with a final newline."""
    return msgspec.json.format(msgspec.json.encode(qualification), indent=2) + b"\n"


def _lost_features(mine: Sequence[Record], lost: Iterable[tuple[str, ...]]) -> Iterator[Feature]:
    """Variants of which no claim at all reached a verdict."""
    suites = {record.workload: record.suite for record in mine}
    seen = {(record.workload, record.variant) for record in mine}
    for workload, variant in (each for each in lost if each not in seen):
        yield Feature(
            suite=suites.get(workload, workload),
            variant=variant,
            decision=Decision.INCONCLUSIVE,
            known=False,
            reason=_LOST,
            upstream=(),
            claims=(),
        )


def _feature(
    group: Sequence[Record], mine: Sequence[Record], lost: Sequence[tuple[str, ...]]
) -> Feature:
    claims = tuple(judged_claim(record, mine) for record in group)
    status = feature_status(claims)
    if status.decision is Decision.PASS and any(
        (record.workload, record.variant) in lost for record in group
    ):
        status = FeatureStatus(decision=Decision.INCONCLUSIVE, reason=_LOST)
    links = dict.fromkeys(claim.upstream for claim in claims if claim.verdict in _REPORTED)
    return Feature(
        suite=group[0].suite,
        variant=group[0].variant,
        decision=status.decision,
        known=status.known,
        reason=status.reason,
        upstream=tuple(filter(None, links)),
        claims=claims,
    )


def vendor_page(qualification: Qualification) -> str:
    """The first screen, then every claim of every feature with its numbers."""
    return "\n\n".join([*_first_screen(qualification), *_reasons(qualification)]) + "\n"


def vendor_summary(qualification: Qualification) -> str:
    """Headline, environment and one line a feature."""
    return "\n\n".join(_first_screen(qualification)) + "\n"


def _first_screen(qualification: Qualification) -> Iterator[str]:
    yield f"# Qualification of {escape(qualification.target)}"
    yield f"**{_headline(qualification)}**"
    yield "## Environment"
    yield table(("what", "value"), _environment_rows(qualification))
    yield "## Features"
    yield table(("feature", "decision", "reason"), map(_feature_row, qualification.features))
    yield (
        "A feature passes only if every claim it was judged by passes and that claim's "
        "negative control failed in the same run."
    )


def _reasons(qualification: Qualification) -> Iterator[str]:
    yield "## Reasons"
    for feature in qualification.features:
        yield from _feature_blocks(feature)


def _headline(qualification: Qualification) -> str:
    decisions = [feature.decision for feature in qualification.features]
    counts = ", ".join(f"{decisions.count(decision)} {decision.value}" for decision in Decision)
    features = plural(len(decisions), "feature")
    return f"{features}: {counts}. Exit code {qualification.exit_code.value}."


def _environment_rows(qualification: Qualification) -> Iterator[tuple[str, str]]:
    environment = qualification.environment
    yield "target", escape(environment.target)
    yield "date", escape(environment.date)
    yield "run", escape(", ".join(qualification.runs))
    yield "platform", escape(environment.platform)
    yield "python", escape(environment.python)
    for name, version in environment.toolchain.items():
        yield escape(name), escape(version)


def _feature_row(feature: Feature) -> tuple[str, ...]:
    return (_feature_name(feature), _decision(feature), escape(feature.reason))


def _feature_blocks(feature: Feature) -> Iterator[str]:
    yield f"### {_feature_name(feature)}: {_decision(feature)}"
    yield escape(feature.reason)
    for link in feature.upstream:
        yield f"Upstream: {code(link)}"
    head = ("workload", "claim", "verdict", "measured", "limit", "negative control", "reason")
    yield table(head, map(_claim_row, feature.claims))


def _claim_row(claim: JudgedClaim) -> tuple[str, ...]:
    negative_controls = ", ".join(
        f"{negative_control.workload}/{negative_control.variant}: {negative_control.verdict.value}"
        for negative_control in claim.negative_controls
    )
    return (
        escape(claim.workload),
        escape(claim.claim),
        claim.verdict.value,
        amount(claim.measured, claim.unit),
        amount(claim.limit, claim.unit),
        escape(
            f"{claim.detector.value} ({negative_controls})"
            if negative_controls
            else claim.detector.value
        ),
        escape(claim.reason),
    )


def _feature_name(feature: Feature) -> str:
    return escape(f"{feature.suite}/{feature.variant}")


def _decision(feature: Feature) -> str:
    known = " (known)" if feature.known else ""
    return f"**{feature.decision.value}**{known}"
