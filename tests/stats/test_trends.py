"""Bytes change where they differ, and verdicts where runs say something else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.history import Sample, SeriesName, Trend
from assay.model.units import Unit
from assay.model.verdict import Outcome
from assay.stats.trends import differences, with_changes


@given(st.lists(st.integers(0, 3)))
def test_bytes_change_exactly_where_they_differ(numbers: list[int]) -> None:
    differ = [index for index, (one, two) in enumerate(pairwise(numbers), 1) if one != two]
    assert differences(numbers) == differ


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
        for each in with_changes([trend])[0].changes
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


def test_each_series_is_judged_by_its_own_unit() -> None:
    numbers = [(PASSED, 1.0)] * 9 + [(PASSED, 2.0)]
    trends = [trend_of(*numbers, unit=unit) for unit in (Unit.SECONDS, Unit.BYTES, Unit.RATIO)]
    assert [len(each.changes) for each in with_changes(trends)] == [0, 1, 0]
    late = [(PASSED, 1.0)] * 9 + [(PASSED, 2.0)] * 9
    trends = [trend_of(*late, unit=Unit.SECONDS), trend_of(*numbers, unit=Unit.RATIO)]
    assert [len(each.changes) for each in with_changes(trends)] == [1, 0]
