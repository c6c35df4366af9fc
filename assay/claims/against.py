"""Claims that compare timings with another toolchain: ``--assay-against VERSION``."""

from dataclasses import dataclass

from assay.claims.measurement import describe_failure, stop_unless_executed
from assay.model.change import Change, Ratio
from assay.model.claim import Case, MeasurementMissing, Stopped
from assay.model.rerun import Enough, Rerun, Side, Sought
from assay.model.units import Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant

_NO_SLOWER = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAgainst:
    """A run takes no longer than it does on the toolchain that ``--assay-against`` names.

    That toolchain is run again beside the present one, process beside process. A check of this
    claim is collected with ``--assay-against`` alone. ``least_change`` and ``seen_change`` are the
    judge's own, as the command's. A faster program passes the claim: there is no number that could
    be stored instead.
    """

    least_change: float = 0.02
    seen_change: float = 0.04
    name: str = "time-against"
    unit: Unit = Unit.RATIO
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """No other variant."""
        return ()

    def sought(self, case: Case) -> Sought:
        """The change that counts, for a program that ran."""
        stop_unless_executed(case, case.evidence)
        return Sought(least=self.least_change, seen=self.seen_change)

    def judge(self, case: Case) -> Finding:
        """Passes or fails by the interval of the new time over the old."""
        self.sought(case)
        rerun = case.rerun
        if rerun is None:
            raise MeasurementMissing(
                f"got no rerun of {case.variant.name!r}, wanted it on another toolchain; "
                "judge the claim in a run that can rerun it"
            )
        _stop_if_halted(rerun)
        if rerun.ratio is None:
            raise Stopped(
                Finding(
                    outcome=Outcome.INCONCLUSIVE,
                    reason=f"{rerun.ended.value} left no time for two pairs of processes, "
                    "and what was taken is not far apart",
                    advice="raise --assay-against-seconds, or time a smaller program",
                )
            )
        return _judged(rerun, rerun.ratio)


def _judged(rerun: Rerun, ratio: Ratio) -> Finding:
    known = Finding(
        outcome=Outcome.FAILED if ratio.change is Change.SLOWER else Outcome.PASSED,
        measured=ratio.ratio,
        limit=_NO_SLOWER,
        reason=f"{rerun.told}: {ratio.change.value}",
    )
    if ratio.change is not Change.TOO_NOISY:
        return known
    capped = rerun.ended is Enough.SECONDS
    instead = "raise --assay-against-seconds" if capped else "ask for a larger change"
    why = f" ({ratio.reason})" if ratio.reason else ""
    return Finding(
        outcome=Outcome.INCONCLUSIVE,
        measured=ratio.ratio,
        limit=_NO_SLOWER,
        reason=f"{ratio.change.value}{why}: {rerun.told}; {rerun.ended.value} was reached",
        advice=f"run it on a quieter machine, or {instead}",
    )


def _stop_if_halted(rerun: Rerun) -> None:
    """Raise ``Stopped`` where a side went no further; the old one's end is no evidence."""
    old = rerun.side is Side.OLD
    if rerun.unavailable is not None:
        where = f"{rerun.side.value}: " if rerun.side else ""
        raise Stopped(
            Finding(
                outcome=Outcome.INCONCLUSIVE if old else Outcome.UNSUPPORTED,
                reason=f"{where}{rerun.unavailable.reason}",
                advice=rerun.unavailable.remedy,
            )
        )
    if rerun.failure is not None:
        failed = describe_failure(rerun.failure)
        raise Stopped(
            Finding(
                outcome=Outcome.INCONCLUSIVE if old else Outcome.FAILED,
                reason=f"nothing to compare: on {(rerun.side or Side.NEW).value}, {failed}",
                advice="name another version with --assay-against" if old else "",
                failure=None if old else rerun.failure,
            )
        )
