"""Value provenance: where the values of an array that an instruction writes come from.

The question is whether an array written whole holds what another array held before, so that a
compiler that shared the two would have had less to write. Followed from the result backwards,
into fusions and asynchronous operations, through everything that only moves data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.values import Site, Value, argument, behind, renamed
from assay.model.module import Shape
from assay.model.summary import Content

_CARRIERS: Final = frozenset({"async-start", "fusion"})
# A TPU concatenates by the maximum, or the union, of arrays that are padded to the whole.
_JOINS: Final = frozenset({"add", "maximum", "or"})
# A reshape outside of fusions changes the tiles; inside a fusion it only renumbers elements.
_RETILES: Final = frozenset({"copy", "copy-start", "reshape", "transpose"})
_REARRANGES: Final = frozenset({"bitcast-convert", "convert", "pad", "reverse", "slice"})
_UPDATES: Final = frozenset({"dynamic-update-slice", "scatter"})
_WRITTEN_BY_ASYNC: Final = 1  # of an async-start's result; element 0 repeats the operands
_WRITTEN_BY_COPY: Final = 0  # of a copy-start's result; the source comes after it


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What an array that repeats another is filled with.

    ``base`` is the value that it takes its elements from. ``rearranged`` tells whether elements
    change place or type on the way, so that not even shared memory spares the writing, and
    ``chosen`` whether a select takes them from one array or another. ``by`` is the operation
    nearest to the result that does more than view it, None if the array is the base itself.
    """

    content: Content
    base: Value
    rearranged: bool
    chosen: bool
    by: Instruction | None


def written(instruction: Instruction) -> list[tuple[int, ...]]:
    """Paths of the arrays that an instruction writes, within its result."""
    if instruction.opcode == "copy-start":
        return [(_WRITTEN_BY_COPY,)] if instruction.shape.elements else [()]
    if instruction.opcode == "copy" and instruction.shape.elements:
        return []  # a copy of a tuple repeats where its elements are
    if instruction.opcode == "async-start":
        inside = instruction.shape.at((_WRITTEN_BY_ASYNC,))
        return [(_WRITTEN_BY_ASYNC, *path) for path, _ in inside.arrays()]
    return [path for path, _ in instruction.shape.arrays()]


def origin_of(instruction: Instruction, path: tuple[int, ...]) -> Origin | None:
    """What the array at ``path`` of an instruction's result repeats; None of computed values.

    The base is a value of the instruction's own computation. An array counts as taken from a base
    if at least half of its elements come from there, more than half if it is larger than the base,
    and it is no small part of the base.
    """
    shape = instruction.shape.at(path)
    value, trail = _back(Value(instruction, path), instruction)
    source, elements = _largest(_shares(value, trail, instruction, {}))
    if source is None or not _is_taken(shape, source, elements, trail):
        return None
    forks = _is_within(value, instruction)
    return Origin(
        content=Content.UPDATE if forks else trail.content,
        base=source.base,
        rearranged=forks or trail.rearranged,
        chosen=source.chosen,
        by=trail.by or (value.instruction if forks else None),
    )


@dataclass(frozen=True, slots=True)
class _Trail:
    """What was passed on the way from a value; ``narrowest`` is the fewest elements of it."""

    narrowest: int
    content: Content = Content.COPY
    rearranged: bool = False
    by: Instruction | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """An array that elements come from, and whether a select decides about it on the way."""

    base: Value
    chosen: bool


_Shares = Mapping[_Source, int]
"""How many elements of a value come, at most, from each array outside."""


def _is_taken(shape: Shape, source: _Source, elements: int, trail: _Trail) -> bool:
    """Whether an array of ``shape`` is, for the most part, what its source was."""
    if behind(source.base).instruction.allocates:
        return False  # what fills new memory part by part makes a new array
    base = source.base.instruction.shape.at(source.base.path)
    has_room = base.nbytes >= shape.nbytes or _elements(base) >= _elements(shape)
    is_small_part = 2 * trail.narrowest <= _elements(base) and 2 * shape.nbytes <= base.nbytes
    # One half of a larger array is as much its second half's.
    is_most = 2 * elements > _elements(shape) or (has_room and 2 * elements == _elements(shape))
    return is_most and not is_small_part


def _largest(shares: _Shares) -> tuple[_Source | None, int]:
    source = max(shares, key=shares.__getitem__, default=None)
    return source, shares[source] if source else 0


def _is_within(value: Value, start: Instruction) -> bool:
    """Whether a value is made by ``start`` itself, or inside of it."""
    return value.site is not None or value.instruction is start


def _back(value: Value, start: Instruction) -> tuple[Value, _Trail]:
    """Back to a value outside of ``start``, to a newly computed one, or to a fork of the path."""
    trail = _Trail(_elements(value.instruction.shape.at(value.path)))
    while _is_within(value, start):
        if (seen := _seen_through(value)) is not None:
            value = seen
        elif (step := _moved_from(value, trail)) is not None:
            value, trail = step
        else:
            break
    return value, trail


def _shares(
    value: Value, trail: _Trail, start: Instruction, known: dict[Value, _Shares]
) -> _Shares:
    """The sources of what a trail led back to; each value that is met twice is followed once."""
    if not _is_within(value, start):
        return {_Source(value, chosen=False): trail.narrowest}
    if value.instruction.opcode == "select":
        found = _chosen(value, start, known)
    elif _is_joined(value):
        found = {}
        for operand in value.instruction.operands:
            for source, elements in _shares_of(operand, value, start, known).items():
                found[source] = found.get(source, 0) + elements
    else:
        return {}
    return {source: min(elements, trail.narrowest) for source, elements in found.items()}


def _shares_of(
    operand: Instruction, of: Value, start: Instruction, known: dict[Value, _Shares]
) -> _Shares:
    before = Value(operand, (), of.site)
    if before not in known:
        known[before] = _shares(*_back(before, start), start, known)
    return known[before]


def _is_joined(value: Value) -> bool:
    """Whether a value is arrays side by side."""
    opcode, operands = value.instruction.opcode, value.instruction.operands
    return opcode == "concatenate" or (
        opcode in _JOINS and all(_is_padded(Value(each, (), value.site)) for each in operands)
    )


def _is_padded(value: Value) -> bool:
    while (before := _seen_through(value)) is not None:
        value = before
    return value.instruction.opcode == "pad"


class _Decides(Enum):
    """What decides which side of a select an element is taken from."""

    PLACE = "where the element lies"
    SCALAR = "one truth for all elements"
    VALUES = "the values of arrays"


def _chosen(value: Value, start: Instruction, known: dict[Value, _Shares]) -> _Shares:
    """The arrays that a select repeats, of those that its computation was handed.

    By place, one side is an update of the other. By one truth for all, each side must repeat
    arrays, else the result is computed. By values a choice is arithmetic, as a relu is, except
    between two states of one array.
    """
    truth, *sides = value.instruction.operands
    either = [
        {
            _Source(source.base, chosen=True): elements
            for source, elements in _shares_of(side, value, start, known).items()
            if _is_handed_in(source.base)
        }
        for side in sides
    ]
    decides = _decides(Value(truth, (), value.site))
    if decides is _Decides.SCALAR:
        if any(2 * sum(side.values()) <= _elements(value.instruction.shape) for side in either):
            return {}
        decides = _Decides.PLACE
    found = either[0].keys() | either[1].keys()
    merge = max if decides is _Decides.PLACE else min
    return {source: merge(side.get(source, 0) for side in either) for source in found}


def _decides(truth: Value) -> _Decides:
    """What a select's predicate is computed from."""
    pending, seen, decides = [truth], {truth}, _Decides.SCALAR
    while pending:
        value = pending.pop()
        while (before := _seen_through(value)) is not None:
            value = before
        instruction = value.instruction
        if not instruction.shape.at(value.path).dimensions:
            continue
        if instruction.opcode == "iota":
            decides = _Decides.PLACE
        elif instruction.opcode == "parameter" or (
            instruction.called or instruction.opcode == "custom-call"
        ):
            return _Decides.VALUES
        operands = [Value(each, (), value.site) for each in instruction.operands]
        pending.extend(each for each in operands if each not in seen)
        seen.update(operands)
    return decides


def _seen_through(value: Value) -> Value | None:
    """The value behind a fusion, a start, a parameter of theirs, or a view; None behind others."""
    instruction, path, site = value.instruction, value.path, value.site
    opcode = instruction.opcode
    if opcode in _CARRIERS:
        inner = path[1:] if opcode == "async-start" else path
        return Value(instruction.called[0].root, inner, Site(instruction, site))
    if opcode == "parameter":
        return argument(value)
    if (opcode == "bitcast-convert" and _keeps_width(instruction)) or (
        opcode == "reshape" and site is not None
    ):
        return Value(instruction.operands[0], path, site)
    return renamed(value)


def _moved_from(value: Value, trail: _Trail) -> tuple[Value, _Trail] | None:
    """One step back through an operation that moves the elements of one of its operands."""
    instruction, path, site = value.instruction, value.path, value.site
    opcode, by = instruction.opcode, trail.by or instruction
    if opcode in _RETILES:
        moved = trail.rearranged or _moves_elements(instruction)
        source = path[1:] if opcode == "copy-start" else path
        return Value(instruction.operands[0], source, site), replace(trail, by=by, rearranged=moved)
    if opcode in _UPDATES:
        base = instruction.operands[path[0] if path else 0]
        return Value(base, (), site), replace(trail, by=by, content=Content.UPDATE)
    if opcode in _REARRANGES:
        operand = instruction.operands[0].shape
        narrowest = min(trail.narrowest, _elements(instruction.shape), _elements(operand))
        content = Content.UPDATE if opcode == "pad" else trail.content
        return Value(instruction.operands[0], (), site), replace(
            trail, by=by, content=content, rearranged=True, narrowest=narrowest
        )
    if opcode == "custom-call" and path in instruction.overwrites:
        # What it does in there only its author knows; a kernel that updates a part says it so.
        number, source = instruction.overwrites[path]
        return Value(instruction.operands[number], source, site), replace(
            trail, by=by, content=Content.UPDATE
        )
    return None


def _is_handed_in(value: Value) -> bool:
    """Whether a value is, under another name, a parameter of its computation."""
    return behind(value).instruction.opcode == "parameter"


def _keeps_width(instruction: Instruction) -> bool:
    return instruction.shape.nbytes == instruction.operands[0].shape.nbytes


def _moves_elements(instruction: Instruction) -> bool:
    """Whether an array's elements lie in another order than its operand's, by their layouts."""
    layout, source = instruction.layout, instruction.operands[0].layout
    if instruction.opcode == "transpose":
        order = instruction.dimensions
        return not layout or tuple(order[dimension] for dimension in layout) != source
    return instruction.opcode != "reshape" and bool(layout) and source != layout


def _elements(shape: Shape) -> int:
    return prod(shape.dimensions)
