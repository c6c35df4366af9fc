"""A stored time: slower, faster, the same, too noisy, crept; and what is no comparison at all."""

import itertools
from dataclasses import replace

import pytest

from assay import claims
from assay.judge.case import judge, judge_twin
from assay.judge.stored_times import FEWEST_ACCEPTED, SESSION_LOOKS
from assay.model.claim import Case, StoredTimeClaim, TimingClaim
from assay.model.evidence import Failure, FailureKind, Unavailable
from assay.model.timing import ArmTimes, Ending
from assay.model.units import Unit
from assay.model.verdict import Finding, Outcome

from .cases import case
from .sessions import MACHINE, point, session, stored, taken

CLAIM = claims.AcceptedTime()
BASE = 0.01
FIRST = point(BASE, 1)
SCATTERED = tuple(session(BASE * (1 + 0.03 * k), k) for k in range(8))


def found(new: float, *points: float, seed: int = 77) -> Finding:
    """The verdict on a run of so many seconds, after points of so many, a day each."""
    history = [point(each, day, day=day) for day, each in enumerate(points, start=1)]
    return judge(CLAIM, stored(taken(new, seed), *history))


def test_it_is_a_claim_that_asks_for_sessions() -> None:
    assert isinstance(CLAIM, StoredTimeClaim)
    assert isinstance(CLAIM, TimingClaim)
    assert not isinstance(claims.TimeRatio(), StoredTimeClaim)


def test_a_program_that_did_not_change_is_kept_with_both_numbers() -> None:
    finding = found(BASE, BASE)
    assert finding.outcome is Outcome.KEPT, finding.reason
    assert finding.measured == pytest.approx(BASE, rel=0.02)
    assert finding.limit == FIRST.floor


def test_a_slower_program_is_broken_with_the_interval() -> None:
    finding = found(1.08 * BASE, BASE)
    assert finding.outcome is Outcome.BROKEN
    assert "slower: 1.0" in finding.reason
    assert "by 8 sessions against 8 sessions" in finding.reason
    assert "--update-baselines=all --why=" in finding.advice
    assert "error rates" in finding.advice


def test_a_faster_program_is_improved_and_not_broken() -> None:
    finding = found(0.9 * BASE, BASE)
    assert finding.outcome is Outcome.IMPROVED
    assert "accept it" in finding.advice


def test_sessions_that_scatter_are_too_noisy_to_say() -> None:
    finding = judge(CLAIM, stored(SCATTERED, FIRST))
    assert finding.outcome is Outcome.NOT_MEASURED
    assert "too noisy to say" in finding.reason


def test_a_slow_machine_is_no_slow_program() -> None:
    finding = judge(CLAIM, stored(taken(BASE, 7, speed=1.3), FIRST))
    assert finding.outcome is Outcome.NOT_MEASURED
    assert "slower by all calibration" in finding.reason
    assert judge(CLAIM, stored(taken(1.3 * BASE, 7), FIRST)).outcome is Outcome.BROKEN


def test_a_busy_machines_mean_does_not_decide() -> None:
    """Most samples take half as long again; the fastest of each session do not."""
    busy = [
        replace(
            each,
            judged=replace(
                each.judged,
                samples=tuple(
                    sample * (1.5 if place % 6 else 1.0)
                    for place, sample in enumerate(each.judged.samples)
                ),
            ),
        )
        for each in taken(BASE, 7)
    ]
    means = [sum(each.judged.samples) / 48 for each in (*busy, session(BASE, 5))]
    assert means[0] > 1.3 * means[-1]
    assert judge(CLAIM, stored(busy, FIRST)).outcome is not Outcome.BROKEN


@pytest.mark.parametrize(
    ("history", "slower"),
    [((BASE,), 1.3 * BASE), ([BASE * 1.012**day for day in range(8)], BASE * 1.012**8)],
    ids=["slower", "crept"],
)
def test_a_machine_so_busy_that_all_sessions_suffer_breaks_nothing(
    history: tuple[float, ...], slower: float
) -> None:
    points = [point(each, day, day=day) for day, each in enumerate(history, start=1)]
    verdicts = [
        judge(CLAIM, stored(taken(slower, 77, cores=2, load=load), *points)) for load in (5.9, 6.1)
    ]
    assert [each.outcome for each in verdicts] == [Outcome.BROKEN, Outcome.NOT_MEASURED]
    assert "too busy to say: got a load average of 6.1 on 2 cores" in verdicts[1].reason


@pytest.mark.parametrize(
    ("seconds", "outcome"), [(BASE, Outcome.KEPT), (0.8 * BASE, Outcome.IMPROVED)]
)
def test_a_busy_machine_makes_no_program_faster(seconds: float, outcome: Outcome) -> None:
    assert judge(CLAIM, stored(taken(seconds, 77, load=99.0), FIRST)).outcome is outcome


def test_a_machine_never_seen_is_not_measured_and_told_by_name() -> None:
    finding = judge(CLAIM, stored(taken(BASE, 7, 1), seen=False))
    assert finding.outcome is Outcome.NOT_MEASURED
    assert MACHINE.fingerprint in finding.reason
    assert "Fast CPU @ 3 GHz" in finding.reason
    assert "--update-baselines=new" in finding.advice


def test_a_missing_entry_on_a_known_machine_is_broken() -> None:
    finding = judge(CLAIM, stored(taken(BASE, 7, 1)))
    assert finding.outcome is Outcome.BROKEN
    assert "--update-baselines=new" in finding.advice


def test_a_newer_toolchains_times_are_no_baseline_for_an_older_one() -> None:
    newer = replace(FIRST, toolchain={"jax": "9", "jaxlib": "9"})
    assert judge(CLAIM, stored(taken(BASE, 7), newer)).outcome is Outcome.BROKEN


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [
        (BASE, Outcome.KEPT),
        (1.1 * BASE, Outcome.BROKEN),
        (0.9 * BASE, Outcome.IMPROVED),
    ],
)
def test_another_toolchain_is_held_against_the_nearest_older_one(
    seconds: float, outcome: Outcome
) -> None:
    oldest = point(2 * BASE, 1, toolchain={"jax": "0.8", "jaxlib": "0.8"})
    older = point(BASE, 2, day=2, toolchain={"jax": "0.9", "jaxlib": "0.9"}, anew=True)
    finding = judge(CLAIM, stored(taken(seconds, 7), oldest, older))
    assert finding.outcome is outcome
    assert "accepted on jax 0.9, jaxlib 0.9" in finding.reason
    assert ("--against 0.9" in finding.advice) is (outcome is Outcome.BROKEN)


def test_the_last_point_of_this_toolchain_is_the_one_that_counts() -> None:
    older = point(3 * BASE, 1, toolchain={"jax": "0.9", "jaxlib": "0.9"})
    finding = judge(CLAIM, stored(taken(BASE, 7), older, FIRST))
    assert finding.outcome is Outcome.KEPT
    assert "accepted on this toolchain" in finding.reason


CREEP = [BASE * 1.012**day for day in range(8)]


def test_a_history_that_drifts_is_broken_though_no_step_is() -> None:
    for before, after in itertools.pairwise(CREEP):
        assert found(after, before).outcome is not Outcome.BROKEN
    finding = found(CREEP[-1], *CREEP[:-1])
    assert finding.outcome is Outcome.BROKEN
    assert "crept: 1.0" in finding.reason
    assert "the oldest accepted (2026-11-01T12:00:00+00:00: day 1)" in finding.reason
    assert finding.limit == pytest.approx(CREEP[-2], rel=0.02)


def test_a_steady_history_is_kept() -> None:
    finding = found(BASE, *[BASE] * 7)
    assert finding.outcome is Outcome.KEPT, finding.reason


def test_what_was_accepted_as_a_change_is_no_creep() -> None:
    history = [point(BASE, 1), point(1.2 * BASE, 2, day=2, anew=True)]
    finding = judge(CLAIM, stored(taken(1.2 * BASE, 7), *history))
    assert finding.outcome is Outcome.KEPT, finding.reason
    unseen = [history[0], replace(history[1], anew=False)]
    finding = judge(CLAIM, stored(taken(1.2 * BASE, 7), *unseen))
    assert finding.outcome is Outcome.BROKEN
    assert "crept" in finding.reason


def test_a_machine_that_became_slower_in_the_meantime_makes_no_creep() -> None:
    history = [point(BASE, 1), point(BASE, 2, day=2, speed=1.2)]
    finding = judge(CLAIM, stored(taken(BASE, 7, speed=1.2), *history))
    assert finding.outcome is Outcome.KEPT, finding.reason
    slower = [point(BASE, 1), point(1.2 * BASE, 2, day=2)]
    assert judge(CLAIM, stored(taken(1.2 * BASE, 7), *slower)).outcome is Outcome.BROKEN


@pytest.mark.parametrize("turned", [{"unit": Unit.BYTES}, {"better": "more"}])
def test_a_metric_that_was_accepted_the_wrong_way_round_is_broken(turned: dict[str, str]) -> None:
    finding = judge(CLAIM, stored(taken(BASE, 7), FIRST, **turned))
    assert finding.outcome is Outcome.BROKEN
    assert "accepted-time (seconds, less is better) was accepted as" in finding.reason
    assert judge_twin(CLAIM, stored(taken(2 * BASE, 7), FIRST, **turned)).outcome is (
        Outcome.BROKEN
    )


def test_sessions_are_asked_for_until_they_decide() -> None:
    assert CLAIM.more_sessions(case()) == 1
    assert CLAIM.more_sessions(stored(taken(BASE, 7, 1), seen=False)) == 0
    assert CLAIM.more_sessions(stored(taken(BASE, 7, 1), FIRST)) == SESSION_LOOKS[0] - 1
    assert CLAIM.more_sessions(stored(taken(2 * BASE, 7, 4), FIRST)) == 0
    noisy = tuple(session(BASE * (1 + 0.1 * k), k) for k in range(4))
    assert CLAIM.more_sessions(stored(noisy, FIRST)) == SESSION_LOOKS[1] - SESSION_LOOKS[0]


def test_a_session_has_the_samples_that_the_error_rates_were_measured_with() -> None:
    enough = CLAIM.turns(case()).enough
    assert not enough((), [0.01] * 47)
    assert enough((), [0.01] * 48)
    assert not enough((), [0.001] * 299)
    assert CLAIM.turns(case()).most == 300


HEATED = (*taken(BASE, 1, 4), *taken(BASE, 2, 4, speed=1.2))


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (taken(BASE, 7), ""),
        (taken(BASE, 7, FEWEST_ACCEPTED - 1), "got 7 sessions"),
        (SCATTERED, "quieten the machine"),
        (HEATED, "slower by all calibration; let the machine cool"),
        (taken(BASE, 7, throttles=2), "slowed down for heat 16 times"),
        (taken(BASE, 7, load=25.0), "load average of 25.0 on 8 cores"),
    ],
    ids=["quiet", "few", "noisy", "slowing down", "throttled", "busy"],
)
def test_a_baseline_is_refused_on_a_noisy_or_throttled_machine(new: tuple, why: str) -> None:  # type: ignore[type-arg]
    refused = CLAIM.why_refused(stored(new))
    assert why in refused
    assert bool(refused) is bool(why)


def _last(**fields: object) -> Case:
    last = replace(session(BASE, 9), **fields)  # type: ignore[arg-type]
    return stored((*taken(BASE, 7, 3), last), FIRST)


FEW = ArmTimes(arm="offload", first=4.0, samples=(4.0,) * 3)


@pytest.mark.parametrize(
    ("broken", "outcome", "said"),
    [
        (
            _last(failure=Failure(kind=FailureKind.CRASH, message="SIGABRT")),
            Outcome.BROKEN,
            "nothing to time: the program takes its process down: SIGABRT",
        ),
        (_last(unavailable=Unavailable(reason="it runs nothing")), Outcome.CANNOT_RUN, "nothing"),
        (_last(judged=FEW, ended=Ending.SECONDS), Outcome.NOT_MEASURED, "the first run took 4 s"),
        (
            _last(judged=replace(FEW, samples=()), ended=Ending.BELOW_CLOCK),
            Outcome.NOT_MEASURED,
            "too short for this machine's clock",
        ),
        (case(), Outcome.ERROR, "got no sessions of 'offload'"),
        (replace(_last(), history=None), Outcome.ERROR, "got no history of 'offload'"),
    ],
    ids=["crash", "cannot run", "seconds", "clock", "no sessions", "no history"],
)
def test_what_was_not_timed_is_no_pass(broken: Case, outcome: Outcome, said: str) -> None:
    finding = judge(CLAIM, broken)
    assert finding.outcome is outcome
    assert said in finding.reason


def test_how_much_change_matters_is_the_claims_to_say() -> None:
    tolerant = claims.AcceptedTime(least_change=0.2, seen_change=0.5)
    assert judge(tolerant, stored(taken(1.1 * BASE, 7), FIRST)).outcome is Outcome.KEPT
    assert judge(tolerant, stored(taken(2 * BASE, 7), FIRST)).outcome is Outcome.BROKEN
