"""The search over releases: as few measurements as can be."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from assay.model.bisection import Point, Step

SAME: Final = 0.01
"""Numbers within 1 % are no change: the tolerance of a stored baseline (``BaselineTempBytes``)."""

Measure = Callable[[str], Point]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search for the largest step between the first and the last of ``versions``.

    Two numbers differ if they are on two sides of the ``threshold``, or, without one, by more than
    ``same`` of the larger.
    """

    versions: Sequence[str]
    measure: Measure
    same: float = SAME
    threshold: float | None = None
    _points: dict[int, Point] = field(default_factory=dict)

    def run(self, *, scan: bool = False) -> tuple[tuple[Point, ...], tuple[Step, ...]]:
        """The measured points in order, and the steps, largest first.

        It measures both ends, then in the middle of the two neighbouring points that differ most,
        until no release is left between them: 2 + log2(releases) measurements for a single step.
        A window with the same number on both sides is found only by ``scan``, which measures every
        release. If an end has no number, nothing else is measured.
        """
        last = len(self.versions) - 1
        if all(self._numbered(end) for end in (0, last)):
            for index in range(1, last) if scan else iter(self._next, None):
                self._numbered(index)
        order = sorted(self._points)
        return tuple(self._points[each] for each in order), self._steps()

    def _numbered(self, index: int) -> bool:
        self._points[index] = self.measure(self.versions[index])
        return self._points[index].number is not None

    def _next(self) -> int | None:
        """The release to measure next; None once the largest step is between two neighbours."""
        step = next(iter(self._steps()), None)
        if step is None:
            return None
        first, second = (self.versions.index(each.version) for each in (step.before, step.after))
        left = [each for each in range(first + 1, second) if each not in self._points]
        return min(left, key=lambda each: abs(2 * each - first - second), default=None)

    def _steps(self) -> tuple[Step, ...]:
        numbered = [each for each in sorted(self._points) if self._points[each].number is not None]
        found = [
            self._step(first, second)
            for first, second in pairwise(numbered)
            if self._differ(self._points[first].number, self._points[second].number)
        ]
        return tuple(sorted(found, key=lambda step: -step.size))

    def _step(self, first: int, second: int) -> Step:
        between = range(first + 1, second)
        skipped = tuple(self._points[each] for each in between if each in self._points)
        return Step(
            before=self._points[first],
            after=self._points[second],
            skipped=skipped,
            unmeasured=len(between) - len(skipped),
        )

    def _differ(self, first: float | None, second: float | None) -> bool:
        assert first is not None
        assert second is not None
        if self.threshold is not None:
            return (first > self.threshold) != (second > self.threshold)
        return abs(first - second) > self.same * max(abs(first), abs(second))
