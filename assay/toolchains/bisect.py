"""Bisection over releases: which one changed a number, with as few measurements as can be."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from assay.model.verdict import ExitCode

SAME: Final = 0.01
"""Numbers within 1 % are no change: the tolerance of a stored baseline (``BaselineTempBytes``)."""

Measure = Callable[[str], "Point"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One release's number, or why it has none."""

    version: str
    number: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change of the number: ``unknown`` are the releases between the two without a number."""

    before: Point
    after: Point
    unknown: tuple[Point, ...] = ()

    @property
    def size(self) -> float:
        """The absolute difference."""
        assert self.before.number is not None
        assert self.after.number is not None
        return abs(self.after.number - self.before.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """What a search found: the measured points in order, and the steps, largest first.

    ``reason`` says why the search could not begin; empty otherwise.
    """

    points: tuple[Point, ...]
    steps: tuple[Step, ...]
    reason: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """A step is a regression (1); none at all is none (0); an end without a number is misuse."""
        if self.reason:
            return ExitCode.MISUSE
        return ExitCode.FAILED if self.steps else ExitCode.PASSED


def bisect(
    versions: Sequence[str],
    measure: Measure,
    *,
    same: float = SAME,
    threshold: float | None = None,
    scan: bool = False,
) -> Bisection:
    """Find the largest step between the first and the last release.

    With a ``threshold``, the only steps are those from at most it to above it and back.

    Always measures in the middle of the two neighbouring points that differ most, until no
    release is left between them. A number that only rises or falls takes 2 + log2(n) measurements.
    A window with the same number on both sides is found only by ``scan``, which measures every
    release.
    """
    differ = partial(_differ, same=same, threshold=threshold)
    points: dict[int, Point] = {}
    ends = (0, len(versions) - 1)
    for index in ends:
        points[index] = measure(versions[index])
        if points[index].number is None:
            reason = f"{versions[index]} gives no number: {points[index].why}"
            return Bisection(points=_ordered(points), steps=(), reason=reason)
    if scan:
        for index in _middles_first(*ends):
            points[index] = measure(versions[index])
    else:
        while (between := _next(points, differ)) is not None:
            points[between] = measure(versions[between])
    steps = tuple(
        Step(
            before=points[first],
            after=points[second],
            unknown=tuple(points[each] for each in range(first + 1, second) if each in points),
        )
        for first, second in pairwise(_known(points))
        if differ(points[first], points[second])
        and all(each in points for each in range(first + 1, second))
    )
    largest_first = sorted(steps, key=lambda step: -step.size)
    return Bisection(points=_ordered(points), steps=tuple(largest_first))


def _next(points: Mapping[int, Point], differ: Callable[[Point, Point], bool]) -> int | None:
    """The release to measure next; None once the largest step is between two neighbours."""
    known = _known(points)
    apart = [pair for pair in pairwise(known) if differ(*map(points.__getitem__, pair))]
    if not apart:
        return None
    first, second = max(apart, key=lambda pair: _distance(points, pair))
    middle = (first + second) / 2
    left = [each for each in range(first + 1, second) if each not in points]
    return min(left, key=lambda each: abs(each - middle), default=None)


def _known(points: Mapping[int, Point]) -> list[int]:
    return sorted(index for index, point in points.items() if point.number is not None)


def _ordered(points: Mapping[int, Point]) -> tuple[Point, ...]:
    return tuple(points[index] for index in sorted(points))


def _distance(points: Mapping[int, Point], pair: tuple[int, int]) -> float:
    return Step(before=points[pair[0]], after=points[pair[1]]).size


def _differ(first: Point, second: Point, same: float, threshold: float | None) -> bool:
    assert first.number is not None
    assert second.number is not None
    if threshold is not None:
        return (first.number > threshold) != (second.number > threshold)
    largest = max(abs(first.number), abs(second.number))
    return abs(first.number - second.number) > same * largest


def _middles_first(first: int, last: int) -> Sequence[int]:
    """Every index between the two, halves before quarters: what is known early is spread out."""
    queue, order = [(first, last)], []
    while queue:
        low, high = queue.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            order.append(middle)
            queue += [(low, middle), (middle, high)]
    return order
