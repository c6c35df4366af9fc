"""How the time of a loop grows with its length."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from assay.model.claim import Case, Claim, GrowthClaim, Trial
from assay.model.evidence import Evidence
from assay.model.workload import Variant, Workload
from assay.store import evidence

TimeGrowth = Callable[[Workload, Variant, str, float], Evidence]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Times of a loop at several lengths. The evidence holds these times and nothing else.

    ``most_seconds`` limits the sampling time of one loop.
    """

    directory: Path
    time_growth: TimeGrowth
    most_seconds: float

    def serves(self, claim: Claim) -> bool:
        """As in ``Measurement``."""
        return isinstance(claim, GrowthClaim)

    def evidence(self, workload: Workload, variant: Variant, target: str) -> Evidence:
        """As in ``Measurement``."""
        key = (workload.suite, workload.name, variant.name, target)
        return evidence.once(
            self.directory,
            key,
            lambda: self.time_growth(workload, variant, target, self.most_seconds),
            evidence.GROWTH,
        )

    def added_to(self, case: Case, trial: Trial) -> Case:
        """The same case."""
        return case
