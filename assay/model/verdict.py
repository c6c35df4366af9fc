"""Verdicts, their records, and the exit code that follows from them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from assay.model.evidence import Failure
from assay.model.units import Unit

RECORD_SCHEMA = 2


class Outcome(Enum):
    """The verdicts; *fixed*: other tools read these words."""

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
        """Whether the claim was tested."""
        return self not in (Outcome.UNSUPPORTED, Outcome.INCONCLUSIVE, Outcome.ERROR)

    @property
    def holds(self) -> bool:
        """Whether the claim was tested and holds."""
        return self in (Outcome.PASSED, Outcome.IMPROVED, Outcome.FIXED_UPSTREAM)


class ExitCode(Enum):
    """The exit code of every command; *fixed*."""

    PASSED = 0
    FAILED = 1
    MISUSE = 2
    CRASHED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The verdict on one case, with numbers in the claim's unit, the reason and the next step.

    ``failure`` is the program's failure, if it decided the verdict.
    """

    outcome: Outcome
    measured: int | float | None = None
    limit: int | float | None = None
    reason: str = ""
    advice: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineNumber:
    """A stored number; ``machine`` is the fingerprint of the one it is valid on, "" for all."""

    value: int | float
    toolchain: dict[str, str]
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of ``records.jsonl``; field names are *fixed*.

    ``cached``: an earlier run compiled the program, or one that it is compared with.
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
        """Whether this is a negative control's record: it passes if the claim failed."""
        return self.claim.endswith(MUST_FAIL)


MUST_FAIL = ".negative-control"
"""Suffix of a claim's name in the record of its negative control."""


def judged_claims(records: Iterable[Record]) -> bool:
    """Whether any record judges a claim; a negative control judges only a detector."""
    return any(record.verdict.judged and not record.must_fail for record in records)


def exit_code(records: Iterable[Record]) -> ExitCode:
    """An error outranks a failed claim; a run that judged no claim fails. *Fixed*."""
    seen = tuple(records)
    if any(record.verdict is Outcome.ERROR for record in seen):
        return ExitCode.CRASHED
    if any(record.verdict.fails for record in seen):
        return ExitCode.FAILED
    return ExitCode.PASSED if judged_claims(seen) else ExitCode.FAILED
