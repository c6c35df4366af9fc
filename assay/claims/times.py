"""Claims on times of programs that alternate in one run, so that other load slows both alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NoReturn

from assay.claims.measurement import (
    ClaimBase,
    describe_failure,
    passed_if,
    stop,
    stop_unless_available,
    stop_unless_executed,
)
from assay.judge.baseline import STORE_ALL, STORE_NEW
from assay.model.claim import Case, Formula, MeasurementMissing
from assay.model.timing import Ending, Times, Turns, VariantTimes, Work, format_seconds
from assay.model.units import Quantity, Unit, same_unit
from assay.model.verdict import BaselineNumber, Finding, Outcome
from assay.model.workload import Variant
from assay.stats.changes import Change, Ratio, Sensitivity
from assay.stats.ratios import LOOKS, certainly_slower_after, ratio_of_turns, separated

_AS_LONG = Formula("as long", lambda _case: Quantity(1, Unit.RATIO))
_DRIFT = 1.25
"""If the machine's own speed changed by more than this factor, the verdict mentions it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtMost:
    """Whether turns decide that one program takes at most ``limit`` times what the other takes."""

    limit: float
    sensitivity: Sensitivity
    work: Work = Work.RUN

    def __str__(self) -> str:
        asked = f"at most {self.limit:g}, {self.sensitivity.least:g} to {self.sensitivity.seen:g}"
        return asked if self.work is Work.RUN else f"{self.work.phrase}: {asked}"

    def __call__(self, reference: Sequence[float], judged: Sequence[float]) -> bool:
        """Whether the samples so far decide it; repeated looks keep the error rate."""
        if len(reference) in LOOKS:
            return self.outcome(reference, judged) is not None
        return separated(reference, judged, against=self.limit) is not None

    def settles(self, reference: Sequence[float], judged: Sequence[float]) -> bool:
        """Whether the samples so far show slower, faster or the same; looked at as often."""
        if len(reference) in LOOKS:
            return self.ratio(reference, judged).change is not Change.TOO_NOISY
        return separated(reference, judged, against=self.limit) is not None

    def ratio(self, reference: Sequence[float], judged: Sequence[float]) -> Ratio:
        return ratio_of_turns(reference, judged, self.sensitivity, against=self.limit)

    def outcome(self, reference: Sequence[float], judged: Sequence[float]) -> bool | None:
        """Whether it passes; None if the interval lies on both sides of the line."""
        found = self.ratio(reference, judged)
        if found.change is Change.SLOWER:
            return False
        if found.change in {Change.SAME, Change.FASTER} or self._within(found):
            return True
        return None

    def turns(
        self, reference: str, enough: Callable[[Sequence[float], Sequence[float]], bool]
    ) -> Turns:
        return Turns(
            reference=reference,
            question=str(self),
            enough=enough,
            most=LOOKS[-1],
            fewest=LOOKS[0],
            hopeless_after=partial(certainly_slower_after, against=self.limit),
            work=self.work,
        )

    def _within(self, found: Ratio) -> bool:
        """Whether it is faster or as fast, though not which: a narrow interval below the line."""
        beyond = 1 + self.sensitivity.seen
        narrow = found.high <= found.low * beyond**2 and not found.reason
        return narrow and found.high < self.limit * beyond


@dataclass(frozen=True, slots=True, kw_only=True)
class _RatioOfVariants(ClaimBase):
    against: str = ""
    unit: ClassVar[Unit] = Unit.RATIO

    def _references(self, variant: Variant) -> tuple[str, ...]:
        return (self.against or variant.reference,)

    def _executed(self, case: Case) -> str:
        """The name of the other variant, or ``Stopped`` unless both ran."""
        (other,) = self._references(case.variant)
        stop_unless_executed(case, case.evidence)
        stop_unless_executed(case, case.other(other))
        return other


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRatio(_RatioOfVariants):
    """The ratio of a run's time to another variant's is at most the formula; runs alternate.

    ``against`` names the other variant, by default the reference. The claim fails if the whole
    interval of the ratio exceeds the limit by more than ``least_change`` (a share). It passes if
    the whole interval is within ``seen_change`` of the limit. Otherwise it is ``inconclusive``.
    """

    at_most: Formula = _AS_LONG
    least_change: float = 0.02
    seen_change: float = 0.05
    work: Work = Work.RUN
    name: str = "time-ratio"

    def turns(self, case: Case) -> Turns:
        question, other = self._question(case)
        return question.turns(other, question)

    def judge(self, case: Case) -> Finding:
        question, _ = self._question(case)
        times = _times_of_both(case)
        samples = (times.reference.samples, times.judged.samples)
        found, passed = question.ratio(*samples), question.outcome(*samples)
        limit = f"{question.limit:.4g} ({self.at_most.text})"
        line = f"{self.work.phrase} takes {_in_words(times, found)}, expected at most {limit}"
        if passed is None:
            return _undecided(times, found, question, line)
        return Finding(
            outcome=passed_if(passed),
            measured=found.ratio,
            limit=question.limit,
            reason=line + _pace(times),
        )

    def _question(self, case: Case) -> tuple[AtMost, str]:
        """What is asked of two programs that ran, and the other's name; or ``Stopped``."""
        other = self._executed(case)
        limit = self.at_most.of(case)
        same_unit(limit, Quantity(1, self.unit))
        sensitivity = Sensitivity(least=self.least_change, seen=self.seen_change)
        return AtMost(limit=float(limit.value), sensitivity=sensitivity, work=self.work), other


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

    Runs of the two alternate, so the ratio depends little on the machine. It is stored with the
    bytes of the target and judged on any machine of that kind. The claim fails if the whole
    interval is more than ``tolerance`` above the stored ratio, improves if it is as far below, and
    passes if it is within ``seen``. docs/timing-evaluation.md has measured ratios.
    """

    tolerance: float = 0.25
    seen: float = 0.4
    name: str = "stored-time-ratio"
    uses_baseline: ClassVar[bool] = True

    def turns(self, case: Case) -> Turns:
        other = self._executed(case)
        if case.baseline is None:
            question, most = f"{_PAIRS_TO_STORE} pairs", _PAIRS_TO_STORE
            return Turns(reference=other, question=question, enough=_enough_to_store, most=most)
        asked = self._question(case.baseline)
        return asked.turns(other, asked.settles)

    def judge(self, case: Case) -> Finding:
        self._executed(case)
        times = _times_of_both(case)
        samples = (times.reference.samples, times.judged.samples)
        if case.baseline is None:
            return self._unstored(times, ratio_of_turns(*samples))
        question = self._question(case.baseline)
        found = question.ratio(*samples)
        stored = f"{question.limit:.4g} \N{PLUS-MINUS SIGN} {self.tolerance:.0%}"
        line = f"a run takes {_in_words(times, found)}, stored ratio {stored}"
        outcome = _STORED[found.change]
        if outcome is Outcome.INCONCLUSIVE:
            return _undecided(times, found, question, line)
        return Finding(
            outcome=outcome,
            measured=found.ratio,
            limit=question.limit,
            reason=f"{line}: {found.change.phrase}{_pace(times)}",
            advice="" if outcome is Outcome.PASSED else STORE_ALL,
        )

    def _unstored(self, times: Times, found: Ratio) -> Finding:
        line = f"a run takes {_in_words(times, found)}"
        if found.high > found.low * (1 + self.tolerance):
            reason = f"too noisy to store: {line}"
            stop(Outcome.INCONCLUSIVE, reason, "run it on a quieter machine")
        return Finding(
            outcome=Outcome.FAILED,
            measured=found.ratio,
            reason=f"{line}, but no ratio is stored for this or an older toolchain",
            advice=STORE_NEW,
        )

    def _question(self, stored: BaselineNumber) -> AtMost:
        sensitivity = Sensitivity(least=self.tolerance, seen=self.seen)
        return AtMost(limit=float(stored.value), sensitivity=sensitivity)


_PAIRS_TO_STORE = LOOKS[5]
_STORED = {
    Change.SLOWER: Outcome.FAILED,
    Change.FASTER: Outcome.IMPROVED,
    Change.SAME: Outcome.PASSED,
    Change.TOO_NOISY: Outcome.INCONCLUSIVE,
}


def _enough_to_store(reference: Sequence[float], _judged: Sequence[float]) -> bool:
    return len(reference) >= _PAIRS_TO_STORE


def _times_of_both(case: Case) -> Times:
    """The times, with at least one pair of samples, or ``Stopped``."""
    times = times_of(case, "measured in turns")
    if not times.judged.samples:
        _stop_too_few(times)
    return times


def times_of(case: Case, how: str) -> Times:
    """The times of a case, or ``Stopped``: only the judged variant's failure fails the claim."""
    times = case.times
    if times is None:
        raise MeasurementMissing(
            f"got no times of {case.variant.name!r}, wanted times {how}; use the claim in a run "
            "that measures times"
        )
    stop_unless_available(times)
    if times.failure is not None:
        failed = describe_failure(times.failure)
        if times.is_alone or times.failed_variant == case.variant.name:
            stop(Outcome.FAILED, f"nothing to time: {failed}", failure=times.failure)
        whose = repr(times.failed_variant) if times.failed_variant else "one of the two"
        advice = f"fix {whose}, or compare with another variant"
        stop(Outcome.INCONCLUSIVE, f"nothing to time: of {whose}, {failed}", advice)
    return times


def _stop_too_few(times: Times) -> NoReturn:
    variants = (times.reference, times.judged)
    if times.ended is Ending.BELOW_CLOCK:
        runs = max(variant.runs_per_sample for variant in variants)
        reason = f"even {runs} runs in one sample are too short for this machine's clock"
        stop(Outcome.INCONCLUSIVE, reason, "time a larger program")
    longest = format_seconds(max(variant.first or 0.0 for variant in variants))
    reason = f"the time limit is too short to alternate the two: a run takes up to {longest}"
    stop(Outcome.INCONCLUSIVE, reason, "raise --assay-timing-seconds, or time a smaller program")


def _undecided(times: Times, found: Ratio, question: AtMost, line: str) -> Finding:
    noisy = too_noisy(found, question.limit, line, times.ended, "--assay-timing-seconds")
    return replace(noisy, reason=noisy.reason + _pace(times))


def too_noisy(found: Ratio, limit: float, line: str, ended: Ending, option: str) -> Finding:
    """``inconclusive``; the option is to be raised if the time limit ended the measurement."""
    why = f" ({found.reason})" if found.reason else ""
    capped = ended is Ending.SECONDS
    instead = f"raise {option}" if capped else "ask for a larger change"
    return Finding(
        outcome=Outcome.INCONCLUSIVE,
        measured=found.ratio,
        limit=limit,
        reason=f"{Change.TOO_NOISY.phrase}{why}: {line}; {ended.phrase} was reached",
        advice=f"run it on a quieter machine, or {instead}",
    )


def _in_words(times: Times, found: Ratio) -> str:
    if times.ended is Ending.CUT_OFF:
        return (
            f"at least {found.ratio:.4g} times what {times.reference.variant!r} takes "
            f"({_steady(times.reference)}): its run was ended after {_steady(times.judged)}"
        )
    return (
        f"{found.ratio:.4g} times what {times.reference.variant!r} takes "
        f"({found.low:.4g} to {found.high:.4g} from {found.units} pairs: "
        f"{_steady(times.judged)} against {_steady(times.reference)})"
    )


def _steady(variant: VariantTimes) -> str:
    return "no time" if variant.steady is None else format_seconds(variant.steady)


def _pace(times: Times) -> str:
    """What the calibration says of the machine itself, if that changed."""
    changed = [
        f"a {work} took {ratio:.2g} times as long afterwards as before"
        for work, ratio in times.drift.items()
        if not 1 / _DRIFT < ratio < _DRIFT
    ]
    line = f"; the machine's speed changed during the measurement: {', '.join(changed)}"
    return line if changed else ""
