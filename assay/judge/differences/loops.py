"""The loops of two programs: which match, and what they carry and copy."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from assay.judge.differences.counts import Item, count_differences
from assay.model.inspection import Aspect, Difference
from assay.model.module import Shape, WhileLoop
from assay.model.summary import Content, FullBufferWrite, ModuleSummary

Pairs = Sequence[tuple[WhileLoop, WhileLoop]]
"""Loops of the first program, each with the loop of the second that it matches."""

_SIMILAR: Final = 0.5
"""Share of the carried arrays, by element type and dimensions, from which two loops match."""

_WRITES: Final = {Content.COPY: "copies of", Content.UPDATE: "updates that write all of"}


def matched(before: Iterable[WhileLoop], after: Iterable[WhileLoop]) -> Pairs:
    """Pairs of loops, each loop in one pair at most.

    Loops are the same if they carry the same arrays, repeat as often and come from the same line.
    The others are matched by fewer of these properties, and at last by half of the arrays or more.
    """
    ours = {loop.instruction: loop for loop in before}
    theirs = {loop.instruction: loop for loop in after}
    pairs: list[tuple[WhileLoop, WhileLoop]] = []

    def match(one: WhileLoop, other: WhileLoop) -> None:
        pairs.append((ours.pop(one.instruction), theirs.pop(other.instruction)))

    for key in _KEYS:
        waiting = defaultdict[Hashable, deque[WhileLoop]](deque)
        for other in theirs.values():
            waiting[key(other)].append(other)
        for one in tuple(ours.values()):
            if waiting[key(one)]:
                match(one, waiting[key(one)].popleft())
    likenesses = [
        (_likeness(one, other), one, other)
        for one in ours.values()
        for other in theirs.values()
        if not _features(one).isdisjoint(_features(other))
    ]
    for likeness, one, other in sorted(likenesses, key=lambda each: -each[0]):
        if likeness >= _SIMILAR and one.instruction in ours and other.instruction in theirs:
            match(one, other)
    return pairs


def alike(loop: WhileLoop) -> WhileLoop:
    """The loop without its names; equal for loops that no reader could tell apart."""
    carries = tuple(sorted(loop.carries, key=str))
    return replace(loop, instruction="", computation="", body="", condition="", carries=carries)


def _carried_shapes(loop: WhileLoop) -> Hashable:
    return tuple(sorted(map(str, loop.carries)))


def _carried_arrays(loop: WhileLoop) -> Hashable:
    return tuple(sorted(map(_array, loop.carries)))


def _array(shape: Shape) -> tuple[str, tuple[int, ...]]:
    """A carried array without its memory space: an offloaded array is still the same array."""
    return shape.element_type, shape.dimensions


_KEYS: Final[tuple[Callable[[WhileLoop], Hashable], ...]] = (
    lambda loop: (_carried_shapes(loop), loop.trips, loop.source),
    lambda loop: (_carried_shapes(loop), loop.trips),
    lambda loop: (_carried_shapes(loop), loop.source),
    _carried_shapes,
    lambda loop: (_carried_arrays(loop), loop.trips),
    _carried_arrays,
)


def _features(loop: WhileLoop) -> set[Hashable]:
    """What two loops must have in common to be compared: an array, or their line."""
    arrays: set[Hashable] = {_array(shape) for shape in loop.carries if shape.dimensions}
    return arrays | ({loop.source} if loop.source else set())


def _likeness(one: WhileLoop, other: WhileLoop) -> float:
    """The share of the carried arrays that both have; an equal line counts as one more."""
    ours = Counter(map(_array, one.carries))
    theirs = Counter(map(_array, other.carries))
    same_line = int(one.source is not None and one.source == other.source)
    common = (ours & theirs).total() + same_line
    return common / ((ours | theirs).total() + same_line or 1)


def of_loops(before: ModuleSummary, after: ModuleSummary, pairs: Pairs) -> Iterator[Difference]:
    """Loops gained and lost; of the others, what they repeat and carry."""
    ours = {loop.instruction for loop, _ in pairs}
    theirs = {loop.instruction for _, loop in pairs}
    yield from count_differences(
        Aspect.LOOP,
        (_unmatched(loop) for loop in before.loops if loop.instruction not in ours),
        (_unmatched(loop) for loop in after.loops if loop.instruction not in theirs),
    )
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
    yield from count_differences(
        Aspect.LOOP,
        (item for loop, _ in pairs for item in _carried(loop, loop)),
        (item for loop, other in pairs for item in _carried(other, loop)),
    )


def _unmatched(loop: WhileLoop) -> Item:
    return Item(subject=f"loops that carry {_carries_in_words(loop)}", source=loop.source)


def _carried(loop: WhileLoop, match: WhileLoop) -> Iterator[Item]:
    """The arrays of a loop's state in any memory space, without its scalars."""
    where, key = f"carried by {_in_words(match)}", alike(match)
    for shape in loop.carries:
        if shape.dimensions:
            subject = f"arrays {_without_space(shape)}"
            yield Item(subject=subject, where=where, key=key, nbytes=shape.nbytes)


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


def _without_space(shape: Shape) -> str:
    return str(replace(shape, memory_space=0))


def of_full_buffer_writes(
    before: ModuleSummary, after: ModuleSummary, pairs: Pairs
) -> Iterator[Difference]:
    """Full-buffer writes by loop; indistinguishable loops share one count."""
    ours = {loop.body: loop for loop in before.loops}
    theirs = {loop.body: loop for loop in after.loops}
    theirs |= {other.body: loop for loop, other in pairs}
    return count_differences(
        Aspect.FULL_BUFFER_WRITE,
        (_write(each, ours.get(each.loop)) for each in before.full_buffer_writes),
        (_write(each, theirs.get(each.loop)) for each in after.full_buffer_writes),
    )


def _write(write: FullBufferWrite, loop: WhileLoop | None) -> Item:
    return Item(
        subject=f"{_WRITES[write.content]} {write.shape}",
        where=f"in each iteration of {_in_words(loop)}" if loop else "outside of loops",
        key=alike(loop) if loop else None,
        nbytes=write.nbytes_per_run,
        source=write.source,
    )
