"""The search over releases finds the step with few measurements, and invents none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.bisection import Point, Progress, Step
from assay.toolchains.metrics import SAME
from assay.toolchains.search import Search, Watch


def search(
    numbers: Sequence[float | None], watch: Watch = lambda *_: None, **options: Any
) -> tuple[tuple[Point, ...], tuple[Step, ...]]:
    versions = [str(each) for each in range(len(numbers))]
    asked: list[str] = []

    def measure(version: str) -> Point:
        assert version not in asked, "each release is measured once"
        asked.append(version)
        number = numbers[int(version)]
        return Point(version=version, number=number, why="" if number is not None else "broken")

    return Search(versions=versions, measure=measure, same=SAME, watch=watch, **options).run()


STEPS = st.integers(2, 80).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1)))


@given(STEPS)
def test_a_single_step_is_found_in_log2_measurements(case: tuple[int, int]) -> None:
    releases, at = case
    points, steps = search([0.0] * at + [7.0] * (releases - at))
    assert [(each.before.version, each.after.version) for each in steps] == [(str(at - 1), str(at))]
    assert steps[0].unmeasured == 0
    assert len(points) <= 2 + ceil(log2(releases - 1))


@given(case=STEPS, good_is_newer=st.booleans(), threshold=st.sampled_from([None, 3.0]))
def test_one_end_less_is_measured_if_no_step_is_larger(
    *, case: tuple[int, int], good_is_newer: bool, threshold: float | None
) -> None:
    releases, at = case
    points, steps = search(
        [0.0] * at + [7.0] * (releases - at),
        any_step=True,
        threshold=threshold,
        start=releases - 1 if good_is_newer else 0,
    )
    assert [(each.before.version, each.after.version) for each in steps] == [(str(at - 1), str(at))]
    assert len(points) <= 1 + ceil(log2(releases))


@pytest.mark.parametrize("start", [0, 39])
def test_forty_releases_need_seven_environments(start: int) -> None:
    for at in range(1, 40):
        points, steps = search([0] * at + [1] * (40 - at), any_step=True, start=start)
        assert steps[0].after.version == str(at)
        assert len(points) <= 7


@pytest.mark.parametrize("start", [0, 39])
@pytest.mark.parametrize(("low", "high", "most"), [(0, 9, 7), (4, 8, 7), (5, 8, 8)])
def test_the_largest_of_forty_needs_seven_if_it_doubles(
    start: int, low: int, high: int, most: int
) -> None:
    for at in range(1, 40):
        numbers = [low] * at + [high] * (40 - at)
        points, steps = search(numbers if start else numbers[::-1], floor=0.0, start=start)
        assert steps[0].after.version == str(at if start else 40 - at)
        assert len(points) <= most


@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=30), st.integers(1, 1000), st.integers(0, 99)
)
def test_the_largest_step_down_to_an_unmeasured_end_is_found(
    rises: list[int], large: int, floor: int
) -> None:
    numbers, total = [], 0
    for each in [floor, *rises, large + 5 * len(rises), *rises]:
        total += each
        numbers.append(float(total))
    _, steps = search(numbers, floor=0.0, start=len(numbers) - 1)
    assert steps[0].after.version == str(len(rises) + 1)
    assert steps[0].unmeasured == 0


@pytest.mark.parametrize(
    ("numbers", "after"),
    [([0, 95, 95, 95, 100, 100, 100], "1"), ([900, 300, 300, 200, 200, 200, 200], "1")],
)
def test_a_larger_step_next_to_the_unmeasured_end_is_not_missed(
    numbers: list[float], after: str
) -> None:
    _, steps = search(numbers, floor=0.0, start=6)
    assert steps[0].after.version == after


def test_releases_without_a_number_ask_for_the_other_end_at_once() -> None:
    points, steps = search([None] * 20 + [7.0] * 10, floor=0.0, start=29)
    assert [each.number for each in points] == [None, None, 7.0]
    assert points[0].version == "0"
    assert steps == ()


@given(st.integers(2, 80), st.sampled_from([0, -1]))
def test_no_change_is_sure_only_after_the_other_end(releases: int, end: int) -> None:
    start = range(releases)[end]
    points, steps = search([1.0] * releases, any_step=True, start=start)
    assert steps == ()
    assert {"0", str(releases - 1)} <= {point.version for point in points}


def test_a_larger_step_at_the_other_end_is_not_missed() -> None:
    _, steps = search([1, 1, 2, 2, 2, 2, 2, 2, 100])
    assert steps[0].after.version == "8"


@given(case=STEPS, any_step=st.booleans())
def test_what_is_known_is_true_and_ends_with_nothing_left(
    *, case: tuple[int, int], any_step: bool
) -> None:
    releases, at = case
    known: list[Progress] = []
    lefts: list[int] = []

    def watch(_: str, point: Point | None, progress: Progress | None) -> None:
        if point is not None and progress is not None:
            known.append(progress)
            lefts.append(progress.left)

    search([0.0] * at + [7.0] * (releases - at), watch, any_step=any_step)
    for each in known:
        assert not each.after or int(each.after) < at
        assert not each.until or int(each.until) >= at
    assert lefts[-1] == 0
    assert all(new < old for old, new in pairwise(lefts))


@given(st.lists(st.integers(0, 5), min_size=2, max_size=30), st.integers(1, 1000))
def test_the_largest_step_of_a_rising_number_is_found(rises: list[int], large: int) -> None:
    numbers, total = [], 0
    for each in [*rises, large + 5 * len(rises), *rises]:
        total += each
        numbers.append(float(total))
    _, steps = search(numbers)
    assert steps[0].after.version == str(len(rises))
    assert steps[0].unmeasured == 0


def test_a_release_without_a_number_is_skipped_and_named() -> None:
    _, steps = search([1, 1, None, None, 5, 5])
    assert (steps[0].before.version, steps[0].after.version) == ("1", "4")
    assert [each.version for each in steps[0].skipped] == ["2", "3"]


def test_an_end_without_a_number_ends_the_search() -> None:
    points, steps = search([1, 1, 1, None])
    assert [each.version for each in points] == ["0", "3"]
    assert steps == ()


@pytest.mark.parametrize("numbers", [[3, 3, 3, 3], [1000, 1001, 1004, 1009]])
def test_the_same_number_everywhere_is_no_step(numbers: list[float]) -> None:
    points, steps = search(numbers)
    assert steps == ()
    assert len(points) == 2


def test_a_window_with_good_on_both_sides_needs_scan() -> None:
    numbers = [1, 1, 1, 9, 1, 1, 1]
    assert search(numbers)[1] == ()
    _, steps = search(numbers, scan=True)
    assert {(each.before.version, each.after.version) for each in steps} == {("2", "3"), ("3", "4")}


def test_a_threshold_outranks_a_larger_step() -> None:
    numbers = [1, 2, 100, 101]
    assert search(numbers)[1][0].after.version == "2"
    _, steps = search(numbers, threshold=1.5)
    assert [(each.before.version, each.after.version) for each in steps] == [("0", "1")]


def test_a_step_that_was_not_narrowed_says_how_many_releases_it_spans() -> None:
    _, steps = search([0, 10, 10, 10, 10, 10, 10, 1000, 1000])
    rest = [each for each in steps if each.after.number == 10]
    assert all(each.unmeasured for each in rest) or not rest
    assert (steps[0].before.number, steps[0].after.number) == (10, 1000)
