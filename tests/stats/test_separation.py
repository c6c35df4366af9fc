"""What is far apart is decided by few samples; noise that was ever measured is not."""

import math
from random import Random

import pytest

from assay.model.timing import Change
from assay.stats.ratios import certainly_slower_after, far_apart, ratio_of_turns


@pytest.mark.parametrize(
    ("pairs", "stretch", "stall"), [(1, 4.0, 0.25), (2, 3.0, 0.05), (4, 2.0, 0.02), (6, 1.5, 0.005)]
)
@pytest.mark.parametrize("seconds", [1e-3, 0.1, 10.0])
def test_the_bound_is_the_line_between(
    pairs: int, stretch: float, stall: float, seconds: float
) -> None:
    """The table of docs/timing-evaluation.md, Large slowdowns."""
    line = stretch * seconds + stall
    first = [seconds] * pairs
    assert far_apart(first, [line] * pairs) is not None
    assert far_apart(first, [0.99 * line] * pairs) is None
    assert ratio_of_turns(first, [line] * pairs).change is Change.SLOWER


def test_one_sample_that_is_not_apart_keeps_the_rest_from_deciding() -> None:
    assert far_apart([1.0] * 6, [2.0] * 6) is not None
    assert far_apart([1.0] * 6, [2.0] * 5 + [1.2]) is None
    assert far_apart([1.0] * 5 + [1.8], [2.0] * 6) is None


def test_what_is_far_below_the_wanted_ratio_is_faster_from_two_pairs_on() -> None:
    assert far_apart([10.0], [1.0]) is None
    assert far_apart([10.0] * 2, [1.0] * 2) is not None
    assert ratio_of_turns([10.0] * 2, [1.0] * 2).change is Change.FASTER
    assert far_apart([1.0] * 2, [1.0] * 2, against=10) is not None
    assert far_apart([1.0] * 2, [10.0] * 2, against=10) is None


def test_the_bounds_are_those_of_the_samples() -> None:
    found = ratio_of_turns([1.0, 2.0], [20.0, 10.0])
    assert (found.low, found.high) == (pytest.approx(5), pytest.approx(20))
    assert found.ratio == pytest.approx(10)


def test_nothing_is_apart_from_nothing() -> None:
    assert far_apart([], []) is None


def test_one_pair_of_processes_shares_what_stretches_a_process() -> None:
    first, second = [1.0] * 48, [3.0] * 48
    assert far_apart(first, second) is not None
    assert far_apart(first, second, processes=1) is None
    assert far_apart(first, [5.0] * 48, processes=1) is not None


def test_a_first_run_is_hopeless_only_beyond_what_memory_can_explain() -> None:
    assert certainly_slower_after(0.01) == pytest.approx(0.66)
    assert certainly_slower_after(1.0, against=2.0) == pytest.approx(32.5)


def test_scheduling_of_a_busy_machine_separates_nothing() -> None:
    """Each sample of 1 ms loses its core for 0 to 35 ms in one of three: the worst measured."""
    random = Random(0)

    def sample() -> float:
        return (
            1e-3 * math.exp(random.gauss(0, 0.1))
            + (random.random() < 1 / 3) * random.random() * 0.035
        )

    for _ in range(2000):
        first, second = ([sample() for _ in range(10)] for _ in range(2))
        assert all(far_apart(first[:n], second[:n]) is None for n in range(1, 11))
