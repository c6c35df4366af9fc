"""The measurement that every claim needs: a program compiled for a target, and run where it can."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from assay.model.claim import Case, Claim, GrowthClaim, RerunClaim, TimingClaim, Trial
from assay.model.evidence import Evidence
from assay.model.workload import Variant, Workload
from assay.store import evidence

Observe = Callable[[Workload, Variant, str], Evidence]
_T = TypeVar("_T")


class Measurement(Protocol):
    """One kind of measurement, taken once per run whichever process and claim asks first."""

    def serves(self, claim: Claim) -> bool:
        """Whether this is the kind that a claim needs."""

    def evidence(self, workload: Workload, variant: Variant, target: str) -> Evidence:
        """The evidence of the judged variant.

        Raises:
            MeasurementCacheError: the stored file is damaged.
        """

    def added_to(self, case: Case, trial: Trial) -> Case:
        """The case with what this kind measures besides the evidence.

        Raises:
            MeasurementCacheError: the stored file is damaged.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The evidence of programs: all that most claims need."""

    directory: Path
    observe: Observe

    def serves(self, claim: Claim) -> bool:
        """As in ``Measurement``."""
        return not isinstance(claim, TimingClaim | GrowthClaim | RerunClaim)

    def evidence(self, workload: Workload, variant: Variant, target: str) -> Evidence:
        """As in ``Measurement``."""
        key = (workload.suite, workload.name, variant.name, target)
        return evidence.once(self.directory, key, lambda: self.observe(workload, variant, target))

    def added_to(self, case: Case, trial: Trial) -> Case:
        """The same case."""
        return case


@dataclass(frozen=True, slots=True, kw_only=True)
class BesidesEvidence:
    """A kind that measures more of a program whose evidence the claim reads too."""

    programs: Programs

    def evidence(self, workload: Workload, variant: Variant, target: str) -> Evidence:
        """As in ``Measurement``."""
        return self.programs.evidence(workload, variant, target)


def asked(question: Callable[[Case], _T], case: Case) -> _T | None:
    """What a claim asks to be measured, or None if its question raises an exception.

    ``Claim.judge`` asks the same question and raises the same exception, which becomes the verdict.
    """
    try:
        return question(case)
    except Exception:  # noqa: BLE001
        return None
