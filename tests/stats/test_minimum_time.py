"""The minimum time: reached again and again, however busy the machine."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.ratios import Floats, block_minima, minimum_time_interval


def drawn(first: Floats, second: Floats, errors: float, draws: int) -> tuple[float, float]:
    """The same bootstrap, with dice."""
    chance = np.random.default_rng(0)
    sides = [chance.choice(side, (200_000, draws)).min(axis=1) for side in (second, first)]
    low, high = np.quantile(sides[0] - sides[1], [errors / 2, 1 - errors / 2])
    return float(low), float(high)


@pytest.mark.parametrize(("ours", "theirs"), [(8, 8), (10, 4), (4, 10)])
def test_the_interval_is_the_bootstraps(ours: int, theirs: int) -> None:
    chance = np.random.default_rng(1)
    first, second = chance.exponential(0.1, ours), chance.exponential(0.1, theirs) + 0.05
    expected = drawn(first, second, 0.1, min(ours, theirs))
    assert minimum_time_interval(first, second, 0.1) == pytest.approx(expected, abs=1e-9)


def test_disturbed_stretches_move_no_minimum() -> None:
    first = np.array([0.0, 0.001, 0.0, 0.002, 0.001, 0.0, 0.0, 0.001])
    second = first + np.array([0.0, 0.7, 0.7, 0.0, 0.0, 0.7, 0.0, 0.7])
    low, high = minimum_time_interval(first, second, 0.05)
    assert -0.01 < low <= 0 <= high < 0.01


def test_a_slower_minimum_is_seen_under_disturbance() -> None:
    first = np.array([0.0, 0.7, 0.0, 0.002, 0.7, 0.0, 0.0, 0.001])
    assert minimum_time_interval(first, first[::-1] + 0.05, 0.05)[0] > 0.04


def test_a_minimum_reached_once_only_is_not_trusted() -> None:
    first = np.array([0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    low, high = minimum_time_interval(first, first, 0.05)
    assert low < -0.3
    assert high > 0.3


def test_so_few_stretches_that_chance_parts_them_have_no_bounds() -> None:
    """All three above all three: one time in ten, of two sides that do not differ."""
    first = np.array([0.0, 0.001, 0.002])
    assert minimum_time_interval(first, first + 0.1, 0.05) == (-math.inf, math.inf)
    assert minimum_time_interval(first, first + 0.1, 0.1)[0] > 0.09


logs = st.lists(st.integers(-100, 100), min_size=2, max_size=12).map(lambda a: np.array(a) / 64)


@given(logs, logs)
def test_swapping_the_sides_mirrors_the_interval(first: Floats, second: Floats) -> None:
    low, high = minimum_time_interval(first, second, 0.05)
    assert minimum_time_interval(second, first, 0.05) == (-high, -low)


@given(logs, logs, st.randoms())
def test_the_order_of_stretches_changes_nothing(
    first: Floats, second: Floats, chance: np.random.Generator
) -> None:
    shuffled = first.tolist()
    chance.shuffle(shuffled)
    assert minimum_time_interval(np.array(shuffled), second, 0.1) == minimum_time_interval(
        first, second, 0.1
    )


def test_blocks_are_of_neighbours_and_lose_no_sample() -> None:
    assert block_minima(np.array([3.0, 1.0, 4.0, 2.0]), 2).tolist() == [1.0, 2.0]
    assert block_minima(np.array([3.0, 1.0, 4.0, 2.0, 0.0]), 2).tolist() == [1.0, 0.0]
    assert block_minima(np.array([3.0]), 2).tolist() == [3.0]
