"""Sessions of one arm: taken until they decide, held against a history, accepted into it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from assay.judge.stored_times import FEWEST_ACCEPTED, FEWEST_SAMPLES
from assay.judge.toolchains import nearest_accepted
from assay.model.claim import Case, StoredTimeClaim
from assay.model.history import AcceptedTimes, History, kept_session
from assay.model.timing import Times
from assay.model.verdict import AcceptedNumber, Finding, Outcome
from assay.store import accepted_times
from assay.store.baselines import Key

NO_REASON = "no reason given"
_NO_WORSE = (Outcome.KEPT, Outcome.IMPROVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """How one arm's sessions are taken and accepted in a run.

    ``key`` names the history that they are held against; a ``twin`` is held against the nearest
    point of it alone, for what crept before is not what it must be caught for. ``new`` asks that
    times be accepted where there are none, and on a new toolchain those that are no worse; ``all``
    that these be, whatever they are: a change for the worse only with a reason, ``why``.
    """

    run: str
    directory: Path
    baselines: Path
    key: Key
    twin: bool = False
    new: bool = False
    all: bool = False
    why: str = ""

    def taken(self, claim: StoredTimeClaim, case: Case, take: Callable[[Case], Times]) -> Case:
        """The case with sessions, as many as the claim or an acceptance wants, and the history."""
        while claim.more_sessions(case) or self._wants_more(case):
            case = replace(case, sessions=(*case.sessions, take(case)))
            if case.history is None:
                case = self._known(case)
            if not _is_whole(case.sessions[-1]):
                break
        return case

    def accepted(
        self, claim: StoredTimeClaim, case: Case, finding: Finding
    ) -> tuple[Finding, Case]:
        """The finding and the case after acceptance, if that was asked for and nothing forbids it.

        Nothing is accepted of a noisy or throttled machine, and no change for the worse without a
        reason; the finding then stands, and says why.
        """
        if case.history is None or finding.measured is None or not self._is_asked(case):
            return finding, case
        if case.accepted is not None and finding.outcome not in _NO_WORSE:
            if not self.all:
                return finding, case
            if not self.why:
                return _refused(finding, "it is no clear pass; give --why='the reason'"), case
        refused = claim.why_refused(case)
        if refused:
            return _refused(finding, refused), case
        point = AcceptedTimes(
            run=self.run,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            why=self.why or NO_REASON,
            toolchain=case.evidence.toolchain.identity,
            sessions=tuple(map(kept_session, case.sessions)),
            anew=case.accepted is not None and finding.outcome is not Outcome.KEPT,
        )
        machine = case.history.machine
        suite, target = case.workload.suite, case.evidence.target
        accepted_times.put_aside(self.directory, suite, target, self.key, machine, point)
        return _accepted_now(finding, point), replace(case, accepted=_number(case.history, point))

    def _known(self, case: Case) -> Case:
        """The case with the history of the machine that its session was taken on."""
        machine = case.sessions[0].machine
        if machine is None:
            return case
        suite, target = case.workload.suite, case.evidence.target
        found = accepted_times.history(self.baselines, machine, suite, target, self.key)
        nearest = nearest_accepted(found.accepted, case.evidence.toolchain.identity)
        number = _number(found, nearest) if nearest else None
        if self.twin:
            found = replace(found, accepted=(nearest,) if nearest else ())
        return replace(case, history=found, accepted=number)

    def _wants_more(self, case: Case) -> bool:
        return len(case.sessions) < FEWEST_ACCEPTED and self._is_asked(case)

    def _is_asked(self, case: Case) -> bool:
        if self.twin or not (self.new or self.all):
            return False
        if self.new and case.accepted is not None:
            return dict(case.accepted.toolchain) != case.evidence.toolchain.identity
        return True


def _is_whole(times: Times) -> bool:
    is_stopped = times.failure is not None or times.unavailable is not None
    return not is_stopped and len(times.judged.samples) >= FEWEST_SAMPLES


def _number(history: History, point: AcceptedTimes) -> AcceptedNumber:
    machine = history.machine.fingerprint
    return AcceptedNumber(value=point.floor, toolchain=dict(point.toolchain), machine=machine)


def _refused(finding: Finding, why: str) -> Finding:
    """The finding as it was; an acceptance that was refused changes no verdict."""
    return replace(finding, reason=f"{finding.reason}; not accepted: {why}")


def _accepted_now(finding: Finding, point: AcceptedTimes) -> Finding:
    return replace(
        finding,
        outcome=Outcome.KEPT,
        limit=point.floor,
        reason=f"accepted now ({point.why}): {finding.reason}",
        advice="",
    )
