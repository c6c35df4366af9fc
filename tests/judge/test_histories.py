"""New sessions against a whole history: false alarms are rare, creep is found, changes are not."""

from collections.abc import Sequence

import pytest

from assay.judge.changes import Change
from assay.judge.histories import (
    has_crept,
    judged_sessions,
    known,
    sessions_of,
    since_last_change,
    standing,
    why_refused,
)
from assay.model.history import AcceptedTimes, kept_session
from tests.claims.sessions import point, taken

BASE = 0.01
SEEDS = range(25)


def history(values: Sequence[float], seed: int) -> list[AcceptedTimes]:
    return [point(value, 100 * seed + day, day=day) for day, value in enumerate(values, start=1)]


def crept(values: Sequence[float], new: float, seed: int, count: int = 8) -> bool:
    points = history(values, seed)
    sessions = judged_sessions(taken(new, 100 * seed + 99, count))
    return has_crept(standing(sessions, points[-1], points))


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("length", [2, 9])
def test_a_steady_history_is_not_called_creep(length: int, count: int) -> None:
    assert sum(crept([BASE] * length, BASE, seed, count) for seed in SEEDS) == 0


@pytest.mark.parametrize("step", [1.01, 1.015])
def test_many_small_steps_are_called_creep(step: float) -> None:
    values = [BASE * step**day for day in range(9)]
    assert sum(crept(values[:-1], values[-1], seed) for seed in SEEDS) >= 24


def test_a_history_that_became_faster_is_no_creep() -> None:
    values = [BASE / 1.012**day for day in range(9)]
    assert not any(crept(values[:-1], values[-1], seed) for seed in SEEDS)


def test_one_point_alone_is_no_history() -> None:
    (only,) = history([BASE], 1)
    found = standing(judged_sessions(taken(BASE, 7)), only, [only])
    assert (found.crept, found.oldest) == (None, None)
    assert found.ratio.change is Change.SAME


def test_creep_is_measured_from_the_last_change_that_was_accepted_as_one() -> None:
    first, second, third = history([BASE] * 3, 1)
    assert since_last_change([first, second, third]) == [first, second, third]
    changed = point(BASE, 5, day=2, anew=True)
    assert since_last_change([first, changed, third]) == [changed, third]
    assert since_last_change([]) == []


def test_the_clearest_change_wins_over_creep() -> None:
    points = history([BASE, 1.01 * BASE], 3)
    slower = standing(judged_sessions(taken(1.2 * BASE, 7)), points[-1], points)
    assert slower.ratio.change is Change.SLOWER
    assert not has_crept(slower)


def test_how_well_a_floor_is_known_grows_with_what_sessions_differ_by() -> None:
    calm = known(judged_sessions(taken(BASE, 7)))
    assert calm.value == pytest.approx(BASE, rel=0.02)
    assert 0 < calm.error < 0.01
    wild = [kept_session(taken(BASE * (1 + 0.03 * k), k, 1)[0]) for k in range(8)]
    assert known(sessions_of(point(BASE, 1, sessions=tuple(wild)))).error > 3 * calm.error


def test_a_processor_that_slowed_down_for_heat_makes_no_baseline() -> None:
    cool = taken(BASE, 7, throttles=0)
    assert why_refused(cool) == ""
    (hot,) = taken(BASE, 8, 1, throttles=3)
    assert "slowed down for heat 3 times" in why_refused([*cool, hot])


def test_a_machine_that_counts_no_heat_is_not_refused_for_it() -> None:
    assert why_refused(taken(BASE, 7, throttles=None)) == ""


def test_sessions_that_were_disturbed_alike_are_refused_by_the_load_alone() -> None:
    assert why_refused(taken(BASE, 7, cores=2, load=5.9)) == ""
    refused = why_refused(taken(BASE, 7, cores=2, load=6.1))
    assert refused == (
        "got a load average of 6.1 on 2 cores, wanted at most 6: let nothing else run"
    )
    assert why_refused(taken(BASE, 7, cores=64, load=6.1)) == ""
    assert why_refused(taken(BASE, 7, load=None)) == ""


def test_one_busy_moment_among_eight_sessions_refuses_nothing() -> None:
    quiet = taken(BASE, 7, 7, cores=2, load=1.0)
    assert why_refused([*quiet, *taken(BASE, 8, 1, cores=2, load=20.0)]) == ""
