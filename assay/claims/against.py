"""Claims that compare times with stored ones, or with another toolchain (``--assay-against``)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from assay.claims.measurement import (
    ClaimBase,
    describe_failure,
    passed_if,
    stop,
    stop_unless_executed,
)
from assay.claims.times import times_of, too_noisy
from assay.judge.baseline import STORE_ALL, STORE_NEW
from assay.model.claim import Case, MeasurementMissing
from assay.model.rerun import Rerun, Side
from assay.model.timing import PROCESSES_ALONE, Change, Sensitivity, Times, Turns, format_seconds
from assay.model.units import Unit
from assay.model.verdict import Finding, Outcome

FEWEST_SAMPLES: Final = 10
_FEWEST_OF_A_PROCESS: Final = 48
_SECONDS_OF_A_PROCESS: Final = 0.4
_MOST_OF_A_PROCESS: Final = 300


def process_done(_reference: Sequence[float], judged: Sequence[float]) -> bool:
    """Whether a process took enough samples to have reached its minimum time."""
    return len(judged) >= _FEWEST_OF_A_PROCESS and sum(judged) >= _SECONDS_OF_A_PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineTime(ClaimBase):
    """A run takes no longer than the time stored for this machine.

    Samples come from ``PROCESSES_ALONE`` fresh processes. The fastest is compared, because a busy
    machine only adds time. A change beyond ``tolerance`` (a share) fails or is an improvement:
    minimum times of one program differ by 1 to 4 % between processes. The verdict is
    ``inconclusive`` on a machine without a stored time, and at a load average above ``most_load``
    per core, where nothing is stored either.
    """

    tolerance: float = 0.1
    most_load: float = 3.0
    name: str = "baseline-time"
    unit: ClassVar[Unit] = Unit.SECONDS
    uses_baseline: ClassVar[bool] = True

    def turns(self, case: Case) -> Turns:
        stop_unless_executed(case, case.evidence)
        return Turns(reference="", question="alone", enough=process_done, most=_MOST_OF_A_PROCESS)

    def judge(self, case: Case) -> Finding:
        stop_unless_executed(case, case.evidence)
        times = _times_alone(case)
        measured = min(times.judged.samples)
        fastest = f"the fastest run takes {format_seconds(measured)}"
        busy = self._busy(times)
        if case.baseline is None:
            return Finding(
                outcome=Outcome.INCONCLUSIVE,
                measured=None if busy else measured,
                reason=f"{fastest}, but no time is stored for this machine, {times.machine}{busy}",
                advice=STORE_NEW,
            )
        stored = case.baseline.value
        ratio = measured / stored
        line = f"{fastest}: {ratio:.4g} times the stored {format_seconds(stored)}"
        outcome = Outcome.PASSED
        if ratio > 1 + self.tolerance:
            outcome = Outcome.INCONCLUSIVE if busy else Outcome.FAILED
        elif ratio < 1 - self.tolerance:
            outcome = Outcome.IMPROVED
        return Finding(
            outcome=outcome,
            measured=measured,
            limit=stored,
            reason=f"{line}, tolerance {self.tolerance:.0%}{busy}",
            advice="" if outcome is Outcome.PASSED else STORE_ALL,
        )

    def _busy(self, times: Times) -> str:
        if times.machine is None or times.machine.load is None:
            return ""
        load, cores = times.machine.load, times.machine.cores
        most = self.most_load * cores
        if load <= most:
            return ""
        return f"; the load average is {load:.1f} on {cores} cores, wanted at most {most:g}"


def _times_alone(case: Case) -> Times:
    """The times of a case with enough samples, or ``Stopped``."""
    times = times_of(case, "from processes of its own")
    if len(times.judged.samples) < FEWEST_SAMPLES * PROCESSES_ALONE:
        stop(
            Outcome.INCONCLUSIVE,
            f"{len(times.judged.samples)} samples of {PROCESSES_ALONE} processes, "
            f"wanted at least {FEWEST_SAMPLES} of each: {times.ended.phrase}",
            "raise --assay-timing-seconds, or time a program of another size",
        )
    return times


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAgainst(ClaimBase):
    """A run takes no longer than it does on the toolchain that ``--assay-against`` names.

    Processes of the two toolchains run alternately. The check exists only with
    ``--assay-against``. ``least_change`` and ``seen_change`` are those of the command. A faster
    program passes: there is no baseline to improve.
    """

    least_change: float = 0.02
    seen_change: float = 0.04
    name: str = "time-against"
    unit: ClassVar[Unit] = Unit.RATIO

    def sought(self, case: Case) -> Sensitivity:
        stop_unless_executed(case, case.evidence)
        return Sensitivity(least=self.least_change, seen=self.seen_change)

    def judge(self, case: Case) -> Finding:
        self.sought(case)
        rerun = case.rerun
        if rerun is None:
            raise MeasurementMissing(
                f"got no rerun of {case.variant.name!r}, wanted a rerun on another toolchain; "
                "use the claim in a run that can rerun programs"
            )
        _stop_if_halted(rerun)
        ratio = rerun.ratio
        if ratio is None:
            stop(
                Outcome.INCONCLUSIVE,
                f"{rerun.ended.phrase} was reached before two pairs of processes, "
                "and the times so far do not differ enough to decide",
                "raise --assay-against-seconds, or time a smaller program",
            )
        if ratio.change is Change.TOO_NOISY:
            return too_noisy(ratio, 1, rerun.told, rerun.ended, "--assay-against-seconds")
        return Finding(
            outcome=passed_if(ratio.change is not Change.SLOWER),
            measured=ratio.ratio,
            limit=1,
            reason=f"{rerun.told}: {ratio.change.phrase}",
        )


def _stop_if_halted(rerun: Rerun) -> None:
    """Raise ``Stopped`` if a side ended early; only the new side's failure fails the claim."""
    old = rerun.side is Side.OLD
    if rerun.unavailable is not None:
        where = f"{rerun.side.phrase}: " if rerun.side else ""
        stop(
            Outcome.INCONCLUSIVE if old else Outcome.UNSUPPORTED,
            f"{where}{rerun.unavailable.reason}",
            rerun.unavailable.remedy,
        )
    if rerun.failure is not None:
        side = (rerun.side or Side.NEW).phrase
        reason = f"nothing to compare: on {side}, {describe_failure(rerun.failure)}"
        if old:
            stop(Outcome.INCONCLUSIVE, reason, "name another version with --assay-against")
        stop(Outcome.FAILED, reason, failure=rerun.failure)
