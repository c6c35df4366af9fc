"""Times change only beyond noise, and noise alone changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from assay.stats.change_points import (
    ERRORS,
    SHORTEST,
    change_points,
    probability_of_ranks,
)
from assay.stats.ratios import Floats

NIGHTS = 200
SERIES = 300
Noise = Callable[[np.random.Generator, int], Floats]


def normal(chance: np.random.Generator, count: int) -> Floats:
    return 1 + chance.normal(0, 0.01, count)


def heavy_tailed(chance: np.random.Generator, count: int) -> Floats:
    return 1 + 0.01 * chance.standard_t(2, count)


def skewed(chance: np.random.Generator, count: int) -> Floats:
    return np.exp(chance.exponential(0.03, count))


def with_outliers(chance: np.random.Generator, count: int) -> Floats:
    return normal(chance, count) * np.where(chance.random(count) < 0.03, 10, 1)


def with_steps_of_a_clock(chance: np.random.Generator, count: int) -> Floats:
    return np.round(normal(chance, count), 2)


NOISES = [normal, heavy_tailed, skewed, with_outliers, with_steps_of_a_clock]


def found(numbers: Sequence[float]) -> list[int]:
    (cuts,) = change_points([numbers])
    return cuts


def test_a_ratio_that_repeats_changes_after_some_nights() -> None:
    assert found([0.25] * 10 + [0.3] * 5) == [10]
    assert found([0.25] * 10 + [0.3] * 2) == []
    assert found([0.25] * 10) == []


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("nights", [12, 40, NIGHTS])
def test_noise_alone_has_no_change_point(noise: Noise, nights: int) -> None:
    series = [noise(np.random.default_rng(seed), nights).tolist() for seed in range(SERIES)]
    assert sum(map(bool, change_points(series))) <= ERRORS * SERIES


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("factor", [1.5, 0.5])
def test_a_step_is_found_where_it_is(noise: Noise, factor: float) -> None:
    for seed in range(20):
        numbers = noise(np.random.default_rng(seed), NIGHTS)
        numbers[150:] *= factor
        (place,) = found(numbers)
        assert abs(place - 150) <= 3


def test_a_step_of_the_last_nights_is_found() -> None:
    numbers = normal(np.random.default_rng(1), 60)
    numbers[-3:] *= 1.2
    assert found(numbers) == [57]


def test_fewer_nights_than_a_segment_are_no_change() -> None:
    numbers = normal(np.random.default_rng(1), 60)
    numbers[-(SHORTEST - 1) :] *= 10
    assert found(numbers) == []
    assert found([1.0, 1.1, 3.0, 3.1, 3.2]) == []


def test_a_slow_week_has_a_start_and_an_end() -> None:
    numbers = normal(np.random.default_rng(2), NIGHTS)
    numbers[90:97] *= 1.1
    assert found(numbers) == [90, 97]


def test_several_levels_are_told_apart() -> None:
    numbers = normal(np.random.default_rng(3), 90)
    numbers[30:60] *= 1.5
    numbers[60:] *= 2.0
    assert found(numbers) == [30, 60]


def test_a_change_that_is_too_small_to_matter_is_none() -> None:
    numbers = 1 + np.random.default_rng(4).normal(0, 0.001, NIGHTS)
    numbers[100:] *= 1.015
    assert found(numbers) == []
    numbers[100:] *= 1.015
    assert found(numbers) == [100]


def test_a_series_does_not_depend_on_those_next_to_it() -> None:
    chance = np.random.default_rng(5)
    series = [normal(chance, count) * (1 + (np.arange(count) >= 20)) for count in (30, 90, 4, 60)]
    assert change_points(series) == [found(numbers) for numbers in series]
    assert change_points(series) == [[20], [20], [], [20]]
    assert change_points([]) == []


@pytest.mark.parametrize("decimals", [9, 1])
def test_the_probability_of_ranks_is_that_of_scipy(decimals: int) -> None:
    chance = np.random.default_rng(6)
    for few, many in product((3, 5, 8, 9, 40), (3, 8, 30, 200)):
        for shift in (0, 1, 4, -9):
            first, second = chance.normal(0, 1, few), shift + chance.normal(0, 1, many)
            first, second = np.round(first, decimals), np.round(second, decimals)
            wanted = mannwhitneyu(first, second).pvalue
            assert probability_of_ranks(first, second) == pytest.approx(wanted, rel=1e-6)
    assert probability_of_ranks(np.ones(3), np.ones(4)) == 1.0
