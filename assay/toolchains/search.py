"""The search for the release at which a number changed: which release to measure next."""

from collections.abc import Callable, Mapping, Sequence
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
    ``same`` of the larger. ``start`` is the index of the end that is measured first. The other end
    is measured only if nothing differs, if a release has no number before a step is found, or if a
    larger step could lie next to that end. No larger step can with ``any_step``, where no step is
    larger than another. None can either if the numbers fall from ``start`` on, are never below the
    ``floor``, and the step is at least as large as what is left of them above the floor. Then n
    releases with one step need at most 1 + log2(n) measurements, 7 for 40 releases.

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
    floor: float | None = None
    scan: bool = False
    watch: Watch = lambda _version, _point, _progress: None
    _points: dict[int, Point] = field(default_factory=dict)

    def run(self) -> tuple[tuple[Point, ...], tuple[Step, ...]]:
        """The measured points in order, and the steps, largest first.

        It measures the ends, as far as they are needed, and in the middle of the two neighbouring
        points that differ most, until no release is left between them. A window with the same
        number on both sides is found only by ``scan``, which measures every release. If an end has
        no number, nothing else is measured.
        """
        last = len(self.versions) - 1
        one_end = (self.any_step or self.floor is not None) and not self.scan
        ends = (self.start,) if one_end else (self.start, self._other)
        if all(self._numbered(end) for end in ends):
            for index in range(1, last) if self.scan else iter(self._next, None):
                self._numbered(index)
        order = sorted(self._points)
        return tuple(self._points[each] for each in order), self._steps()

    @property
    def progress(self) -> Progress | None:
        """What is known so far; None before two releases are compared, or if the ends are alike."""
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

    @property
    def _other(self) -> int:
        """The end that is not measured first."""
        return len(self.versions) - 1 - self.start

    @property
    def _numbers(self) -> Mapping[int, float]:
        """The numbers that are known, by index."""
        known = ((index, self._points[index].number) for index in sorted(self._points))
        return {index: number for index, number in known if number is not None}

    def _next(self) -> int | None:
        """The release to measure next; None once the largest step is between two neighbours."""
        end = self._points.get(self._other)
        if end is None and self._needs_other():
            return self._other
        if (end and end.number is None) or (place := self._place()) is None:
            return None
        return min(
            self._unmeasured(place), key=lambda each: abs(2 * each - sum(place)), default=None
        )

    def _needs_other(self) -> bool:
        """Whether a larger step than those found can lie next to the other end.

        Before a step is found, a release without a number asks for the end: perhaps all lack one.
        """
        steps = self._steps()
        if not steps:
            return any(point.number is None for point in self._points.values())
        if self.any_step:
            return False
        if self.floor is None:
            return True
        numbers = list(self._numbers.values())
        falling = numbers if self.start == 0 else numbers[::-1]
        rises = any(old < new and self._differ(old, new) for old, new in pairwise(falling))
        return rises or steps[0].size < falling[-1] - self.floor

    def _place(self) -> tuple[int, int] | None:
        """The indices between which the largest step lies; None if there is none.

        If nothing has differed yet, and the other end is not measured, one index is beyond it: no
        change at all is the last of the possible places.
        """
        for step in self._steps():
            return self.versions.index(step.before.version), self.versions.index(step.after.version)
        if self._other in self._points or not self._numbers:
            return None
        return (
            (max(self._numbers), len(self.versions))
            if self.start == 0
            else (-1, min(self._numbers))
        )

    def _unmeasured(self, place: tuple[int, int]) -> list[int]:
        first, second = place
        return [each for each in range(first + 1, second) if each not in self._points]

    def _steps(self) -> tuple[Step, ...]:
        found = [
            self._step(first, second)
            for (first, old), (second, new) in pairwise(self._numbers.items())
            if self._differ(old, new)
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

    def _differ(self, first: float, second: float) -> bool:
        if self.threshold is not None:
            return (first > self.threshold) != (second > self.threshold)
        return abs(first - second) > self.same * max(abs(first), abs(second))
