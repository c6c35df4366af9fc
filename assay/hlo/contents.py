"""Contents: where the values of an array that an instruction writes come from.

The question is whether an array written whole holds what another array held before, so that a
compiler that shared the two would have had less to write. Followed from the result backwards,
into fusions and asynchronous operations, through everything that only moves data.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Final

from assay.hlo.module import Instruction
from assay.hlo.values import Site, Value, behind, renamed
from assay.model.buffers import Content

_CARRIERS: Final = frozenset({"async-start", "fusion"})
_CHOICES: Final = frozenset({"concatenate", "select"})
# A reshape that a compiler leaves by itself changes the tiles; in a fusion it only counts anew.
_RETILES: Final = frozenset({"copy", "copy-start", "reshape"})
_REARRANGES: Final = frozenset({"convert", "pad", "reverse", "slice", "transpose"})
_UPDATES: Final = frozenset({"dynamic-update-slice", "scatter"})
_WRITTEN_BY_ASYNC: Final = 1  # of an async-start's result; element 0 repeats the operands
_WRITTEN_BY_COPY: Final = 0  # of a copy-start's result; the source comes after it


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What an array is filled with.

    ``base`` is the value that it takes its elements from, None for new ones. ``rearranged`` tells
    whether elements change place or type on the way, so that not even shared memory spares the
    writing. ``by`` is the operation nearest to the result that does more than view it, None if the
    array is the base itself.
    """

    content: Content
    base: Value | None
    rearranged: bool
    by: Instruction | None


def written(instruction: Instruction) -> list[tuple[int, ...]]:
    """Paths of the arrays that an instruction writes, within its result."""
    if instruction.opcode == "copy-start":
        return [(_WRITTEN_BY_COPY,)]
    if instruction.opcode == "async-start":
        inside = instruction.shape.at((_WRITTEN_BY_ASYNC,))
        return [(_WRITTEN_BY_ASYNC, *path) for path, _ in inside.arrays()]
    return [path for path, _ in instruction.shape.arrays()]


def origin_of(instruction: Instruction, path: tuple[int, ...]) -> Origin:
    """What the array at ``path`` of an instruction's result is filled with.

    The base is a value of the instruction's own computation. An array counts as taken from a base
    if at least half of its elements come from there.
    """
    elements = prod(instruction.shape.at(path).dimensions)
    trail = _Trail(Content.COPY, rearranged=False, by=None, narrowest=elements)
    trail = _follow(Value(instruction, path), trail, instruction)
    if trail.base is None or 2 * trail.narrowest < elements:
        return Origin(content=Content.COMPUTED, base=None, rearranged=True, by=trail.by)
    return Origin(content=trail.content, base=trail.base, rearranged=trail.rearranged, by=trail.by)


@dataclass(frozen=True, slots=True)
class _Trail:
    """What was passed on the way from the result; ``narrowest`` is the fewest elements of it."""

    content: Content
    rearranged: bool
    by: Instruction | None
    narrowest: int
    base: Value | None = None


def _follow(value: Value, trail: _Trail, start: Instruction) -> _Trail:
    """The trail to a value outside of ``start``, or to one that is computed anew."""
    while value.site is not None or value.instruction is start:
        if (seen := _seen_through(value)) is not None:
            value = seen
            continue
        trail = replace(trail, by=trail.by or value.instruction)
        if value.instruction.opcode in _CHOICES:
            return _follow_widest(value, trail, start)
        step = _moved_from(value, trail)
        if step is None:
            return trail
        value, trail = step
    return replace(trail, base=value)


def _seen_through(value: Value) -> Value | None:
    """The value behind a fusion, a start, a parameter of theirs, or a view; None behind others."""
    instruction, path, site = value.instruction, value.path, value.site
    opcode = instruction.opcode
    if opcode in _CARRIERS:
        inner = path[1:] if opcode == "async-start" else path
        return Value(instruction.called[0].root, inner, Site(instruction, site))
    if opcode == "parameter" and site is not None:
        return Value(site.caller.operands[instruction.parameter_number], path, site.outer)
    if (opcode == "bitcast-convert" and _keeps_width(instruction)) or (
        opcode == "reshape" and site is not None
    ):
        return Value(instruction.operands[0], path, site)
    return renamed(value)


def _moved_from(value: Value, trail: _Trail) -> tuple[Value, _Trail] | None:
    """One step back through an operation that moves the elements of its first operand."""
    instruction, site = value.instruction, value.site
    opcode = instruction.opcode
    if opcode in _RETILES:
        moved = trail.rearranged or (opcode != "reshape" and _changes_layout(instruction))
        path = value.path[1:] if opcode == "copy-start" else value.path
        return Value(instruction.operands[0], path, site), replace(trail, rearranged=moved)
    if opcode in _UPDATES:
        base = instruction.operands[value.path[0] if value.path else 0]
        return Value(base, (), site), replace(trail, content=Content.UPDATE)
    if opcode in _REARRANGES or opcode == "bitcast-convert":
        operand = instruction.operands[0]
        narrowest = min(trail.narrowest, prod(instruction.shape.dimensions))
        content = Content.UPDATE if opcode == "pad" else trail.content
        return Value(operand, (), site), replace(
            trail, content=content, rearranged=True, narrowest=narrowest
        )
    return None


def _follow_widest(value: Value, trail: _Trail, start: Instruction) -> _Trail:
    """Through a choice between arrays, or a row of them: the one that most elements come from."""
    instruction = value.instruction
    operands = instruction.operands[1:] if instruction.opcode == "select" else instruction.operands
    chosen = replace(trail, content=Content.UPDATE, rearranged=True)
    trails = [
        _follow(
            Value(operand, (), value.site),
            replace(chosen, narrowest=min(trail.narrowest, prod(operand.shape.dimensions))),
            start,
        )
        for operand in dict.fromkeys(operands)
    ]
    found = [each for each in trails if each.base is not None]
    if instruction.opcode == "select":
        # Between arrays that the computation made itself, a choice is arithmetic.
        found = [each for each in found if each.base and _is_handed_in(each.base)]
    return max(found, key=lambda each: each.narrowest, default=trail)


def _is_handed_in(value: Value) -> bool:
    """Whether a value is, under another name, a parameter of its computation."""
    return behind(value).instruction.opcode == "parameter"


def _keeps_width(instruction: Instruction) -> bool:
    return instruction.shape.nbytes == instruction.operands[0].shape.nbytes


def _changes_layout(instruction: Instruction) -> bool:
    source = instruction.operands[0]
    return bool(instruction.layout) and source.layout != instruction.layout
