"""Differences between the loops of two programs, and between what they write whole."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from assay.judge.differences.matching import alike
from assay.judge.differences.tally import Item, changes
from assay.model.buffers import Content, FullBufferWrite
from assay.model.difference import Aspect, Difference
from assay.model.module import Loop, Shape
from assay.model.summary import ModuleSummary

Pairs = Sequence[tuple[Loop, Loop]]
"""Loops before, each with the one that it is after."""

_WRITES: Final = {
    Content.COPY: "copies of",
    Content.UPDATE: "updates that write all of",
}


def of_loops(before: Sequence[Loop], after: Sequence[Loop], pairs: Pairs) -> Iterator[Difference]:
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
    before: Sequence[Loop], after: Sequence[Loop], pairs: Pairs
) -> Iterator[Difference]:
    ours = {loop.instruction for loop, _ in pairs}
    theirs = {loop.instruction for _, loop in pairs}
    for change in changes(
        (_loop_item(loop) for loop in before if loop.instruction not in ours),
        (_loop_item(loop) for loop in after if loop.instruction not in theirs),
    ):
        yield change.told(Aspect.LOOP, f"loops that carry {change.kind}")


def _loop_item(loop: Loop) -> Item[str]:
    return Item(kind=_carries_in_words(loop), source=loop.source)


def _carried(loop: Loop, known_as: Loop) -> Iterator[Item[tuple[str, Loop]]]:
    """The arrays of a loop's state, wherever they lie; its scalars are no matter."""
    for shape in filter(_is_array, loop.carries):
        yield Item(kind=(_without_space(shape), alike(known_as)), nbytes=shape.nbytes)


def of_full_buffer_writes(
    before: ModuleSummary, after: ModuleSummary, pairs: Pairs
) -> Iterator[Difference]:
    """Arrays written whole, by loop; loops that nobody can tell apart share one tally."""
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
    full_buffer_writes: Sequence[FullBufferWrite], loops: Mapping[str, Loop]
) -> Iterator[Item[tuple[Content, Shape, Loop | None]]]:
    for write in full_buffer_writes:
        yield Item(
            kind=(write.content, write.shape, loops.get(write.loop)),
            nbytes=write.nbytes_per_run,
            source=write.source,
        )


def _in_words(loop: Loop) -> str:
    line = f" at {loop.source}" if loop.source else ""
    trips = "" if loop.trips is None else f" ({loop.trips} trips)"
    return f"the loop{line} that carries {_carries_in_words(loop)}{trips}"


def _carries_in_words(loop: Loop) -> str:
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
