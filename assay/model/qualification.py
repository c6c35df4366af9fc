"""Qualification of a target: the rules, the decision on each feature, and the certificate."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from assay.model.units import Unit
from assay.model.verdict import ExitCode, Outcome

CERTIFICATE_SCHEMA = 2


class Decision(Enum):
    """The decision on a feature of a target."""

    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"


class Cause(Enum):
    """Why a verdict, or a feature, is decided as it is. The first that occurs decides a feature."""

    ASSAY_FAILED = "assay-failed"
    CLAIM_FAILED = "claim-failed"
    DEFECT_NOT_ACCEPTED = "defect-not-accepted"
    LIMIT_EXCEEDED = "limit-exceeded"
    NOT_REACHED = "coverage-not-reached"
    UNDETECTED = "negative-control-not-detected"
    INCONCLUSIVE = "inconclusive"
    NOT_JUDGED = "coverage-not-judged"
    UNSUPPORTED = "unsupported"
    HOLDS = "every-claim-holds"


class Cell(NamedTuple):
    """One verdict that a feature rests on."""

    workload: str
    variant: str
    claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Verdicts that a feature needs on some targets (shell patterns) from a level on.

    Every claim is put to every variant of every workload. ``claims`` maps a claim to the negative
    controls that must fail it. ``known_defects`` maps a variant whose known defect is accepted to
    its remedy, another variant of the requirement. ``at_most`` maps a claim to the largest number
    that may be measured, in the claim's unit; the claim's own limit applies as well.
    """

    level: int
    targets: tuple[str, ...]
    workloads: tuple[str, ...]
    variants: tuple[str, ...]
    claims: Mapping[str, tuple[str, ...]]
    known_defects: Mapping[str, str] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRule:
    """A capability in a vendor's words, and the verdicts that decide it.

    ``elsewhere`` says why no requirement applies to the other targets. A feature that is not
    ``required`` may be unsupported or inconclusive.
    """

    id: str
    name: str
    promise: str
    suite: str
    requirements: tuple[Requirement, ...]
    elsewhere: str
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCell:
    """A verdict that a feature needs, as it was reached, and its negative controls' verdicts.

    ``verdict`` and a control's outcome are None if there is no record. ``at_most`` is the limit of
    the rules, None if the claim's own is the only one.
    """

    workload: str
    variant: str
    claim: str
    cause: Cause
    verdict: Outcome | None
    measured: int | float | None
    limit: int | float | None
    at_most: float | None
    unit: Unit
    reason: str
    negative_controls: dict[str, Outcome | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedDefect:
    """A known defect that the rules accept because its remedy passed."""

    variant: str
    remedy: str
    reason: str
    upstream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The decision on a feature, and all that it rests on."""

    id: str
    name: str
    promise: str
    required: bool
    decision: Decision
    cause: Cause
    reason: str
    known_defects: tuple[AcceptedDefect, ...] = ()
    cells: tuple[JudgedCell, ...] = ()

    @property
    def satisfies(self) -> bool:
        """Whether the target qualifies as far as this feature is concerned."""
        tolerated = (Decision.UNSUPPORTED, Decision.INCONCLUSIVE)
        return self.decision is Decision.PASSED or (
            not self.required and self.decision in tolerated
        )


class Strictness(Enum):
    """What a rule can demand more or less of."""

    FEATURE = "feature"
    WORDING = "wording"
    REQUIRED = "required"
    VERDICT = "verdict"
    WITHOUT_DEFECT = "without-defect"
    NEGATIVE_CONTROL = "negative-control"
    LIMIT = "limit"


class Demand(NamedTuple):
    """One thing that rules demand: what, of which feature, and where."""

    kind: Strictness
    feature: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesUsed:
    """The rules of a qualification, compared with the packaged ones on its target and level.

    ``dropped`` are demands of the packaged rules that the rules do not make, or make less strict.
    ``added`` are the reverse.
    """

    sha256: str = ""
    packaged_sha256: str = ""
    dropped: tuple[Demand, ...] = ()
    added: tuple[Demand, ...] = ()


def own_version() -> str:
    """The version of Assay; empty where it runs from a folder and is not installed."""
    try:
        return version("assay-xla")
    except PackageNotFoundError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """What decided: the version of Assay, its commit, and digests of sources; empty if unknown."""

    version: str = ""
    commit: str = ""
    sha256: str = ""
    suites_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where the records come from; ``date`` is ISO 8601.

    ``machine`` names processor, device and driver, empty if nothing was timed.
    """

    toolchain: dict[str, str]
    platform: str
    python: str
    date: str
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualification:
    """What a certificate certifies.

    ``later`` maps features that only a higher level decides to that level. ``cached`` counts the
    verdicts on programs that were compiled before. ``evidence`` maps files to their SHA-256.
    ``public_key`` is that of the signer (hexadecimal), empty if it is not signed.
    """

    target: str
    executes: bool
    level: int
    run: str
    command: tuple[str, ...]
    exit_code: ExitCode
    environment: Environment
    features: tuple[Feature, ...]
    later: dict[str, int]
    verdicts: int
    cached: int
    producer: Producer = Producer()
    rules: RulesUsed = RulesUsed()
    evidence: dict[str, str] = field(default_factory=dict)
    public_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A qualification with the SHA-256 of each of its pages, and a signature (hexadecimal).

    ``sha256`` is that of all other fields but the signature, which signs the same bytes.
    """

    schema: int
    qualification: Qualification
    pages: dict[str, str]
    sha256: str
    signature: str = ""


class Check(Enum):
    """What ``assay qualify --verify`` checks."""

    CERTIFICATE = "certificate"
    SIGNATURE = "signature"
    PAGES = "pages"
    RECORDS = "records"
    RULES = "rules"
    EVIDENCE = "evidence"
    DECISIONS = "decisions"
    STRICTNESS = "strictness"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A check that failed: what is wrong with which ``subjects`` (files, features, demands)."""

    check: Check
    subjects: tuple[str, ...]
    is_missing: bool = False
