"""The search for the release at which a number changed: which release to measure next."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from assay.model.bisection import Point, Progress, Step

Watch = Callable[[str, Point | None, Progress | None], None]
"""Called before each release is measured, without a point, and again with its point.

It also gets what is known at that time.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search for the largest step between the first and the last of ``versions``.

    Two numbers differ if they are on two sides of the ``threshold``, or, without one, by more than
    ``same`` of the larger. ``start`` is the index of the end that is measured first. With
    ``any_step`` no step is larger than another, so the other end is measured only if all else is
    equal: n releases with one step need at most 1 + log2(n) measurements, 7 for 40 releases.

    Otherwise they need 2 + log2(n - 1), 8 for 40, and no search needs fewer in the worst case: both
    ends must be measured, because a larger step could lie next to an unmeasured end. Any other
    release then says only on which side of the step it lies, one bit of the log2(n - 1) that tell
    the n - 1 places of the step apart.
    """

    versions: Sequence[str]
    measure: Callable[[str], Point]
    same: float
    threshold: float | None = None
    start: int = 0
    any_step: bool = False
    scan: bool = False
    watch: Watch = lambda _version, _point, _progress: None
    _points: dict[int, Point] = field(default_factory=dict)

    def run(self) -> tuple[tuple[Point, ...], tuple[Step, ...]]:
        """The measured points in order, and the steps, largest first.

        It measures the ends, then in the middle of the two neighbouring points that differ most,
        until no release is left between them. A window with the same number on both sides is found
        only by ``scan``, which measures every release. If an end has no number, nothing else is
        measured.
        """
        last = len(self.versions) - 1
        one_end = self.any_step and not self.scan
        ends = (self.start,) if one_end else (self.start, last - self.start)
        if all(self._numbered(end) for end in ends):
            for index in range(1, last) if self.scan else iter(self._next, None):
                self._numbered(index)
        order = sorted(self._points)
        return tuple(self._points[each] for each in order), self._steps()

    @property
    def progress(self) -> Progress | None:
        """What is known so far; None before two releases are compared."""
        if len(self._points) < 2 or (place := self._place()) is None:  # noqa: PLR2004
            return None
        first, second = place
        inside = range(len(self.versions))
        # n releases leave n + 1 places for a step, and each measurement halves them.
        left = len(self._unmeasured(place)).bit_length()
        if self.scan:
            left = len(self.versions) - len(self._points)
        return Progress(
            after=self.versions[first] if first in inside else "",
            until=self.versions[second] if second in inside else "",
            left=left,
        )

    def _numbered(self, index: int) -> bool:
        version = self.versions[index]
        self.watch(version, None, self.progress)
        self._points[index] = point = self.measure(version)
        self.watch(version, point, self.progress)
        return point.number is not None

    def _next(self) -> int | None:
        """The release to measure next; None once the largest step is between two neighbours."""
        if (place := self._place()) is None:
            return None
        return min(
            self._unmeasured(place), key=lambda each: abs(2 * each - sum(place)), default=None
        )

    def _place(self) -> tuple[int, int] | None:
        """The indices between which the largest step lies; None if there is none.

        If nothing has differed yet, and the other end is not measured, one index is beyond it: no
        change at all is the last of the possible places.
        """
        for step in self._steps():
            return self.versions.index(step.before.version), self.versions.index(step.after.version)
        last = len(self.versions) - 1
        if last - self.start in self._points:
            return None
        numbered = [each for each, point in self._points.items() if point.number is not None]
        if not numbered:
            return None
        return (max(numbered), last + 1) if self.start == 0 else (-1, min(numbered))

    def _unmeasured(self, place: tuple[int, int]) -> list[int]:
        first, second = place
        return [each for each in range(first + 1, second) if each not in self._points]

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
