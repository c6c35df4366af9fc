"""Qualification: the decision on each feature of one target, and the page for its vendor."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec

from assay.model.units import Unit
from assay.model.verdict import MUST_FAIL, USUAL, Ending, ExitCode, Outcome, Record, lost_on
from assay.report.labels import amount, plural, toolchain_versions
from assay.report.summary import code, escape, table

QUALIFICATION_SCHEMA = 1
_LOST = "an item reached no verdict: its worker was lost, or the run ended before it"


class Detector(Enum):
    """Whether this run showed that a claim detects its fault."""

    SOUND = "sound"
    BLIND = "blind"
    UNPROVEN = "unproven"


class Decision(Enum):
    """The decision on a feature of a target."""

    PASS = "pass"  # noqa: S105 - a decision, no secret
    FAIL = "fail"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"


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
    """One variant of a suite in all its workloads; ``known`` marks a failure reported upstream."""

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

    A feature with an item that reached no verdict does not pass.
    """
    mine = tuple(record for record in records if record.target == target)
    lost = [tuple(program.split("/")) for program in lost_on(ending, target)]
    if ending.cut_short:  # Any program may have had more claims.
        lost += [(record.workload, record.variant) for record in mine]
    variants: dict[tuple[str, str], list[Record]] = {}
    for record in mine:
        if not record.must_fail:
            variants.setdefault((record.suite, record.variant), []).append(record)
    features = [_feature(*name, group, mine, lost) for name, group in variants.items()]
    suites = {record.workload: record.suite for record in mine}
    seen = {(record.workload, record.variant) for record in mine}
    for workload, variant in (each for each in lost if each not in seen):
        features.append(_feature(suites.get(workload, workload), variant, (), mine, lost))
    toolchain = toolchain_versions(mine)
    return Qualification(
        schema=QUALIFICATION_SCHEMA,
        target=target,
        runs=tuple(dict.fromkeys(record.run for record in mine)),
        environment=Environment(
            target=target, toolchain=toolchain, platform=platform, python=python, date=date
        ),
        features=tuple(features),
        exit_code=ending.code(mine),
    )


def _feature(
    suite: str,
    variant: str,
    group: Sequence[Record],
    mine: Sequence[Record],
    lost: Sequence[tuple[str, ...]],
) -> Feature:
    claims = tuple(_judged_claim(record, mine) for record in group)
    decided = decide(claims)
    passed_in_part = decided.decision is Decision.PASS and any(
        (record.workload, record.variant) in lost for record in group
    )
    if passed_in_part or not group:
        decided = Decided(Decision.INCONCLUSIVE, _LOST)
    reported = _having(claims, Outcome.KNOWN_DEFECT, Outcome.FIXED_UPSTREAM)
    return Feature(
        suite=suite,
        variant=variant,
        **decided._asdict(),
        upstream=tuple(filter(None, dict.fromkeys(claim.upstream for claim in reported))),
        claims=claims,
    )


def _judged_claim(record: Record, mine: Sequence[Record]) -> JudgedClaim:
    """The record's claim with its negative controls: those of the same workload and run."""
    key = (record.run, record.suite, record.workload, record.claim + MUST_FAIL)
    controls = [
        NegativeControl(workload=each.workload, variant=each.variant, verdict=each.verdict)
        for each in mine
        if (each.run, each.suite, each.workload, each.claim) == key
    ]
    detector = Detector.UNPROVEN
    if any(control.verdict.fails for control in controls):
        detector = Detector.BLIND
    elif controls and all(control.verdict is Outcome.PASSED for control in controls):
        detector = Detector.SOUND
    return JudgedClaim(
        workload=record.workload,
        claim=record.claim,
        verdict=record.verdict,
        measured=record.measured,
        limit=record.limit,
        unit=record.unit,
        reason=record.reason,
        upstream=record.upstream,
        detector=detector,
        negative_controls=tuple(controls),
    )


class Decided(NamedTuple):
    """A decision and its reason; ``known`` marks a failure reported upstream."""

    decision: Decision
    reason: str
    known: bool = False


def decide(claims: Sequence[JudgedClaim]) -> Decided:
    """Decide a feature.

    The first rule that applies decides:

    1. any ``error``: inconclusive, because a fault of Assay says nothing about the compiler;
    2. any ``failed`` or ``fixed-upstream``: fail;
    3. any ``known-defect``: fail, marked known;
    4. nothing judged: unsupported if no claim could be, else inconclusive;
    5. a judged claim without a sound detector: inconclusive;
    6. pass.

    Rule 5 has no exception: *every* judged claim needs its negative controls, in the same run,
    suite, workload and target, and each of them must have failed. A claim that was never seen to
    fail may be unable to fail, so its verdict proves nothing. A negative control that passed its
    claim, or on which Assay failed, outweighs one that failed it.
    """
    if errors := _having(claims, Outcome.ERROR):
        return Decided(Decision.INCONCLUSIVE, f"Assay failed: {_named(errors)}")
    if failed := _having(claims, Outcome.FAILED, Outcome.FIXED_UPSTREAM):
        return Decided(Decision.FAIL, _named(failed))
    if known := _having(claims, Outcome.KNOWN_DEFECT):
        return Decided(Decision.FAIL, _named(known), known=True)
    judged = [claim for claim in claims if claim.verdict.judged]
    if not judged:
        inconclusive = _having(claims, Outcome.INCONCLUSIVE)
        decision = Decision.INCONCLUSIVE if inconclusive else Decision.UNSUPPORTED
        reasons = dict.fromkeys(claim.reason for claim in inconclusive or claims)
        return Decided(decision, "; ".join(reasons))
    for detector, why in {
        Detector.BLIND: "the negative control of {} did not fail in this run",
        Detector.UNPROVEN: "no negative control of {} failed in this run",
    }.items():
        if names := dict.fromkeys(claim.claim for claim in judged if claim.detector is detector):
            return Decided(Decision.INCONCLUSIVE, why.format(", ".join(names)))
    passed = f"{plural(len(judged), 'claim')} passed, and every negative control failed as it must"
    more = len(claims) - len(judged)
    return Decided(Decision.PASS, passed + (f"; {more} more could not be judged" if more else ""))


def _having(claims: Iterable[JudgedClaim], *verdicts: Outcome) -> list[JudgedClaim]:
    return [claim for claim in claims if claim.verdict in verdicts]


def _named(claims: Sequence[JudgedClaim]) -> str:
    first, *others = claims
    more = f" (and {len(others)} more)" if others else ""
    return f"{first.claim} in {first.workload}: {first.reason}{more}"


def to_json(qualification: Qualification) -> bytes:
    """``qualification.json``: indented, with a final newline."""
    return msgspec.json.format(msgspec.json.encode(qualification), indent=2) + b"\n"


def vendor_page(qualification: Qualification) -> str:
    """The summary, then every claim of every feature with its numbers."""
    blocks = [vendor_summary(qualification).rstrip("\n"), "## Reasons"]
    head = ("workload", "claim", "verdict", "measured", "limit", "negative control", "reason")
    for feature in qualification.features:
        name, decision, reason = _feature_row(feature)
        blocks += [f"### {name}: {decision}", reason]
        blocks += [f"Upstream: {code(link)}" for link in feature.upstream]
        blocks.append(table(head, map(_claim_row, feature.claims)))
    return "\n\n".join(blocks) + "\n"


def vendor_summary(qualification: Qualification) -> str:
    """Headline, environment and one line for each feature."""
    decisions = [feature.decision for feature in qualification.features]
    counts = ", ".join(f"{decisions.count(each)} {each.value}" for each in Decision)
    code_of_run = f"Exit code {qualification.exit_code.value}"
    environment = qualification.environment
    facts = {
        "target": environment.target,
        "date": environment.date,
        "run": ", ".join(qualification.runs),
        "platform": environment.platform,
        "python": environment.python,
        **environment.toolchain,
    }
    rule = (
        "A feature passes only if every claim it was judged by passes and that claim's negative "
        "control failed in the same run."
    )
    blocks = (
        f"# Qualification of {escape(qualification.target)}",
        f"**{plural(len(decisions), 'feature')}: {counts}. {code_of_run}.**",
        "## Environment",
        table(("what", "value"), [(escape(name), escape(each)) for name, each in facts.items()]),
        "## Features",
        table(("feature", "decision", "reason"), map(_feature_row, qualification.features)),
        rule,
    )
    return "\n\n".join(blocks) + "\n"


def _feature_row(feature: Feature) -> tuple[str, str, str]:
    decision = f"**{feature.decision.value}**{' (known)' if feature.known else ''}"
    return escape(f"{feature.suite}/{feature.variant}"), decision, escape(feature.reason)


def _claim_row(claim: JudgedClaim) -> tuple[str, ...]:
    controls = ", ".join(
        f"{each.workload}/{each.variant}: {each.verdict.value}" for each in claim.negative_controls
    )
    return (
        escape(claim.workload),
        escape(claim.claim),
        claim.verdict.value,
        amount(claim.measured, claim.unit),
        amount(claim.limit, claim.unit),
        escape(claim.detector.value + (f" ({controls})" if controls else "")),
        escape(claim.reason),
    )
