"""Qualification: what the records of one run say of one target, feature by feature."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from assay.model.invocation import USUAL, Ending, lost_on
from assay.model.verdict import ExitCode, Outcome, Record
from assay.report.feature_status import Decision, FeatureStatus, feature_status
from assay.report.judged_claim import JudgedClaim, judged_claim
from assay.report.labels import toolchain_versions

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
