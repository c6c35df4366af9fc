"""Many small steps, each within what is called the same, are one large change."""

import itertools

import pytest

from assay.judge.changes import Better, Change, Sensitivity
from assay.judge.creep import Accepted, creep


def history(*values: float, error: float = 0.004) -> list[Accepted]:
    return [Accepted(value=value, error=error) for value in values]


RISING = [10.0 * 1.015**step for step in range(8)]


def test_a_baseline_that_drifts_is_found_though_no_step_is() -> None:
    steps = [creep(history(*pair)).change for pair in itertools.pairwise(RISING)]
    assert Change.SLOWER not in steps
    assert creep(history(*RISING)).change is Change.SLOWER


def test_a_steady_history_is_the_same() -> None:
    steady = [10.0, 10.03, 9.98, 10.01, 9.99, 10.02, 10.0, 10.01]
    found = creep(history(*steady))
    assert found.change is Change.SAME
    assert found.trend is not None
    assert found.trend.change is Change.SAME


def test_a_last_number_that_steps_back_hides_no_trend() -> None:
    found = creep(history(*RISING, 10.2, error=0.01))
    assert found.since_oldest.change is not Change.SLOWER
    assert found.trend is not None
    assert found.trend.change is Change.SLOWER
    assert found.change is Change.SLOWER


def test_numbers_known_badly_decide_nothing_by_their_ends() -> None:
    assert creep(history(10.0, 10.5, error=0.004)).change is Change.SLOWER
    assert creep(history(10.0, 10.5, error=0.05)).change is Change.TOO_NOISY


def test_a_trend_takes_enough_numbers() -> None:
    assert creep(history(*RISING[:5])).trend is None
    assert creep(history(*RISING[:6])).trend is not None


def test_a_throughput_that_rises_slowly_is_no_regression() -> None:
    assert creep(history(*RISING), better=Better.MORE).change is Change.FASTER
    assert creep(history(*RISING[::-1]), better=Better.MORE).change is Change.SLOWER


def test_one_wild_number_makes_no_trend() -> None:
    found = creep(history(10.0, 10.01, 30.0, 9.99, 10.0, 10.02, 10.0, 9.99))
    assert found.change is Change.SAME


def test_how_much_creep_matters_is_the_callers_to_say() -> None:
    tolerant = Sensitivity(least=0.2, seen=0.3)
    assert creep(history(*RISING), tolerant).change is Change.SAME


@pytest.mark.parametrize("values", [(), (10.0,)])
def test_one_number_is_no_history(values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="accepted numbers, wanted at least 2"):
        creep(history(*values))


def test_a_number_that_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got 0\.0 among accepted numbers"):
        creep(history(10.0, 0.0))
