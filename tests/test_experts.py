"""``benchmarks.experts``: which versions by hand count, and what does not pass."""

from math import inf, nan

import pytest
from rich.console import Console

from benchmarks.experts.__main__ import Compared, Point, verdict
from benchmarks.experts.cases import CASES
from benchmarks.experts.measured import Refused, Way

REFUSED = Refused(smallest=80.0)


def _way(nbytes: int = 50, difference: float = 0.0) -> Way:
    return Way(name="", run=list, nbytes=nbytes, setup_s=1.0, call_s=1.0, difference=difference)


def _point(nbytes: int, expert_s: float, safe_s: float = 1.0, difference: float = 0.0) -> Point:
    safe = REFUSED if safe_s == inf else _way(nbytes, difference)
    return Point(expert=_way(nbytes), expert_s=expert_s, safe=safe, safe_s=safe_s)


def _compared(*points: Point) -> Compared:
    return Compared(plain=_way(100), plain_s=1.0, points=points, timed_only={})


def _verdict(*points: Point) -> int:
    return verdict(Console(quiet=True), [_compared(*points)])


def test_a_version_counts_that_none_betters() -> None:
    small, fast, neither = _point(20, 2.0), _point(40, 1.0), _point(50, 1.5)
    assert _compared(small, fast, neither).counted == (small, fast)


def test_a_version_without_less_memory_does_not_count() -> None:
    assert _compared(_point(96, 0.5)).counted == ()


def test_equal_times_pass() -> None:
    assert _verdict(_point(50, 1.0)) == 0


@pytest.mark.parametrize(
    "points",
    [
        pytest.param([_point(50, 1.0, 1.01)], id="slower in the mean"),
        pytest.param([_point(40, 1.0, 1.31), _point(30, 5.0, 1.0)], id="slower once"),
        pytest.param([_point(50, 1.0, inf)], id="refused"),
        pytest.param([_point(50, 1.0, 0.5, difference=0.1)], id="wrong"),
        pytest.param([_point(50, 1.0, 0.5, difference=nan), _point(40, 1.0, 0.5)], id="no number"),
        pytest.param([], id="nothing measured"),
    ],
)
def test_slower_refused_or_wrong_fails(points: list[Point]) -> None:
    assert _verdict(*points) == 1


def test_at_least_twenty_programs_are_compared() -> None:
    assert len({case.name for case in CASES}) >= 20
