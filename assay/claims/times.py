"""Claims on times of two programs, of one program on this machine, and of two toolchains.

Two programs alternate in one run, so that other load slows both alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

from assay.claims.measurement import given, stop, stop_unless_available, stop_unless_executed
from assay.judge.baseline import STORE_ALL, STORE_NEW, against_baseline
from assay.model.claim import Case, Formula, RerunClaim, TimingClaim
from assay.model.inspection import describe
from assay.model.rerun import Rerun, Side
from assay.model.timing import (
    PROCESSES_ALONE,
    Change,
    Ending,
    Ratio,
    Sensitivity,
    Times,
    Turns,
    Work,
    format_seconds,
)
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant
from assay.stats.ratios import LOOKS, certainly_slower_after, far_apart, ratio_of_turns

_FEWEST_SAMPLES: Final = 10 * PROCESSES_ALONE
_FEWEST_OF_A_PROCESS: Final = 48
_SECONDS_OF_A_PROCESS: Final = 0.4
_MOST_OF_A_PROCESS: Final = 300
_PAIRS_TO_STORE: Final = LOOKS[5]
_DRIFT: Final = 1.25
"""If the machine's own speed changed by more than this factor, the verdict mentions it."""

_AS_LONG = Formula("as long", lambda _case: Quantity(1, Unit.RATIO))


@dataclass(frozen=True, slots=True, kw_only=True)
class AtMost:
    """The question whether one program takes at most ``limit`` times as long as another.

    ``separates_faster`` asks in addition whether it takes less than the limit or as much.
    """

    limit: float
    sensitivity: Sensitivity
    work: Work = Work.RUN
    separates_faster: bool = False

    def __str__(self) -> str:
        asked = f"at most {self.limit:g}, {self.sensitivity.least:g} to {self.sensitivity.seen:g}"
        return asked if self.work is Work.RUN else f"{self.work.phrase}: {asked}"

    def __call__(self, reference: Sequence[float], judged: Sequence[float]) -> bool:
        """Whether the samples so far decide it; repeated looks keep the error rate."""
        if len(reference) in LOOKS:
            return self.ratio(reference, judged).change is not Change.TOO_NOISY
        return far_apart(reference, judged, against=self.limit) is not None

    def ratio(self, reference: Sequence[float], judged: Sequence[float]) -> Ratio:
        """The ratio and its verdict.

        Without ``separates_faster``, a narrow interval less than ``seen`` above the limit is
        ``SAME``.
        """
        found = ratio_of_turns(reference, judged, self.sensitivity, against=self.limit)
        if self.separates_faster or found.reason or found.change is not Change.TOO_NOISY:
            return found
        beyond = 1 + self.sensitivity.seen
        narrow, below = found.high <= found.low * beyond**2, found.high < self.limit * beyond
        return replace(found, change=Change.SAME) if narrow and below else found

    def turns(self, reference: str) -> Turns:
        """Turns with the reference variant until they decide."""
        return Turns(
            reference=reference,
            question=str(self),
            enough=self,
            most=LOOKS[-1],
            limit=self.limit,
            fewest=LOOKS[0],
            hopeless_after=partial(certainly_slower_after, against=self.limit),
            work=self.work,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RatioOfVariants(TimingClaim):
    against: str = ""
    unit: ClassVar[Unit] = Unit.RATIO

    def _references(self, variant: Variant) -> tuple[str, ...]:
        return (self.against or variant.reference,)

    def _stop_unless_executed(self, case: Case) -> None:
        for evidence in (case.evidence, *map(case.other, self._references(case.variant))):
            stop_unless_executed(case, evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRatio(_RatioOfVariants):
    """The ratio of a run's time to another variant's is at most the formula; runs alternate.

    ``against`` names the other variant, by default the reference. The claim fails if the whole
    interval of the ratio exceeds the limit by more than ``least_change`` (a share). It passes if
    the whole interval is narrow and less than ``seen_change`` above the limit. Otherwise it is
    ``inconclusive``.
    """

    at_most: Formula = _AS_LONG
    least_change: float = 0.02
    seen_change: float = 0.05
    work: Work = Work.RUN
    name: str = "time-ratio"

    def turns(self, case: Case) -> Turns:
        return self._question(case).turns(*self._references(case.variant))

    def judge(self, case: Case) -> Finding:
        question, times = self._question(case), _times_of_both(case)
        found = question.ratio(times.reference.samples, times.judged.samples)
        expected = f"expected at most {question.limit:.4g} ({self.at_most.text})"
        line = f"{self.work.phrase} takes {_in_words(times, found)}, {expected}"
        return _by_ratio(found, question.limit, line, times)

    def _question(self, case: Case) -> AtMost:
        self._stop_unless_executed(case)
        sensitivity = Sensitivity(least=self.least_change, seen=self.seen_change)
        limit = self._limit(case, self.at_most)
        return AtMost(limit=limit, sensitivity=sensitivity, work=self.work)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTimeRatio(TimeRatio):
    """The ratio of the time to trace and lower to another variant's is at most the formula.

    The two are traced alternately, with empty caches of the framework.
    """

    name: str = "trace-time-ratio"
    work: Work = Work.TRACE


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTimeRatio(_RatioOfVariants):
    """The ratio of a run's time to another variant's equals the stored ratio.

    Runs of the two alternate, so the ratio depends little on the machine. It is stored in the
    target's baselines and judged on any machine of that kind. The claim fails if the whole interval
    is more than ``tolerance`` above the stored ratio, improves if it is below by the same factor,
    and passes if it is within ``seen``. Otherwise it is ``inconclusive``. A missing baseline fails.
    docs/timing-evaluation.md has measured ratios.
    """

    tolerance: float = 0.25
    seen: float = 0.4
    name: str = "stored-time-ratio"
    uses_baseline: ClassVar[bool] = True

    def turns(self, case: Case) -> Turns:
        question, (other,) = self._question(case), self._references(case.variant)
        if question is not None:
            return question.turns(other)
        words, most = f"{_PAIRS_TO_STORE} pairs", _PAIRS_TO_STORE
        return Turns(reference=other, question=words, enough=_enough_to_store, most=most)

    def judge(self, case: Case) -> Finding:
        question, times = self._question(case), _times_of_both(case)
        samples = (times.reference.samples, times.judged.samples)
        found = question.ratio(*samples) if question else ratio_of_turns(*samples)
        line = f"a run takes {_in_words(times, found)}"
        if question is None:
            if found.high > found.low * (1 + self.tolerance):
                reason = f"too noisy to store: {line}"
                stop(Outcome.INCONCLUSIVE, reason, "run it on a quieter machine")
            return Finding(
                outcome=Outcome.FAILED,
                measured=found.ratio,
                reason=f"{line}, but no ratio is stored for this or an older toolchain",
                advice=STORE_NEW,
            )
        line += f", stored ratio {question.limit:.4g} \N{PLUS-MINUS SIGN} {self.tolerance:.0%}"
        finding = _by_ratio(found, question.limit, line, times, says_change=True)
        if found.change is Change.FASTER:
            return replace(finding, outcome=Outcome.IMPROVED, advice=STORE_ALL)
        return replace(finding, advice=STORE_ALL) if found.change is Change.SLOWER else finding

    def _question(self, case: Case) -> AtMost | None:
        self._stop_unless_executed(case)
        if case.baseline is None:
            return None
        sensitivity = Sensitivity(least=self.tolerance, seen=self.seen)
        return AtMost(limit=case.baseline.value, sensitivity=sensitivity, separates_faster=True)


def _enough_to_store(reference: Sequence[float], _judged: Sequence[float]) -> bool:
    return len(reference) >= _PAIRS_TO_STORE


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineTime(TimingClaim):
    """A run takes no longer than the time stored for this machine.

    Samples come from ``PROCESSES_ALONE`` fresh processes. The fastest is compared, because a busy
    machine only adds time. A change beyond ``tolerance`` (a share) fails or is an improvement:
    minimum times of one program differ by 1 to 4 % between processes. The verdict is
    ``inconclusive`` on a machine without a stored time. At a load average above ``most_load`` per
    core a slower time is ``inconclusive`` too, and no first time is stored.
    """

    tolerance: float = 0.1
    most_load: float = 3.0
    name: str = "baseline-time"
    unit: ClassVar[Unit] = Unit.SECONDS
    uses_baseline: ClassVar[bool] = True

    def turns(self, case: Case) -> Turns:
        stop_unless_executed(case, case.evidence)
        return Turns(reference="", question="alone", enough=_process_done, most=_MOST_OF_A_PROCESS)

    def judge(self, case: Case) -> Finding:
        stop_unless_executed(case, case.evidence)
        times = _times_of(case)
        if len(times.judged.samples) < _FEWEST_SAMPLES:
            stop(
                Outcome.INCONCLUSIVE,
                f"{len(times.judged.samples)} samples of {PROCESSES_ALONE} processes, "
                f"wanted at least {_FEWEST_SAMPLES}: {times.ended.phrase}",
                "raise --assay-timing-seconds, or time a program of another size",
            )
        measured, busy = min(times.judged.samples), self._busy(times)
        fastest = f"the fastest run takes {format_seconds(measured)}"
        if case.baseline is None:
            return Finding(
                outcome=Outcome.INCONCLUSIVE,
                measured=None if busy else measured,
                reason=f"{fastest}, but no time is stored for this machine, {times.machine}{busy}",
                advice=STORE_NEW,
            )
        # Without a toolchain, so that the tolerance holds on every one.
        found = against_baseline(Quantity(measured, self.unit), case.baseline, {}, self.tolerance)
        reason = f"{fastest}: {found.reason}, tolerance {self.tolerance:.0%}{busy}"
        slower = Outcome.INCONCLUSIVE if busy else Outcome.FAILED
        outcome = slower if found.outcome is Outcome.FAILED else found.outcome
        return replace(found, outcome=outcome, reason=reason)

    def _busy(self, times: Times) -> str:
        machine = times.machine
        most = self.most_load * machine.cores if machine else 0.0
        if machine is None or machine.load is None or machine.load <= most:
            return ""
        load = f"the load average is {machine.load:.1f} on {machine.cores} cores"
        return f"; {load}, wanted at most {most:g}"


def _process_done(_reference: Sequence[float], judged: Sequence[float]) -> bool:
    """Whether a process took enough samples to reach its minimum time."""
    return len(judged) >= _FEWEST_OF_A_PROCESS and sum(judged) >= _SECONDS_OF_A_PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAgainst(RerunClaim):
    """A run takes no longer than it does on the toolchain that ``--assay-against`` names.

    Processes of the two toolchains run alternately. The check exists only with
    ``--assay-against``. ``least_change`` and ``seen_change`` are shares, as in ``TimeRatio``. A
    faster program passes: there is no baseline to improve.
    """

    least_change: float = 0.02
    seen_change: float = 0.04
    name: str = "time-against"
    unit: ClassVar[Unit] = Unit.RATIO

    def rerun_sensitivity(self, case: Case) -> Sensitivity:
        stop_unless_executed(case, case.evidence)
        return Sensitivity(least=self.least_change, seen=self.seen_change)

    def judge(self, case: Case) -> Finding:
        """Judge the rerun. Only the present toolchain's failure fails the claim."""
        self.rerun_sensitivity(case)
        rerun = given(case.rerun, f"got no rerun of {case.variant.name!r}; use the claim in a run")
        old = rerun.side is Side.OLD
        if rerun.unavailable is not None:
            where = f"{rerun.side.phrase}: " if rerun.side else ""
            outcome = Outcome.INCONCLUSIVE if old else Outcome.UNSUPPORTED
            stop(outcome, f"{where}{rerun.unavailable.reason}", rerun.unavailable.remedy)
        if rerun.failure is not None:
            side = (rerun.side or Side.NEW).phrase
            reason = f"nothing to compare: on {side}, {describe(rerun.failure)}"
            if old:
                stop(Outcome.INCONCLUSIVE, reason, "name another version with --assay-against")
            stop(Outcome.FAILED, reason, failure=rerun.failure)
        if rerun.ratio is None:
            stop(
                Outcome.INCONCLUSIVE,
                f"{rerun.ended.phrase} was reached before two pairs of processes, "
                "and the times so far do not differ enough to decide",
                "raise --assay-against-seconds, or time a smaller program",
            )
        return _by_ratio(rerun.ratio, 1, rerun.description, rerun, says_change=True)


def _times_of(case: Case) -> Times:
    """The times, or ``Stopped``. Only the judged variant's failure fails the claim."""
    times = given(case.times, f"got no times of {case.variant.name!r}; use the claim in a run")
    stop_unless_available(times)
    if times.failure is not None:
        failed = describe(times.failure)
        if times.is_alone or times.failed_variant == case.variant.name:
            stop(Outcome.FAILED, f"nothing to time: {failed}", failure=times.failure)
        whose = repr(times.failed_variant) if times.failed_variant else "one of the two"
        advice = f"fix {whose}, or compare with another variant"
        stop(Outcome.INCONCLUSIVE, f"nothing to time: of {whose}, {failed}", advice)
    return times


def _times_of_both(case: Case) -> Times:
    """The times, with at least one pair of samples, or ``Stopped``."""
    times = _times_of(case)
    both = (times.reference, times.judged)
    if not times.judged.samples and times.ended is Ending.BELOW_CLOCK:
        runs = max(each.runs_per_sample for each in both)
        reason = f"even {runs} runs in one sample are too short for this machine's clock"
        stop(Outcome.INCONCLUSIVE, reason, "time a larger program")
    if not times.judged.samples:
        longest = format_seconds(max(each.first or 0.0 for each in both))
        reason = f"the time limit is too short to alternate the two: a run takes up to {longest}"
        advice = "raise --assay-timing-seconds, or time a smaller program"
        stop(Outcome.INCONCLUSIVE, reason, advice)
    return times


def _by_ratio(
    found: Ratio, limit: float, line: str, measured: Times | Rerun, *, says_change: bool = False
) -> Finding:
    """The verdict on a ratio. A larger time limit helps if that limit ended the measurement."""
    reason, advice = f"{line}: {found.change.phrase}" if says_change else line, ""
    if found.change is Change.TOO_NOISY:
        why = f" ({found.reason})" if found.reason else ""
        reason = f"{found.change.phrase}{why}: {line}; {measured.ended.phrase} was reached"
        option = "against" if isinstance(measured, Rerun) else "timing"
        capped = measured.ended is Ending.SECONDS
        instead = f"raise --assay-{option}-seconds" if capped else "ask for a larger change"
        advice = f"run it on a quieter machine, or {instead}"
    outcomes = {Change.SLOWER: Outcome.FAILED, Change.TOO_NOISY: Outcome.INCONCLUSIVE}
    return Finding(
        outcome=outcomes.get(found.change, Outcome.PASSED),
        measured=found.ratio,
        limit=limit,
        reason=reason + (_pace(measured) if isinstance(measured, Times) else ""),
        advice=advice,
    )


def _in_words(times: Times, found: Ratio) -> str:
    ours, theirs = (
        "no time" if each.steady is None else format_seconds(each.steady)
        for each in (times.judged, times.reference)
    )
    what = f"{found.ratio:.4g} times what {times.reference.variant!r} takes"
    if times.ended is Ending.CUT_OFF:
        return f"at least {what} ({theirs}): its run was ended after {ours}"
    interval = f"{found.low:.4g} to {found.high:.4g} from {found.units} pairs"
    return f"{what} ({interval}: {ours} against {theirs})"


def _pace(times: Times) -> str:
    """The changes of the machine's own speed, by the calibration."""
    changed = [
        f"a {work} took {ratio:.2g} times as long afterwards as before"
        for work, ratio in times.drift.items()
        if not 1 / _DRIFT < ratio < _DRIFT
    ]
    line = f"; the machine's speed changed during the measurement: {', '.join(changed)}"
    return line if changed else ""
