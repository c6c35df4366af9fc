"""Matching: which loop of one program is which loop of another, told without names."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from assay.model.module import Loop, Shape

_SIMILAR: Final = 0.5
"""Share of the carried arrays, by element type and size, that makes two loops one."""


def matched(before: Sequence[Loop], after: Sequence[Loop]) -> tuple[tuple[Loop, Loop], ...]:
    """Pairs of loops, each loop in one pair at most.

    Loops are the same if they carry the same arrays, repeat as often and come from the same line;
    what is left is matched by less and less of that, at last by a majority of the arrays.
    """
    pairs: list[tuple[Loop, Loop]] = []
    left, right = list(before), list(after)
    for key in _KEYS:
        found = list(_zipped(left, right, key))
        pairs += found
        left = _without(left, (one for one, _ in found))
        right = _without(right, (other for _, other in found))
    return (*pairs, *_most_alike(left, right))


def alike(loop: Loop) -> Loop:
    """The loop without its names; equal for loops that no reader could tell apart."""
    carries = tuple(sorted(loop.carries, key=str))
    return replace(loop, instruction="", computation="", body="", condition="", carries=carries)


def _carried(loop: Loop) -> Hashable:
    return tuple(sorted(map(str, loop.carries)))


def _elements(loop: Loop) -> Hashable:
    return tuple(sorted(map(_element, loop.carries)))


def _element(shape: Shape) -> tuple[str, tuple[int, ...]]:
    """A carried array wherever it lies: one that is offloaded is still the same."""
    return shape.element_type, shape.dimensions


_KEYS: Final[tuple[Callable[[Loop], Hashable], ...]] = (
    lambda loop: (_carried(loop), loop.trips, loop.source),
    lambda loop: (_carried(loop), loop.trips),
    lambda loop: (_carried(loop), loop.source),
    _carried,
    lambda loop: (_elements(loop), loop.trips),
    _elements,
)


def _zipped(
    left: Iterable[Loop], right: Iterable[Loop], key: Callable[[Loop], Hashable]
) -> Iterator[tuple[Loop, Loop]]:
    """Pairs of equal key, in the order of the modules."""
    waiting: defaultdict[Hashable, list[Loop]] = defaultdict(list)
    for loop in right:
        waiting[key(loop)].append(loop)
    for loops in waiting.values():
        loops.reverse()
    for loop in left:
        if waiting[key(loop)]:
            yield loop, waiting[key(loop)].pop()


def _without(loops: Iterable[Loop], taken: Iterable[Loop]) -> list[Loop]:
    names = {loop.instruction for loop in taken}  # within one program, a name is its own
    return [loop for loop in loops if loop.instruction not in names]


def _most_alike(left: Sequence[Loop], right: Sequence[Loop]) -> Iterator[tuple[Loop, Loop]]:
    """Of loops that have an array or a line in common, the pairs that share most, if enough."""
    by_feature: defaultdict[Hashable, list[int]] = defaultdict(list)
    for position, loop in enumerate(right):
        for feature in _features(loop):
            by_feature[feature].append(position)
    scored = sorted(
        (-_likeness(loop, right[theirs]), ours, theirs)
        for ours, loop in enumerate(left)
        for theirs in {each for feature in _features(loop) for each in by_feature[feature]}
    )
    taken_left: set[int] = set()
    taken_right: set[int] = set()
    for score, ours, theirs in scored:
        if -score >= _SIMILAR and ours not in taken_left and theirs not in taken_right:
            taken_left.add(ours)
            taken_right.add(theirs)
            yield left[ours], right[theirs]


def _features(loop: Loop) -> set[Hashable]:
    """What two loops must have in common to be compared: an array, or their line."""
    features: set[Hashable] = {_element(shape) for shape in loop.carries if shape.dimensions}
    return features | ({loop.source} if loop.source else set())


def _likeness(one: Loop, other: Loop) -> float:
    """The share of the carried arrays that both have; an equal line counts as one more."""
    ours = Counter(map(_element, one.carries))
    theirs = Counter(map(_element, other.carries))
    both, either = (ours & theirs).total(), (ours | theirs).total()
    same_line = int(one.source is not None and one.source == other.source)
    return (both + same_line) / (either + same_line or 1)
