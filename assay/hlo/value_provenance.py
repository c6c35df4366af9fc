"""Value provenance: where the values of an array that an instruction writes come from.

An array that is written whole may repeat what another array held. If the two shared their memory,
less would be written. The search goes backwards from the result, into fusions and asynchronous
operations, through everything that only moves data.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.opcodes import UPDATES
from assay.hlo.values import Value, argument, behind, entered, last, renamed
from assay.model.module import Shape
from assay.model.summary import Content

# A TPU concatenates by the maximum, or the union, of arrays that are padded to the whole.
_JOINS: Final = frozenset({"add", "maximum", "or"})
# A reshape outside of fusions changes the tiles; inside a fusion it only renumbers elements.
_RETILES: Final = frozenset({"copy", "copy-start", "reshape", "transpose"})
_REARRANGES: Final = frozenset({"bitcast-convert", "convert", "pad", "reverse", "slice"})
_OTHERS: Final = frozenset({"async-start", "concatenate", "custom-call", "fusion", "select"})
REPEATS: Final = _RETILES | _REARRANGES | UPDATES | _OTHERS
"""Opcodes whose results may repeat another array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The value ``base`` whose elements an array repeats.

    If ``rearranged``, elements change their place or type, so that they are written even in shared
    memory. If ``chosen``, a select takes them from one array or another. ``by`` is the operation
    nearest to the result that does more than view it, None if the array is the base itself.
    """

    content: Content
    base: Value
    rearranged: bool
    chosen: bool
    by: Instruction | None


def written(instruction: Instruction) -> list[tuple[int, ...]]:
    """Paths of the arrays that an instruction writes, within its result."""
    opcode, shape = instruction.opcode, instruction.shape
    if opcode == "copy-start":  # its elements are the copy, the source and its context
        return [(0,)] if shape.elements else [()]
    if opcode == "copy" and shape.elements:
        return []  # a copy of a tuple repeats where its elements are
    paths = [path for path, _ in shape.arrays()]
    if opcode == "async-start":  # its elements are its operands, its result and its context
        return [path for path in paths if path[0] == 1]
    return paths


def origin_of(
    instruction: Instruction, path: tuple[int, ...], *, views_bits: bool = True
) -> Origin | None:
    """What the array at ``path`` of an instruction's result repeats; None for computed values.

    The base is a value of the instruction's own computation. At least half of the elements come
    from the base, more than half if the array is larger, and they are no small part of the base.
    With ``views_bits`` a bitcast-convert to a type of the same width is a view, else it writes.
    """
    search = _Search(instruction, views_bits=views_bits)
    value, trail = search.back(Value(instruction, path))
    shares = search.shares(value, trail)
    if not shares:
        return None
    base, chosen = source = max(shares, key=shares.__getitem__)
    if not _is_taken(instruction.shape.at(path), base, shares[source], trail):
        return None
    forks = search.is_within(value)
    return Origin(
        content=Content.UPDATE if forks else trail.content,
        base=base,
        rearranged=forks or trail.rearranged,
        chosen=chosen,
        by=trail.by or (value.instruction if forks else None),
    )


@dataclass(frozen=True, slots=True)
class _Trail:
    """The way back from a result: its operations, and the fewest elements on it."""

    narrowest: int
    content: Content = Content.COPY
    rearranged: bool = False
    by: Instruction | None = None


_Source = tuple[Value, bool]
"""An array that elements come from, and whether a select on the way decides that."""

_Shares = Mapping[_Source, int]
"""The largest number of elements of a value that come from each array outside."""


def _is_taken(shape: Shape, source: Value, elements: int, trail: _Trail) -> bool:
    """Whether an array of ``shape`` is, for the most part, what its source was."""
    if behind(source).instruction.allocates:
        return False  # filling new memory part by part makes a new array
    base = source.shape
    has_room = base.nbytes >= shape.nbytes or _elements(base) >= _elements(shape)
    is_small_part = 2 * trail.narrowest <= _elements(base) and 2 * shape.nbytes <= base.nbytes
    # Half of a larger array does not make it a copy: the other half may come from another array.
    is_most = 2 * elements > _elements(shape) or (has_room and 2 * elements == _elements(shape))
    return is_most and not is_small_part


class _Search:
    """The search for the arrays outside of an instruction that its results repeat."""

    def __init__(self, start: Instruction, *, views_bits: bool) -> None:
        self._start = start
        self._views_bits = views_bits
        self._known: dict[Value, _Shares] = {}

    def is_within(self, value: Value) -> bool:
        """Whether a value is made by the instruction itself, or inside of it."""
        return bool(value.callers) or value.instruction is self._start

    def back(self, value: Value) -> tuple[Value, _Trail]:
        """Back to a value outside, to a newly computed one, or to a fork of the path."""
        trail = _Trail(_elements(value.shape))
        while self.is_within(value):
            writes_bits = value.instruction.opcode == "bitcast-convert" and not self._views_bits
            if not writes_bits and (seen := _seen_through(value)) is not None:
                value = seen
            elif (moved := _moved_from(value, trail)) is not None:
                value, trail = moved
            else:
                break
        return value, trail

    def shares(self, value: Value, trail: _Trail) -> _Shares:
        """The sources of what a trail led back to."""
        if not self.is_within(value):
            return {(value, False): trail.narrowest}
        found = Counter[_Source]()
        if value.instruction.opcode == "select":
            found.update(self._chosen(value))
        elif _is_joined(value):
            for operand in value.operands:
                found.update(self._of(operand))
        return {source: min(elements, trail.narrowest) for source, elements in found.items()}

    def _of(self, value: Value) -> _Shares:
        """The sources of a value, which is followed once."""
        if value not in self._known:
            self._known[value] = self.shares(*self.back(value))
        return self._known[value]

    def _chosen(self, value: Value) -> _Shares:
        """The arrays that a select repeats, among the parameters of its computation.

        If the place of an element decides, one side is an update of the other. If one scalar
        decides for all elements, each side must repeat arrays, or the result is computed. If values
        decide, the select is arithmetic, as a relu is, except between two states of one array.
        """
        either = [
            {
                (base, True): elements
                for (base, _), elements in side.items()
                if behind(base).instruction.opcode == "parameter"
            }
            for side in (self._of(value.operand(1)), self._of(value.operand(2)))
        ]
        shape = value.instruction.shape
        decides = _decides(value.operand(0))
        if decides is _Decides.SCALAR and any(
            2 * sum(side.values()) <= _elements(shape) for side in either
        ):
            return {}
        merge = min if decides is _Decides.VALUES else max
        found = either[0].keys() | either[1].keys()
        return {source: merge(side.get(source, 0) for side in either) for source in found}


def _is_joined(value: Value) -> bool:
    """Whether a value is a concatenation of arrays."""
    if value.instruction.opcode in _JOINS:
        behind_views = [last(each, _seen_through).instruction for each in value.operands]
        return all(each.opcode == "pad" for each in behind_views)
    return value.instruction.opcode == "concatenate"


class _Decides(Enum):
    """What decides which side of a select an element is taken from."""

    PLACE = "where the element lies"
    SCALAR = "one scalar for all elements"
    VALUES = "the values of arrays"


def _decides(truth: Value) -> _Decides:
    """What a select's predicate is computed from."""
    pending, seen, decides = [truth], {truth}, _Decides.SCALAR
    while pending:
        value = last(pending.pop(), _seen_through)
        instruction = value.instruction
        if not value.shape.dimensions:
            continue
        if instruction.opcode == "iota":
            decides = _Decides.PLACE
        elif instruction.opcode == "parameter" or (
            instruction.called or instruction.opcode == "custom-call"
        ):
            return _Decides.VALUES
        pending.extend(each for each in value.operands if each not in seen)
        seen.update(value.operands)
    return decides


def _seen_through(value: Value) -> Value | None:
    """The value behind a fusion, a start, a parameter of theirs, or a view; None behind others."""
    instruction = value.instruction
    opcode = instruction.opcode
    same_width = opcode == "bitcast-convert" and (
        instruction.shape.nbytes == instruction.operands[0].shape.nbytes
    )
    if same_width or (opcode == "reshape" and value.callers):
        return value.operand(0, value.path)
    if opcode in {"async-start", "fusion"}:
        return entered(value)
    return argument(value) or renamed(value)


def _moved_from(value: Value, trail: _Trail) -> tuple[Value, _Trail] | None:
    """One step back through an operation that moves the elements of one of its operands."""
    instruction, path, opcode = value.instruction, value.path, value.instruction.opcode
    number, source = 0, tuple[int, ...]()
    trail = replace(trail, by=trail.by or instruction)
    if opcode in _RETILES:
        source = path[1:] if opcode == "copy-start" else path
        trail = replace(trail, rearranged=trail.rearranged or _moves_elements(instruction))
    elif opcode in UPDATES:
        number = path[0] if path else 0
        trail = replace(trail, content=Content.UPDATE)
    elif opcode in _REARRANGES:
        sizes = (_elements(instruction.shape), _elements(instruction.operands[0].shape))
        trail = replace(trail, rearranged=True, narrowest=min(trail.narrowest, *sizes))
        if opcode == "pad":
            trail = replace(trail, content=Content.UPDATE)
    elif opcode == "custom-call" and path in instruction.overwrites:
        # Only its author knows what a kernel does; one that updates a part declares the alias.
        number, source = instruction.overwrites[path]
        trail = replace(trail, content=Content.UPDATE)
    else:
        return None
    return value.operand(number, source), trail


def _moves_elements(instruction: Instruction) -> bool:
    """Whether an array's elements lie in another order than its operand's, by their layouts."""
    layout, source = instruction.layout, instruction.operands[0].layout
    if instruction.opcode == "transpose":
        order = instruction.dimensions
        return not layout or tuple(order[dimension] for dimension in layout) != source
    return instruction.opcode != "reshape" and bool(layout) and source != layout


def _elements(shape: Shape) -> int:
    return prod(shape.dimensions)
