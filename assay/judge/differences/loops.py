"""Differences between the loops of two programs: which match, what they carry and copy."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from assay.judge.differences.operations import Item, changes
from assay.model.inspection import Aspect, Difference
from assay.model.module import Shape, WhileLoop
from assay.model.summary import Content, FullBufferWrite, ModuleSummary

_SIMILAR: Final = 0.5
"""Share of the carried arrays, by element type and size, that makes two loops one."""


def matched(
    before: Sequence[WhileLoop], after: Sequence[WhileLoop]
) -> tuple[tuple[WhileLoop, WhileLoop], ...]:
    """Pairs of loops, each loop in one pair at most.

    Loops are the same if they carry the same arrays, repeat as often and come from the same line;
    what is left is matched by less and less of that, at last by a majority of the arrays.
    """
    pairs: list[tuple[WhileLoop, WhileLoop]] = []
    left, right = list(before), list(after)
    for key in _KEYS:
        found = list(_zipped(left, right, key))
        pairs += found
        left = _without(left, (one for one, _ in found))
        right = _without(right, (other for _, other in found))
    return (*pairs, *_most_alike(left, right))


def alike(loop: WhileLoop) -> WhileLoop:
    """The loop without its names; equal for loops that no reader could tell apart."""
    carries = tuple(sorted(loop.carries, key=str))
    return replace(loop, instruction="", computation="", body="", condition="", carries=carries)


def _carried_shapes(loop: WhileLoop) -> Hashable:
    return tuple(sorted(map(str, loop.carries)))


def _elements(loop: WhileLoop) -> Hashable:
    return tuple(sorted(map(_element, loop.carries)))


def _element(shape: Shape) -> tuple[str, tuple[int, ...]]:
    """A carried array wherever it lies: one that is offloaded is still the same."""
    return shape.element_type, shape.dimensions


_KEYS: Final[tuple[Callable[[WhileLoop], Hashable], ...]] = (
    lambda loop: (_carried_shapes(loop), loop.trips, loop.source),
    lambda loop: (_carried_shapes(loop), loop.trips),
    lambda loop: (_carried_shapes(loop), loop.source),
    _carried_shapes,
    lambda loop: (_elements(loop), loop.trips),
    _elements,
)


def _zipped(
    left: Iterable[WhileLoop], right: Iterable[WhileLoop], key: Callable[[WhileLoop], Hashable]
) -> Iterator[tuple[WhileLoop, WhileLoop]]:
    """Pairs of equal key, in the order of the modules."""
    waiting: defaultdict[Hashable, list[WhileLoop]] = defaultdict(list)
    for loop in right:
        waiting[key(loop)].append(loop)
    for loops in waiting.values():
        loops.reverse()
    for loop in left:
        if waiting[key(loop)]:
            yield loop, waiting[key(loop)].pop()


def _without(loops: Iterable[WhileLoop], taken: Iterable[WhileLoop]) -> list[WhileLoop]:
    names = {loop.instruction for loop in taken}  # within one program, a name is its own
    return [loop for loop in loops if loop.instruction not in names]


def _most_alike(
    left: Sequence[WhileLoop], right: Sequence[WhileLoop]
) -> Iterator[tuple[WhileLoop, WhileLoop]]:
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


def _features(loop: WhileLoop) -> set[Hashable]:
    """What two loops must have in common to be compared: an array, or their line."""
    features: set[Hashable] = {_element(shape) for shape in loop.carries if shape.dimensions}
    return features | ({loop.source} if loop.source else set())


def _likeness(one: WhileLoop, other: WhileLoop) -> float:
    """The share of the carried arrays that both have; an equal line counts as one more."""
    ours = Counter(map(_element, one.carries))
    theirs = Counter(map(_element, other.carries))
    both, either = (ours & theirs).total(), (ours | theirs).total()
    same_line = int(one.source is not None and one.source == other.source)
    return (both + same_line) / (either + same_line or 1)


Pairs = Sequence[tuple[WhileLoop, WhileLoop]]
"""Loops before, each with the one that it is after."""

_WRITES: Final = {
    Content.COPY: "copies of",
    Content.UPDATE: "updates that write all of",
}


def of_loops(
    before: Sequence[WhileLoop], after: Sequence[WhileLoop], pairs: Pairs
) -> Iterator[Difference]:
    """Loops gained and lost; of the others, what they repeat and carry."""
    yield from _of_unmatched(before, after, pairs)
    yield from dict.fromkeys(
        Difference(
            aspect=Aspect.TRIPS,
            subject="trips",
            before=one.trips,
            after=other.trips,
            where=f"of {_in_words(one)}",
        )
        for one, other in pairs
        if one.trips != other.trips
    )
    for change in changes(
        (item for loop, _ in pairs for item in _carried(loop, loop)),
        (item for loop, other in pairs for item in _carried(other, loop)),
    ):
        shape, loop = change.kind
        yield change.told(Aspect.LOOP, f"arrays {shape}", f"carried by {_in_words(loop)}")


def _of_unmatched(
    before: Sequence[WhileLoop], after: Sequence[WhileLoop], pairs: Pairs
) -> Iterator[Difference]:
    ours = {loop.instruction for loop, _ in pairs}
    theirs = {loop.instruction for _, loop in pairs}
    for change in changes(
        (_loop_item(loop) for loop in before if loop.instruction not in ours),
        (_loop_item(loop) for loop in after if loop.instruction not in theirs),
    ):
        yield change.told(Aspect.LOOP, f"loops that carry {change.kind}")


def _loop_item(loop: WhileLoop) -> Item[str]:
    return Item(kind=_carries_in_words(loop), source=loop.source)


def _carried(loop: WhileLoop, known_as: WhileLoop) -> Iterator[Item[tuple[str, WhileLoop]]]:
    """The arrays of a loop's state in any memory space, without its scalars."""
    for shape in filter(_is_array, loop.carries):
        yield Item(kind=(_without_space(shape), alike(known_as)), nbytes=shape.nbytes)


def of_full_buffer_writes(
    before: ModuleSummary, after: ModuleSummary, pairs: Pairs
) -> Iterator[Difference]:
    """Full-buffer writes by loop; indistinguishable loops share one tally."""
    ours = {loop.body: alike(loop) for loop in before.loops}
    theirs = {loop.body: alike(loop) for loop in after.loops}
    theirs |= {other.body: alike(loop) for loop, other in pairs}
    for change in changes(
        _full_buffer_write_items(before.full_buffer_writes, ours),
        _full_buffer_write_items(after.full_buffer_writes, theirs),
    ):
        content, shape, loop = change.kind
        where = f"in each iteration of {_in_words(loop)}" if loop else "outside of loops"
        yield change.told(Aspect.FULL_BUFFER_WRITE, f"{_WRITES[content]} {shape}", where)


def _full_buffer_write_items(
    full_buffer_writes: Sequence[FullBufferWrite], loops: Mapping[str, WhileLoop]
) -> Iterator[Item[tuple[Content, Shape, WhileLoop | None]]]:
    for write in full_buffer_writes:
        yield Item(
            kind=(write.content, write.shape, loops.get(write.loop)),
            nbytes=write.nbytes_per_run,
            source=write.source,
        )


def _in_words(loop: WhileLoop) -> str:
    line = f" at {loop.source}" if loop.source else ""
    trips = "" if loop.trips is None else f" ({loop.trips} trips)"
    return f"the loop{line} that carries {_carries_in_words(loop)}{trips}"


def _carries_in_words(loop: WhileLoop) -> str:
    """The largest array that a loop carries, and how many others."""
    if not loop.carries:
        return "nothing"
    largest = max(loop.carries, key=lambda shape: (shape.nbytes, str(shape)))
    rest = len(loop.carries) - 1
    return f"{_without_space(largest)} and {rest} more" if rest else _without_space(largest)


def _is_array(shape: Shape) -> bool:
    return bool(shape.dimensions)


def _without_space(shape: Shape) -> str:
    return f"{shape.element_type}[{','.join(map(str, shape.dimensions))}]"
