"""Claims on the bytes that cross between host and device memory each step."""

from dataclasses import dataclass

from assay.claims.measurement import module_of, stop_unless_placement_shows
from assay.claims.memory import finding
from assay.judge.comparison import Relation
from assay.model.claim import Case, Formula
from assay.model.evidence import Direction, ModuleSummary
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferredBytes:
    """Per step, exactly the formula's bytes cross in this direction: no more, and not twice."""

    direction: Direction
    equal: Formula
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    @property
    def name(self) -> str:
        """``to-host-bytes`` or ``to-device-bytes``."""
        return f"{self.direction.value}-bytes"

    def needs(self, arm: Arm) -> tuple[str, ...]:
        """No other arm."""
        return ()

    def judge(self, case: Case) -> Finding:
        """Kept if the transfers of all loops, trip counts included, add up to the formula."""
        stop_unless_placement_shows(case.evidence)
        module = module_of(case, case.evidence)
        uncounted = [
            transfer
            for transfer in module.transfers
            if transfer.direction is self.direction and transfer.executions is None
        ]
        if uncounted:
            return Finding(
                outcome=Outcome.NOT_MEASURED,
                reason=f"{len(uncounted)} transfers run in loops of unknown trip count, "
                f"the first in {uncounted[0].computation}",
                advice="give the loop a static length",
            )
        measured = Quantity(transferred_bytes(module, self.direction), self.unit)
        what = f"{self.direction.value} traffic per step"
        return finding(what, measured, Relation.EQUAL, self.equal.of(case), self.equal.text)


def transferred_bytes(module: ModuleSummary, direction: Direction) -> int:
    """Bytes that cross in that direction per step; transfers of unknown count are left out."""
    return sum(
        transfer.nbytes_per_execution * transfer.executions
        for transfer in module.transfers
        if transfer.direction is direction and transfer.executions is not None
    )
