"""Claims on numbers: an arm that moves or recomputes data computes the same results."""

from dataclasses import dataclass

from assay.claims.measurement import never_executed, stop_unless_executed
from assay.judge.values import largest_difference
from assay.model.claim import Case
from assay.model.evidence import Evidence, Tensor
from assay.model.units import Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Arm, matches_any


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesEqual:
    """Every observed result equals the reference arm's.

    Measures the worst array's max|a − b| / max|b|. On targets that match ``exact_on`` the limit
    is 0; elsewhere it is ``relative_tolerance``, by default 2⁻¹⁰, the rounding of TF32 (10-bit
    significand, NVIDIA A100 white paper), in which GPUs multiply f32 matrices.
    """

    exact_on: tuple[str, ...] = ("cpu", "cpu:*")
    relative_tolerance: float = 2.0**-10
    name: str = "values-equal"
    unit: Unit = Unit.RATIO
    uses_baseline: bool = False

    def needs(self, arm: Arm) -> tuple[str, ...]:
        """The arm without offload, whose results are the truth."""
        return (arm.reference,)

    def judge(self, case: Case) -> Finding:
        """Kept if no result differs by more than the limit."""
        ours = _values(case, case.evidence)
        theirs = _values(case, case.other(case.arm.reference))
        if ours is None or theirs is None:
            evidence = case.evidence if ours is None else case.other(case.arm.reference)
            return never_executed(evidence, "results")
        exact = matches_any(case.evidence.target, self.exact_on)
        limit = 0.0 if exact else self.relative_tolerance
        worst = largest_difference(ours, theirs)
        kept = worst.ratio <= limit
        many = f"all {len(theirs)} results" if kept else worst.path
        return Finding(
            outcome=Outcome.KEPT if kept else Outcome.BROKEN,
            measured=worst.ratio,
            limit=limit,
            reason=f"{many} against {case.arm.reference!r}: {worst.reason}",
        )


def _values(case: Case, evidence: Evidence) -> tuple[Tensor, ...] | None:
    stop_unless_executed(case, evidence)
    return evidence.values
