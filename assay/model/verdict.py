"""Verdicts: what a claim came to, and the one line that is kept of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from assay.model.evidence import Failure
from assay.model.units import Unit

RECORD_SCHEMA = 2


class Outcome(Enum):
    """The closed set of verdicts; *fixed*, other tools read these words."""

    PASSED = "passed"
    FAILED = "failed"
    KNOWN_DEFECT = "known-defect"
    FIXED_UPSTREAM = "fixed-upstream"
    IMPROVED = "improved"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"

    @property
    def fails(self) -> bool:
        """Whether this verdict fails the run."""
        return self in (Outcome.FAILED, Outcome.FIXED_UPSTREAM, Outcome.ERROR)

    @property
    def judged(self) -> bool:
        """Whether the claim was really put to the test."""
        return self not in (Outcome.UNSUPPORTED, Outcome.INCONCLUSIVE, Outcome.ERROR)

    @property
    def holds(self) -> bool:
        """Whether the claim was measured and found true."""
        return self in (Outcome.PASSED, Outcome.IMPROVED, Outcome.FIXED_UPSTREAM)


class ExitCode(Enum):
    """How every Assay command ends; *fixed*."""

    PASSED = 0
    FAILED = 1
    MISUSE = 2
    CRASHED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one claim says of one case: numbers in the claim's unit, the cause, the next step.

    ``failure`` is the program's, where it decided the finding.
    """

    outcome: Outcome
    measured: int | float | None = None
    limit: int | float | None = None
    reason: str = ""
    advice: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineNumber:
    """A baseline as it stood when a verdict was reached.

    ``machine`` is the fingerprint of the one that it holds for, empty where it holds anywhere.
    """

    value: int | float
    toolchain: dict[str, str]
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of ``records.jsonl``; field names are *fixed*.

    ``cached`` says that an earlier run compiled the program, or one that it is compared with.
    """

    schema: int
    run: str
    suite: str
    workload: str
    variant: str
    claim: str
    target: str
    toolchain: dict[str, str]
    verdict: Outcome
    measured: int | float | None
    limit: int | float | None
    unit: Unit
    baseline: BaselineNumber | None
    reason: str
    advice: str
    upstream: str
    seconds: float
    cached: bool = False

    @property
    def must_fail(self) -> bool:
        """Whether this line is a negative control's: it passes if the claim failed, as it must."""
        return self.claim.endswith(MUST_FAIL)


MUST_FAIL = ".negative-control"
"""Suffix of a claim's name on the line of its negative control."""


def judged_claims(records: Iterable[Record]) -> bool:
    """Whether any record judges a claim; a negative control judges a detector only."""
    return any(record.verdict.judged and not record.must_fail for record in records)


def exit_code(records: Iterable[Record]) -> ExitCode:
    """The fixed rule: an error outranks a failed claim; a run that judged no claim is no pass."""
    seen = tuple(records)
    if any(record.verdict is Outcome.ERROR for record in seen):
        return ExitCode.CRASHED
    if any(record.verdict.fails for record in seen):
        return ExitCode.FAILED
    return ExitCode.PASSED if judged_claims(seen) else ExitCode.FAILED
