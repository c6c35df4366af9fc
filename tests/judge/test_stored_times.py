"""Against a stored number: a slow machine, a busy one and a slow program are three things."""

import re

import numpy as np
import pytest

from assay.judge.changes import Better, Change
from assay.judge.stored_times import (
    FEWEST_ACCEPTED,
    SESSION_LOOKS,
    Session,
    dividing_calibration,
    machine_moved,
    more_sessions,
    ratio_to_stored,
    why_not_accepted,
)
from tests.judge.noisy import level

KINDS = {"matmul": 1e-3, "copy": 5e-4, "dispatch": 3e-5}


def sessions(
    seconds: float,
    seed: int,
    *,
    count: int = FEWEST_ACCEPTED,
    speeds: tuple[float, ...] = (1.0,),
    kinds: tuple[str, ...] = tuple(KINDS),
    spread: float = 0.004,
    busy: float = 0.3,
) -> list[Session]:
    """Sessions of a program, on a machine whose speed goes round ``speeds``: more is slower.

    Only the named ``kinds`` of calibration feel it; ``spread`` is what processes differ by.
    """
    chance = np.random.default_rng(seed)
    found = []
    for k in range(count):
        speed, own = speeds[k % len(speeds)], float(np.exp(chance.normal(0, spread)))
        calibration = {
            kind: level(at * (speed if kind in kinds else 1.0), 31 * seed + k, count=20).tolist()
            for kind, at in KINDS.items()
        }
        samples = level(seconds * speed * own, 97 * seed + k, busy=busy).tolist()
        found.append(Session(samples=samples, calibration=calibration))
    return found


def sequential(new: list[Session], accepted: list[Session]) -> Change:
    taken = SESSION_LOOKS[0]
    while more := more_sessions(new[:taken], accepted):
        taken += more
    return ratio_to_stored(new[:taken], accepted).change


def test_a_program_is_no_slower_than_its_own_baseline_at_another_time() -> None:
    verdicts = [
        sequential(sessions(0.01, 2 * seed), sessions(0.01, 2 * seed + 1)) for seed in range(50)
    ]
    assert set(verdicts) <= {Change.SAME, Change.TOO_NOISY}
    assert verdicts.count(Change.SAME) >= 40


def test_five_per_cent_more_than_the_baseline_is_found() -> None:
    verdicts = [
        sequential(sessions(0.0105, 2 * seed), sessions(0.01, 2 * seed + 1)) for seed in range(50)
    ]
    assert verdicts.count(Change.SLOWER) >= 45


def test_a_busy_machine_makes_no_slower_program() -> None:
    new, accepted = sessions(0.01, 1, busy=0.9), sessions(0.01, 2, busy=0.1)
    medians = [np.median([s for each in side for s in each.samples]) for side in (new, accepted)]
    assert medians[0] > 1.2 * medians[1]
    assert ratio_to_stored(new, accepted).change is not Change.SLOWER


def test_a_slow_machine_is_told_from_a_slow_program() -> None:
    accepted = sessions(0.01, 3)
    throttled = ratio_to_stored(sessions(0.01, 4, speeds=(1.3,)), accepted)
    assert throttled.change is Change.TOO_NOISY
    assert throttled.reason.endswith("slower by all calibration")
    assert throttled.low > 1.2
    slower = ratio_to_stored(sessions(0.013, 4), accepted)
    assert (slower.change, slower.reason) == (Change.SLOWER, "")


def test_a_fast_machine_makes_no_faster_program() -> None:
    found = ratio_to_stored(sessions(0.01, 4, speeds=(0.7,)), sessions(0.01, 3))
    assert found.change is Change.TOO_NOISY
    assert found.reason.endswith("faster by all calibration")


def test_one_kind_of_calibration_alone_moves_no_machine() -> None:
    slow_copies = sessions(0.01, 5, speeds=(1.3,), kinds=("copy",))
    assert machine_moved(slow_copies, sessions(0.01, 6)) == ""
    assert machine_moved(sessions(0.01, 5, speeds=(1.3,)), sessions(0.01, 6))


def test_calibration_divides_only_where_that_narrows_the_spread() -> None:
    changing = sessions(0.01, 7, speeds=(1.0, 1.2, 0.9, 1.1))
    assert dividing_calibration(changing) in KINDS
    assert dividing_calibration(sessions(0.01, 8)) == ""


def test_on_a_machine_whose_speed_changes_division_tells_the_program_from_it() -> None:
    speeds = (1.0, 1.2, 0.9, 1.1)
    accepted = sessions(0.01, 9, speeds=speeds)
    later = {"speeds": (1.15, 1.05, 1.3, 1.2)}
    assert ratio_to_stored(sessions(0.01, 10, **later), accepted).change is Change.SAME
    assert ratio_to_stored(sessions(0.0108, 10, **later), accepted).change is Change.SLOWER


def test_a_throughput_that_rises_is_no_regression() -> None:
    new, accepted = sessions(0.012, 11), sessions(0.01, 12)
    assert ratio_to_stored(new, accepted).change is Change.SLOWER
    assert ratio_to_stored(new, accepted, better=Better.MORE).change is Change.FASTER


def test_a_baseline_taken_in_peace_is_accepted() -> None:
    assert [why_not_accepted(sessions(0.01, seed)) for seed in range(20)].count("") >= 19


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (sessions(0.01, 13, count=7), "got 7 sessions, wanted at least 8; take more"),
        (
            [Session(samples=each.samples, calibration={}) for each in sessions(0.01, 14)],
            "got no calibration in every session",
        ),
        (sessions(0.01, 15, spread=0.2), "floors differ by .* wanted less .* quieten"),
        (
            sessions(0.01, 16, speeds=(1.0, 1.0, 1.0, 1.0, 1.25, 1.25, 1.25, 1.25)),
            "second, the machine is at least .* slower by all calibration; let the machine cool",
        ),
    ],
    ids=["few", "no calibration", "noisy", "throttled"],
)
def test_a_baseline_is_refused_with_the_reason(refused: list[Session], said: str) -> None:
    assert re.search(said, why_not_accepted(refused))


def test_the_unit_of_time_changes_nothing() -> None:
    new, accepted = sessions(0.0103, 17), sessions(0.01, 18)
    scaled = [
        [
            Session(
                samples=[1024 * s for s in each.samples],
                calibration={
                    kind: [1024 * s for s in samples] for kind, samples in each.calibration.items()
                },
            )
            for each in side
        ]
        for side in (new, accepted)
    ]
    one, other = ratio_to_stored(new, accepted), ratio_to_stored(*scaled)
    assert (other.low, other.high) == pytest.approx((one.low, one.high))
    assert other.change is one.change


def test_the_order_of_sessions_changes_nothing() -> None:
    new, accepted = sessions(0.0103, 19), sessions(0.01, 20)
    assert ratio_to_stored(new[::-1], accepted[::-1]) == ratio_to_stored(new, accepted)


def test_sessions_are_started_until_they_decide() -> None:
    accepted = sessions(0.01, 21)
    assert more_sessions([], accepted) == SESSION_LOOKS[0]
    assert more_sessions(sessions(0.02, 22, count=4), accepted) == 0
    noisy = sessions(0.01, 23, spread=0.3)
    assert more_sessions(noisy[:4], accepted) == SESSION_LOOKS[1] - 4
    assert more_sessions(noisy[:8], accepted) == 0


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ([], "got 0 sessions, wanted at least 2; take more"),
        (sessions(0.01, 24, count=1), "got 1 sessions, wanted at least 2"),
        (
            [Session(samples=[0.01] * 9, calibration={})] * 3,
            "got 9 samples of a session, wanted at least 10",
        ),
        (
            [Session(samples=[0.01] * 9 + [0.0], calibration={})] * 3,
            "got 0.0 among samples of a session, wanted positive",
        ),
    ],
)
def test_what_is_no_session_is_refused(new: list[Session], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ratio_to_stored(new, sessions(0.01, 25))
