"""A claim on how time grows from one length to another, in one run: it holds on any machine."""

from dataclasses import dataclass

from assay.claims.measurement import never_executed, stop_unless_executed
from assay.judge.changes import Ratio
from assay.judge.ratios import ratio_of_turns
from assay.model.claim import Case, Stopped
from assay.model.evidence import GrowthTimes
from assay.model.timing import format_seconds
from assay.model.units import Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeGrowth:
    """An iteration takes no longer on a long buffer than on a short one.

    Measures the ratio of times over the ratio of lengths, with equally many iterations: 1 where
    each iteration touches the whole buffer, 1/ratio where it touches a part of fixed size. The
    limit lies half way between on a logarithmic scale, ratio ** -0.5, and the whole interval must
    lie on one side of it; else it is ``inconclusive``. It sees copies that the module does not
    show.
    """

    name: str = "time-growth"
    unit: Unit = Unit.RATIO
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """No other variant."""
        return ()

    def growth(self, case: Case) -> GrowthTimes:
        """Times of the loop on each length."""
        return growth_of(case)

    def judge(self, case: Case) -> Finding:
        """Passes if time grows less than with the square root of the length."""
        times = self.growth(case)
        short, long = times.lengths[0], times.lengths[-1]
        longer = long / short
        limit = longer**-0.5
        found = ratio_of_turns(times.seconds[0], times.seconds[-1], against=longer * limit, looks=1)
        outcome = _outcome(found, at_most=longer * limit)
        line = (
            f"{format_seconds(times.fastest[-1])} on length {long} against "
            f"{format_seconds(times.fastest[0])} on {short}: the ratio of times over that of "
            f"lengths {found.ratio / longer:.3g} ({found.low / longer:.3g} to "
            f"{found.high / longer:.3g} by {found.units} turns), wanted at most {limit:.3g} "
            f"(the square root of {short}/{long})"
        )
        unknown = outcome is Outcome.INCONCLUSIVE
        return Finding(
            outcome=outcome,
            measured=found.ratio / longer,
            limit=limit,
            reason=f"too noisy to say: {line}" if unknown else line,
            advice="run it on a quieter machine, or on lengths further apart" if unknown else "",
        )


def _outcome(found: Ratio, *, at_most: float) -> Outcome:
    if found.high <= at_most:
        return Outcome.PASSED
    return Outcome.FAILED if found.low > at_most else Outcome.INCONCLUSIVE


def growth_of(case: Case) -> GrowthTimes:
    """The times taken, or ``Stopped``."""
    stop_unless_executed(case, case.evidence)
    if case.evidence.growth is None:
        raise Stopped(never_executed(case.evidence, "times of a growing loop"))
    return case.evidence.growth
