"""Times are accepted with a reason, one run after another, and only on a machine fit for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from assay import claims
from assay.judge.stored_times import FEWEST_ACCEPTED, SESSION_LOOKS
from assay.model.evidence import Failure, FailureKind
from assay.model.timing import Keep, Machine, TimedPair, Times
from assay.model.verdict import Outcome, Record
from assay.run import Accept, Run, Trial, accept_numbers
from assay.sessions import NO_REASON
from assay.store import accepted_times
from assay.store.times import KEPT
from tests.claims.sessions import MACHINE, session

from .fakes import NOW, OFFLOAD, OLD, TARGET, TWIN, Harness, trial

CLAIM = claims.AcceptedTime()
BASE = 0.01
TIMED: Trial = trial(claim=CLAIM)


@dataclass
class Timed:
    """Runs one after another over the same baselines; each arm takes the seconds that it says."""

    harness: Harness
    seconds: dict[str, float] = field(default_factory=lambda: {"offload": BASE, "twin": 2 * BASE})
    known: dict[str, Any] = field(default_factory=dict)
    asked: list[TimedPair] = field(default_factory=list)
    scatter: float = 0.0

    def __call__(self, pair: TimedPair, keep: Keep) -> Times:
        self.asked.append(pair)
        number = len(self.asked)
        arm = pair.judged.name
        seconds = self.seconds[arm] * (1 + self.scatter * (number % 5))
        taken = session(seconds, 1000 * self.harness.runs + number, **self.known)
        return replace(
            taken,
            suite=pair.workload.suite,
            workload=pair.workload.name,
            target=pair.target,
            question=pair.turns.question,
            judged=replace(taken.judged, arm=arm),
        )

    def run(self, accept: Accept = Accept.NOTHING, why: str = "") -> Run:
        return replace(self.harness.start(accept), time=self, why=why, timing_seconds=40.0)

    def judge(self, accept: Accept = Accept.NOTHING, why: str = "", trial: Trial = TIMED) -> Record:
        """A whole run of one trial."""
        self.asked.clear()
        run = self.run(accept, why)
        record = run.judge(trial)
        accept_numbers(run, [record])
        return record

    def whys(self, machine: Machine = MACHINE, arm: str = "offload") -> list[str]:
        key = ("stack", arm, CLAIM.name)
        found = accepted_times.history(self.harness.baselines, machine, "scan", TARGET, key)
        return [point.why for point in found.accepted]

    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.harness.baselines.rglob("*.json")}


@pytest.fixture
def timed(harness: Harness) -> Timed:
    return Timed(harness)


@pytest.fixture
def accepted(timed: Timed) -> Timed:
    """One time is accepted on this machine."""
    assert timed.judge(Accept.NEW, "the first").verdict is Outcome.KEPT
    return timed


def test_each_session_is_one_arm_alone_and_they_share_the_seconds(accepted: Timed) -> None:
    accepted.judge()
    assert [pair.turns.question for pair in accepted.asked] == [
        f"session {number}" for number in range(1, SESSION_LOOKS[0] + 1)
    ]
    assert {(pair.reference, pair.judged.name) for pair in accepted.asked} == {(None, "offload")}
    assert {pair.most_seconds for pair in accepted.asked} == {40.0 / FEWEST_ACCEPTED}


def test_every_session_is_kept_and_the_verdict_carries_them_as_one(accepted: Timed) -> None:
    run = accepted.run()
    _, pooled = run.judge_timed(TIMED)
    sessions, damaged = KEPT.load_all(run.directory)
    assert (len(sessions), damaged) == (SESSION_LOOKS[0], ())
    assert pooled is not None
    assert pooled.question == "4 sessions"
    assert len(pooled.judged.samples) == sum(len(each.judged.samples) for each in sessions)
    assert run.judge_timed(TIMED)[1] == pooled
    assert len(accepted.asked) == FEWEST_ACCEPTED + SESSION_LOOKS[0]


def test_a_machine_never_seen_costs_one_session_and_is_not_measured(timed: Timed) -> None:
    record = timed.judge()
    assert (record.verdict, record.baseline) == (Outcome.NOT_MEASURED, None)
    assert MACHINE.fingerprint in record.reason
    assert len(timed.asked) == 1
    assert timed.files() == {}


@pytest.mark.parametrize("accept", [Accept.NEW, Accept.ALL])
def test_a_first_time_is_accepted_with_all_that_belongs_to_it(timed: Timed, accept: Accept) -> None:
    record = timed.judge(accept, "the first")
    assert record.verdict is Outcome.KEPT
    assert "accepted now (the first)" in record.reason
    assert record.baseline is not None
    assert record.baseline.machine == MACHINE.fingerprint
    assert record.measured == record.limit == record.baseline.value
    key = ("stack", "offload", CLAIM.name)
    found = accepted_times.history(timed.harness.baselines, MACHINE, "scan", TARGET, key)
    (point,) = found.accepted
    assert len(point.sessions) == FEWEST_ACCEPTED == len(timed.asked)
    assert (point.run, point.toolchain, point.anew) == ("run-1", OLD, False)
    assert point.at.endswith("+00:00")
    assert {len(each.samples) for each in point.sessions} == {48}
    assert point.sessions[0].calibration.keys() == {"matmul", "copy", "dispatch"}
    assert point.sessions[0].load == MACHINE.load


def test_a_time_without_a_reason_says_so(timed: Timed) -> None:
    timed.judge(Accept.NEW)
    assert timed.whys() == [NO_REASON]


def test_no_time_stands_among_the_numbers(accepted: Timed) -> None:
    assert [path.relative_to(accepted.harness.baselines).parts[0] for path in accepted.files()] == [
        "times"
    ]


def test_the_same_program_is_kept_and_a_slower_one_broken(accepted: Timed) -> None:
    before = accepted.files()
    assert accepted.judge().verdict is Outcome.KEPT
    accepted.seconds["offload"] = 2 * BASE
    record = accepted.judge()
    assert record.verdict is Outcome.BROKEN
    assert record.measured == pytest.approx(2 * BASE, rel=0.02)
    assert record.baseline is not None
    assert record.limit == record.baseline.value == pytest.approx(BASE, rel=0.02)
    accepted.seconds["offload"] = BASE / 2
    assert accepted.judge().verdict is Outcome.IMPROVED
    assert accepted.files() == before


def test_the_times_of_another_machine_are_not_compared_with(accepted: Timed) -> None:
    accepted.known = {"cpu": "Another CPU"}
    accepted.seconds["offload"] = 2 * BASE
    record = accepted.judge()
    assert record.verdict is Outcome.NOT_MEASURED
    assert "another-cpu-8-cores" in record.reason


def test_new_changes_nothing_where_a_time_is_accepted(accepted: Timed) -> None:
    before = accepted.files()
    assert accepted.judge(Accept.NEW, "again").verdict is Outcome.KEPT
    accepted.seconds["offload"] = 2 * BASE
    assert accepted.judge(Accept.NEW, "worse").verdict is Outcome.BROKEN
    assert accepted.files() == before


def test_new_takes_a_new_toolchains_time_that_is_no_worse(accepted: Timed) -> None:
    accepted.harness.observed.versions = dict(NOW)
    accepted.seconds["offload"] = 2 * BASE
    assert accepted.judge(Accept.NEW, "worse").verdict is Outcome.BROKEN
    assert accepted.whys() == ["the first"]
    accepted.seconds["offload"] = BASE
    record = accepted.judge(Accept.NEW, "a new jaxlib")
    assert (record.verdict, len(accepted.asked)) == (Outcome.KEPT, FEWEST_ACCEPTED)
    assert accepted.whys() == ["the first", "a new jaxlib"]


def test_all_appends_and_replaces_nothing(accepted: Timed) -> None:
    assert accepted.judge(Accept.ALL, "again").verdict is Outcome.KEPT
    assert accepted.whys() == ["the first", "again"]


def test_a_slower_time_is_accepted_with_a_reason_alone(accepted: Timed) -> None:
    accepted.seconds["offload"] = 2 * BASE
    refused = accepted.judge(Accept.ALL)
    assert refused.verdict is Outcome.BROKEN
    assert "not accepted: it is no clear pass; give --why=" in refused.reason
    assert accepted.whys() == ["the first"]
    assert accepted.judge(Accept.ALL, "it checks more").verdict is Outcome.KEPT
    assert accepted.whys() == ["the first", "it checks more"]
    assert accepted.judge().verdict is Outcome.KEPT


def test_a_baseline_is_refused_on_a_noisy_machine_and_the_run_says_why(timed: Timed) -> None:
    timed.scatter = 0.05
    record = timed.judge(Accept.NEW, "noisy")
    assert record.verdict is Outcome.NOT_MEASURED
    assert "not accepted: got sessions whose floors differ by" in record.reason
    assert timed.files() == {}


def test_a_baseline_is_refused_on_a_throttled_machine(timed: Timed) -> None:
    timed.known = {"throttles": 1}
    record = timed.judge(Accept.ALL, "hot")
    assert record.verdict is Outcome.NOT_MEASURED
    assert "not accepted: the processor slowed down for heat 8 times" in record.reason
    assert timed.files() == {}


def test_a_baseline_is_refused_on_a_busy_machine_though_its_sessions_agree(timed: Timed) -> None:
    timed.known = {"load": 40.0}
    record = timed.judge(Accept.NEW, "busy")
    assert record.verdict is Outcome.NOT_MEASURED
    assert "not accepted: got a load average of 40.0 on 8 cores" in record.reason
    assert timed.files() == {}


def test_a_machine_that_became_slower_is_accepted_anew_with_a_reason(accepted: Timed) -> None:
    accepted.known = {"speed": 1.3}
    accepted.seconds["offload"] = BASE
    assert accepted.judge(Accept.ALL).verdict is Outcome.NOT_MEASURED
    assert accepted.judge(Accept.ALL, "its clock was lowered").verdict is Outcome.KEPT
    assert accepted.judge().verdict is Outcome.KEPT


def test_a_missing_time_is_broken_where_others_are_accepted(accepted: Timed) -> None:
    other = trial(claim=claims.AcceptedTime(name="another-time"))
    assert accepted.judge(trial=other).verdict is Outcome.BROKEN
    assert accepted.judge(Accept.NEW, trial=other).verdict is Outcome.KEPT
    assert accepted.judge(trial=other).verdict is Outcome.KEPT


DAYS = [BASE * 1.012**day for day in range(8)]


def test_small_steps_accepted_day_by_day_are_broken_as_creep(timed: Timed) -> None:
    verdicts = []
    for seconds in DAYS:
        timed.seconds["offload"] = seconds
        verdicts.append(timed.judge(Accept.ALL))
    ended = next(record for record in verdicts if record.verdict is not Outcome.KEPT)
    assert ended.verdict is Outcome.BROKEN
    assert "it crept" in ended.reason
    assert NO_REASON in ended.reason
    assert "not accepted: it is no clear pass" in ended.reason
    seen = timed.judge(Accept.ALL, "we know")
    assert seen.verdict is Outcome.KEPT
    assert timed.judge().verdict is Outcome.KEPT


def test_a_twin_is_held_against_the_sessions_of_its_reference_arm(timed: Timed) -> None:
    workload = TIMED.workload
    twin = replace(TWIN, reference="offload")
    arms = tuple(twin if arm.name == "twin" else arm for arm in workload.arms)
    held = replace(TIMED, workload=replace(workload, arms=arms), arm=twin, must_fail=True)
    unheld = timed.judge(Accept.NEW, trial=held)
    assert unheld.verdict is Outcome.NOT_MEASURED
    assert timed.files() == {}
    timed.judge(Accept.NEW)
    missing = timed.judge(trial=replace(held, arm=replace(twin, reference="save")))
    assert missing.verdict is Outcome.NOT_MEASURED
    assert "'save'" in missing.reason
    before = timed.files()
    record = timed.judge(Accept.ALL, "no twin is accepted", trial=held)
    assert record.verdict is Outcome.KEPT
    assert record.claim == "accepted-time.must-fail"
    assert "the negative control breaks the claim, as it must" in record.reason
    assert len(timed.asked) == SESSION_LOOKS[0]
    timed.seconds["twin"] = BASE
    blind = timed.judge(trial=held)
    assert blind.verdict is Outcome.BROKEN
    assert "blind" in blind.reason
    assert timed.files() == before


def test_creep_alone_does_not_make_a_twin_look_caught(timed: Timed) -> None:
    for seconds in DAYS[:5]:
        timed.seconds["offload"] = seconds
        timed.judge(Accept.ALL)
    assert len(timed.whys()) >= 3
    timed.seconds["twin"] = timed.seconds["offload"] = DAYS[len(timed.whys()) - 1]
    twin = replace(TWIN, reference="offload")
    assert timed.judge(trial=replace(TIMED, arm=twin, must_fail=True)).verdict is Outcome.BROKEN


@pytest.mark.parametrize("accept", list(Accept))
def test_a_program_that_dies_in_a_session_is_broken_and_not_accepted(
    timed: Timed, accept: Accept
) -> None:
    timed.known = {}
    died = Failure(kind=FailureKind.CRASH, message="SIGABRT")
    run = replace(
        timed.run(accept, "dead" if accept is not Accept.NOTHING else ""),
        time=lambda pair, keep: replace(timed(pair, keep), failure=died, machine=None),
    )
    record = run.judge(TIMED)
    accept_numbers(run, [record])
    assert record.verdict is Outcome.BROKEN
    assert len(timed.asked) == 1
    assert timed.files() == {}


def test_a_program_that_failed_before_is_not_timed(harness: Harness, timed: Timed) -> None:
    died = Failure(kind=FailureKind.COMPILER, message="it broke")
    run = replace(
        timed.run(Accept.NEW),
        observe=lambda *asked: replace(harness.observed(*asked), failure=died),
    )
    assert run.judge(TIMED).verdict is Outcome.BROKEN
    assert timed.asked == []


def test_the_trial_is_kept_away_from_all_others() -> None:
    assert TIMED.is_timing
    assert TIMED.arm == OFFLOAD
