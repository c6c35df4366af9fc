"""The claim on a stored time: the weakest comparison, for what cannot be run beside its past."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from assay.claims.measurement import describe_failure, stop_unless_available, stop_unless_executed
from assay.judge.baseline import ACCEPT_NEW
from assay.judge.changes import Better, Change, Ratio, Sensitivity
from assay.judge.histories import (
    MOST_LOAD,
    Standing,
    has_crept,
    judged_sessions,
    sessions_of,
    standing,
    too_busy,
    why_refused,
)
from assay.judge.metrics import Metric, unmatched
from assay.judge.stored_times import FEWEST_SAMPLES, more_sessions
from assay.judge.toolchains import nearest_accepted
from assay.model.claim import Case, MeasurementMissing, Stopped
from assay.model.history import AcceptedTimes, History, kept_session
from assay.model.timing import Ending, Times, Turns, format_seconds
from assay.model.units import Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Arm

FEWEST_OF_A_SESSION: Final = 48
SECONDS_OF_A_SESSION: Final = 0.4
MOST_OF_A_SESSION: Final = 300
"""What docs/timing.md measured the error rates of stored numbers with."""

ACCEPT_CHANGED: Final = (
    "if the change is meant, accept it with --update-baselines=all --why='the reason'"
)
_QUIETER: Final = "run it on a quieter machine, or compare arms in one run"
_OUTCOMES: Final = {
    Change.SLOWER: Outcome.BROKEN,
    Change.FASTER: Outcome.IMPROVED,
    Change.SAME: Outcome.KEPT,
    Change.TOO_NOISY: Outcome.NOT_MEASURED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDone:
    """Whether a session has the samples that the error rates were measured with."""

    fewest: int = FEWEST_OF_A_SESSION
    seconds: float = SECONDS_OF_A_SESSION

    def __call__(self, _reference: Sequence[float], judged: Sequence[float]) -> bool:
        """Whether they are enough."""
        return len(judged) >= self.fewest and sum(judged) >= self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedTime:
    """A run takes no longer than the accepted one on this machine, by sessions of fresh processes.

    The floors of 4 to 8 sessions are compared with those of the nearest toolchain's accepted
    sessions, and with the whole history of the machine, so that many small steps are found too. A
    change counts if its whole interval lies beyond ``least_change``, a share; two are the same if
    it stays within ``seen_change``. What lies between is too noisy to say, and a machine that
    nothing was accepted on has nothing to compare with: ``not-measured``, never a pass. At a load
    average of more than ``most_load`` for each core nothing is accepted, nor called slower.
    """

    least_change: float = 0.02
    seen_change: float = 0.04
    most_load: float = MOST_LOAD
    name: str = "accepted-time"
    unit: Unit = Unit.SECONDS
    uses_baseline: bool = True

    def needs(self, arm: Arm) -> tuple[str, ...]:
        """No other arm."""
        return ()

    def turns(self, case: Case) -> Turns:
        """The next session: the arm alone, in a process of its own."""
        stop_unless_executed(case, case.evidence)
        return Turns(
            reference="",
            question=f"session {len(case.sessions) + 1}",
            enough=SessionDone(),
            most=MOST_OF_A_SESSION,
        )

    def more_sessions(self, case: Case) -> int:
        """How many more are wanted: one to know the machine by, then as many as decide."""
        if not case.sessions:
            return 1
        nearest = _nearest(case)
        if nearest is None:
            return 0
        new = judged_sessions(case.sessions)
        return more_sessions(new, sessions_of(nearest), self._sensitivity)

    def why_refused(self, case: Case) -> str:
        """Too few sessions, floors that scatter by what they are to show, a busy or hot machine."""
        return why_refused(case.sessions, self._sensitivity, self.most_load)

    def judge(self, case: Case) -> Finding:
        """Kept, broken or improved by the interval of the ratio, and by what crept."""
        stop_unless_executed(case, case.evidence)
        _stop_unless_timed(case)
        history = _history(case)
        measured = min(min(kept_session(times).samples) for times in case.sessions)
        told = f"a run takes {format_seconds(measured)} at the fastest"
        nearest = _nearest(case)
        if nearest is None:
            return _without(history, measured, told)
        wrong = unmatched(
            [Metric(name=self.name, unit=self.unit, better=Better.LESS)],
            [Metric(name=self.name, unit=history.unit, better=Better(history.better))],
        )
        if wrong:
            return Finding(outcome=Outcome.BROKEN, reason="; ".join(wrong))
        new = judged_sessions(case.sessions)
        found = standing(new, nearest, history.accepted, self._sensitivity)
        finding = Finding(
            outcome=_outcome(found),
            measured=measured,
            limit=nearest.floor,
            reason=f"{told}: {_told(case, found, nearest)}",
            advice=_advice(case, found, nearest),
        )
        busy = too_busy(case.sessions, self.most_load)
        return _not_by_this_machine(finding, busy) if busy else finding

    @property
    def _sensitivity(self) -> Sensitivity:
        return Sensitivity(least=self.least_change, seen=self.seen_change)


def _history(case: Case) -> History:
    if case.history is None:
        raise MeasurementMissing(
            f"got no history of {case.arm.name!r}, wanted what was accepted on this machine; "
            "judge the claim in a run that looks it up"
        )
    return case.history


def _nearest(case: Case) -> AcceptedTimes | None:
    if case.history is None:
        return None
    return nearest_accepted(case.history.accepted, case.evidence.toolchain.identity)


def _stop_unless_timed(case: Case) -> None:
    """Raise ``Stopped`` where a session did not come to its samples."""
    if not case.sessions:
        raise MeasurementMissing(
            f"got no sessions of {case.arm.name!r}, wanted them taken in processes of their own; "
            "judge the claim in a run that can take times"
        )
    for times in case.sessions:
        stop_unless_available(times)
        if times.failure is not None:
            reason = f"nothing to time: {describe_failure(times.failure)}"
            raise Stopped(Finding(outcome=Outcome.BROKEN, reason=reason, failure=times.failure))
        if len(times.judged.samples) < FEWEST_SAMPLES:
            _stop_too_few(times)


def _stop_too_few(times: Times) -> NoReturn:
    if times.ended is Ending.BELOW_CLOCK:
        runs = times.judged.runs_per_sample
        reason = f"{runs} runs together are still too short for this machine's clock"
        advice = "time a larger program"
    else:
        taken, longest = len(times.judged.samples), format_seconds(times.judged.first or 0.0)
        reason = (
            f"{taken} samples of a session, wanted at least {FEWEST_SAMPLES}: "
            f"the cap of seconds left no time for more; the first run took {longest}"
        )
        advice = "raise --timing-seconds, which is shared out among 8 sessions, or time less"
    raise Stopped(Finding(outcome=Outcome.NOT_MEASURED, reason=reason, advice=advice))


def _without(history: History, measured: float, told: str) -> Finding:
    """Nothing to compare with: a machine never seen is no program's fault, a missing entry is."""
    name = history.machine.fingerprint
    if not history.seen:
        return Finding(
            outcome=Outcome.NOT_MEASURED,
            measured=measured,
            reason=f"{told}, but no time was ever accepted on this machine, {name} "
            f"({history.machine}), for this target",
            advice=f"to judge times here from now on, {ACCEPT_NEW} while nothing else runs",
        )
    return Finding(
        outcome=Outcome.BROKEN,
        measured=measured,
        reason=f"{told}, but no time is accepted for this or an older toolchain on {name}, "
        "where others are",
        advice=ACCEPT_NEW,
    )


def _not_by_this_machine(finding: Finding, busy: str) -> Finding:
    """A busy machine makes every program slower, and none faster."""
    if finding.outcome is not Outcome.BROKEN:
        return finding
    return replace(
        finding,
        outcome=Outcome.NOT_MEASURED,
        reason=f"too busy to say: {busy}; {finding.reason}",
        advice=_QUIETER,
    )


def _outcome(found: Standing) -> Outcome:
    return Outcome.BROKEN if has_crept(found) else _OUTCOMES[found.ratio.change]


def _told(case: Case, found: Standing, nearest: AcceptedTimes) -> str:
    ratio, sessions = found.ratio, f"{len(nearest.sessions)} sessions"
    line = (
        f"{_interval(ratio)} times what was accepted on {_where(case, nearest)}, "
        f"by {len(case.sessions)} sessions against {sessions}"
    )
    if has_crept(found):
        return f"{line}; but {_crept(found)}"
    if ratio.change is Change.TOO_NOISY:
        why = f" ({ratio.reason})" if ratio.reason else ""
        return f"too noisy to say{why}: {line}"
    return f"{ratio.change.value}: {line}"


def _crept(found: Standing) -> str:
    assert found.crept is not None
    assert found.oldest is not None
    crept, oldest = found.crept, found.oldest
    since = f"the oldest accepted ({oldest.at}: {oldest.why})"
    steps = f"in small steps over {crept.since_oldest.units} times"
    if crept.since_oldest.change is Change.SLOWER:
        return f"it crept: {_interval(crept.since_oldest)} times {since}, {steps}"
    assert crept.trend is not None
    return f"it creeps: a trend of {_interval(crept.trend)} times since {since}, {steps}"


def _interval(ratio: Ratio) -> str:
    return f"{ratio.ratio:.4g} ({ratio.low:.4g} to {ratio.high:.4g})"


def _where(case: Case, nearest: AcceptedTimes) -> str:
    if _is_same_toolchain(case, nearest):
        return "this toolchain"
    return ", ".join(f"{name} {version}" for name, version in sorted(nearest.toolchain.items()))


def _advice(case: Case, found: Standing, nearest: AcceptedTimes) -> str:
    outcome = _outcome(found)
    if outcome is Outcome.IMPROVED:
        return "accept it with --update-baselines=all, so that it is kept from now on"
    if outcome is Outcome.NOT_MEASURED:
        return _QUIETER
    if outcome is Outcome.KEPT:
        return ""
    version = nearest.toolchain.get("jax")
    weak = "a stored time is a weak comparison (docs/timing.md has its error rates)"
    if version and not _is_same_toolchain(case, nearest):
        weak += f": confirm it with --against {version}"
    return f"{weak}; {ACCEPT_CHANGED}"


def _is_same_toolchain(case: Case, nearest: AcceptedTimes) -> bool:
    return dict(nearest.toolchain) == case.evidence.toolchain.identity
