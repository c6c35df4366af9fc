"""A claim on how time grows from one length to another, in one run: it holds on any machine."""

from dataclasses import dataclass

from assay.claims.measurement import never_executed, stop_unless_executed
from assay.judge.comparison import Relation, explain, holds
from assay.model.claim import Case, Stopped
from assay.model.evidence import GrowthTimes
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeGrowth:
    """An iteration takes no longer on a long buffer than on a short one.

    Measures the ratio of times over the ratio of lengths, with equally many iterations: 1 where
    each iteration touches the whole buffer, 1/ratio where it touches a part of fixed size. The
    limit lies half way between on a logarithmic scale, ratio ** -0.5, so that noise of twice the
    time does not decide. It sees copies that the module does not show.
    """

    name: str = "time-growth"
    unit: Unit = Unit.RATIO
    uses_baseline: bool = False

    def needs(self, arm: Arm) -> tuple[str, ...]:
        """No other arm."""
        return ()

    def growth(self, case: Case) -> GrowthTimes:
        """Times of the loop on each length."""
        return growth_of(case)

    def judge(self, case: Case) -> Finding:
        """Kept if time grows less than with the square root of the length."""
        times = self.growth(case)
        short, long = times.lengths[0], times.lengths[-1]
        measured = Quantity(times.time_over_length, self.unit)
        limit = Quantity((long / short) ** -0.5, self.unit)
        source = f"the square root of {short}/{long}"
        what = (
            f"{times.fastest[-1]:.3g} s on length {long} against {times.fastest[0]:.3g} s on "
            f"{short}: the ratio of times over that of lengths"
        )
        return Finding(
            outcome=Outcome.KEPT if holds(measured, Relation.AT_MOST, limit) else Outcome.BROKEN,
            measured=measured.value,
            limit=limit.value,
            reason=explain(what, measured, Relation.AT_MOST, limit, source),
        )


def growth_of(case: Case) -> GrowthTimes:
    """The times taken, or ``Stopped``."""
    stop_unless_executed(case, case.evidence)
    if case.evidence.growth is None:
        raise Stopped(never_executed(case.evidence, "times of a growing loop"))
    return case.evidence.growth
