"""Claims on the bytes that cross between host and device memory each step."""

from dataclasses import dataclass

from assay.claims.measurement import module_of, stop_unless_placement_shows
from assay.claims.memory import finding
from assay.judge.comparison import Relation
from assay.model.claim import Case, Formula
from assay.model.module import Direction, nbytes_per_run
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant


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

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formula reads."""
        return self.equal.needs(variant)

    def judge(self, case: Case) -> Finding:
        """Passes if the transfers of all loops, trip counts included, add up to the formula."""
        stop_unless_placement_shows(case.evidence)
        module = module_of(case, case.evidence)
        uncertain = [
            transfer
            for transfer in module.transfers
            if transfer.direction is self.direction
            and (transfer.executions is None or transfer.at_most)
        ]
        if uncertain:
            return Finding(
                outcome=Outcome.INCONCLUSIVE,
                reason=f"{len(uncertain)} transfers run an unknown number of times, "
                f"the first in {uncertain[0].computation}",
                advice="give the loop a static length; take the transfer out of the conditional",
            )
        total = nbytes_per_run(module.transfers, self.direction)
        assert total is not None
        measured = Quantity(total, self.unit)
        what = f"{self.direction.value} traffic per step"
        return finding(what, measured, Relation.EQUAL, self.equal.of(case), self.equal.text)
