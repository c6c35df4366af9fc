"""The search over releases finds the step with few measurements, and invents none."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.bisection import Point, Step
from assay.toolchains.bisect import Search
from assay.toolchains.metrics import SAME


def search(
    numbers: Sequence[float | None], *, scan: bool = False, threshold: float | None = None
) -> tuple[tuple[Point, ...], tuple[Step, ...]]:
    versions = [str(each) for each in range(len(numbers))]
    asked: list[str] = []

    def measure(version: str) -> Point:
        assert version not in asked, "each release is measured once"
        asked.append(version)
        number = numbers[int(version)]
        return Point(version=version, number=number, why="" if number is not None else "broken")

    found = Search(versions=versions, measure=measure, same=SAME, threshold=threshold)
    return found.run(scan=scan)


@given(st.integers(2, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))))
def test_a_single_step_is_found_in_log2_measurements(case: tuple[int, int]) -> None:
    releases, at = case
    points, steps = search([0.0] * at + [7.0] * (releases - at))
    assert [(each.before.version, each.after.version) for each in steps] == [(str(at - 1), str(at))]
    assert steps[0].unmeasured == 0
    assert len(points) <= 2 + ceil(log2(max(1, releases - 1)))


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
