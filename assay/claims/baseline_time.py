"""The claim on an absolute time: for a machine of one's own, which is the same every night."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from assay.claims.measurement import describe_failure, stop_unless_available, stop_unless_executed
from assay.judge.baseline import STORE_ALL, STORE_NEW
from assay.model.claim import Case, MeasurementMissing, Stopped
from assay.model.timing import PROCESSES_ALONE, Times, Turns, format_seconds
from assay.model.units import Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant

FEWEST_SAMPLES: Final = 10
_FEWEST_OF_A_PROCESS: Final = 48
_SECONDS_OF_A_PROCESS: Final = 0.4
_MOST_OF_A_PROCESS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDone:
    """Whether a process took enough samples to have reached its minimum time."""

    def __call__(self, _reference: Sequence[float], judged: Sequence[float]) -> bool:
        """Whether they are enough."""
        return len(judged) >= _FEWEST_OF_A_PROCESS and sum(judged) >= _SECONDS_OF_A_PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineTime:
    """A run takes no longer than the stored time of this machine, by the fastest of all samples.

    They are taken in ``PROCESSES_ALONE`` fresh processes. The fastest sample is compared, since a
    busy machine only ever adds time. Failed or improved beyond ``tolerance``, a share: minimum
    times of one program differ by 1 to 4 % from process to process. A machine without a stored time
    has nothing to compare with, and at a load average of more than ``most_load`` for each core
    nothing is stored, nor called slower: ``inconclusive``.
    """

    tolerance: float = 0.1
    most_load: float = 3.0
    name: str = "baseline-time"
    unit: Unit = Unit.SECONDS
    uses_baseline: bool = True

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """No other variant."""
        return ()

    def turns(self, case: Case) -> Turns:
        """The variant alone, in fresh processes."""
        stop_unless_executed(case, case.evidence)
        return Turns(reference="", question="alone", enough=ProcessDone(), most=_MOST_OF_A_PROCESS)

    def judge(self, case: Case) -> Finding:
        """Passed, failed or improved by the fastest sample."""
        stop_unless_executed(case, case.evidence)
        times = _taken(case)
        measured = min(times.judged.samples)
        told = f"a run takes {format_seconds(measured)} at the fastest"
        busy = self._busy(times)
        if case.baseline is None:
            return Finding(
                outcome=Outcome.INCONCLUSIVE,
                measured=None if busy else measured,
                reason=f"{told}, but no time is stored for this machine, {times.machine}{busy}",
                advice=f"to compare times here from now on, {STORE_NEW}",
            )
        stored = case.baseline.value
        ratio = measured / stored
        line = f"{told}: {ratio:.4g} times the stored {format_seconds(stored)}"
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


def _taken(case: Case) -> Times:
    """The times of a case with enough samples, or ``Stopped``."""
    times = case.times
    if times is None:
        raise MeasurementMissing(
            f"got no times of {case.variant.name!r}, wanted them taken in processes of their own; "
            "judge the claim in a run that can take times"
        )
    stop_unless_available(times)
    if times.failure is not None:
        reason = f"nothing to time: {describe_failure(times.failure)}"
        raise Stopped(Finding(outcome=Outcome.FAILED, reason=reason, failure=times.failure))
    if len(times.judged.samples) < FEWEST_SAMPLES * PROCESSES_ALONE:
        raise Stopped(
            Finding(
                outcome=Outcome.INCONCLUSIVE,
                reason=f"{len(times.judged.samples)} samples of {PROCESSES_ALONE} processes, "
                f"wanted at least {FEWEST_SAMPLES} of each: {times.ended.value}",
                advice="raise --assay-timing-seconds, or time a program of another size",
            )
        )
    return times
