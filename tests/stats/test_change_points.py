"""Bytes change where they differ, times only beyond noise, and noise alone changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.history import Sample, SeriesName, Trend
from assay.model.units import Unit
from assay.model.verdict import Outcome
from assay.stats.change_points import ERRORS, SHORTEST, change_points, with_changes
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


@given(st.lists(st.integers(0, 3)))
def test_bytes_change_exactly_where_they_differ(numbers: list[int]) -> None:
    differ = [index for index, (one, two) in enumerate(pairwise(numbers), 1) if one != two]
    assert change_points(numbers, is_exact=True) == differ


def test_a_ratio_that_repeats_changes_after_some_nights() -> None:
    assert change_points([0.25] * 10 + [0.3] * 5, is_exact=False) == [10]
    assert change_points([0.25] * 10 + [0.3] * 2, is_exact=False) == []
    assert change_points([0.25] * 10, is_exact=False) == []


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("nights", [12, 40, NIGHTS])
def test_noise_alone_has_no_change_point(noise: Noise, nights: int) -> None:
    changed = sum(
        bool(change_points(noise(np.random.default_rng(seed), nights), is_exact=False))
        for seed in range(SERIES)
    )
    assert changed <= ERRORS * SERIES


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("factor", [1.5, 0.5])
def test_a_step_is_found_where_it_is(noise: Noise, factor: float) -> None:
    for seed in range(20):
        numbers = noise(np.random.default_rng(seed), NIGHTS)
        numbers[150:] *= factor
        (found,) = change_points(numbers, is_exact=False)
        assert abs(found - 150) <= 3


def test_a_step_of_the_last_nights_is_found() -> None:
    numbers = normal(np.random.default_rng(1), 60)
    numbers[-3:] *= 1.2
    assert change_points(numbers, is_exact=False) == [57]


def test_fewer_nights_than_a_segment_are_no_change() -> None:
    numbers = normal(np.random.default_rng(1), 60)
    numbers[-(SHORTEST - 1) :] *= 10
    assert change_points(numbers, is_exact=False) == []
    assert change_points([1.0, 1.1, 3.0, 3.1, 3.2], is_exact=False) == []


def test_a_slow_week_has_a_start_and_an_end() -> None:
    numbers = normal(np.random.default_rng(2), NIGHTS)
    numbers[90:97] *= 1.1
    assert change_points(numbers, is_exact=False) == [90, 97]


def test_several_levels_are_told_apart() -> None:
    numbers = normal(np.random.default_rng(3), 90)
    numbers[30:60] *= 1.5
    numbers[60:] *= 2.0
    assert change_points(numbers, is_exact=False) == [30, 60]


def test_a_change_that_is_too_small_to_matter_is_none() -> None:
    numbers = 1 + np.random.default_rng(4).normal(0, 0.001, NIGHTS)
    numbers[100:] *= 1.015
    assert change_points(numbers, is_exact=False) == []
    numbers[100:] *= 1.015
    assert change_points(numbers, is_exact=False) == [100]


def trend_of(*seen: tuple[Outcome, float | None], unit: Unit = Unit.BYTES) -> Trend:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    return Trend(
        name=SeriesName("suite", "stack", "offload", "temp-bytes", "cpu:8"),
        unit=unit,
        samples=tuple(
            Sample(f"run-{day}", start + timedelta(days=day), verdict, measured, None, "", {})
            for day, (verdict, measured) in enumerate(seen)
        ),
    )


def changes(trend: Trend) -> list[tuple[str, str, object, object]]:
    return [
        (each.before.run, each.after.run, each.levels, each.verdicts)
        for each in with_changes(trend).changes
    ]


PASSED, FAILED, UNSURE = Outcome.PASSED, Outcome.FAILED, Outcome.INCONCLUSIVE


def test_a_change_names_the_runs_the_levels_and_the_verdicts() -> None:
    trend = trend_of((PASSED, 1), (PASSED, 1), (FAILED, 3), (FAILED, 3), (FAILED, 4))
    assert changes(trend) == [
        ("run-1", "run-2", (1, 3), (PASSED, FAILED)),
        ("run-3", "run-4", (3, 4), None),
    ]


def test_a_run_that_measured_nothing_hides_no_change() -> None:
    trend = trend_of((PASSED, 1), (Outcome.ERROR, None), (PASSED, 2))
    assert changes(trend) == [
        ("run-0", "run-1", None, (PASSED, Outcome.ERROR)),
        ("run-0", "run-2", (1, 2), None),
        ("run-1", "run-2", None, (Outcome.ERROR, PASSED)),
    ]


def test_an_inconclusive_run_changes_no_verdict() -> None:
    trend = trend_of((PASSED, None), (UNSURE, None), (PASSED, None), (UNSURE, None), (FAILED, None))
    assert changes(trend) == [("run-2", "run-4", None, (PASSED, FAILED))]


@pytest.mark.parametrize("seen", [(), ((PASSED, 1),), ((PASSED, None), (PASSED, None))])
def test_a_series_that_says_nothing_else_has_no_change(
    seen: tuple[tuple[Outcome, float | None], ...],
) -> None:
    assert changes(trend_of(*seen)) == []
    assert changes(trend_of(*seen, unit=Unit.SECONDS)) == []
