"""Upper bound of the memory that libraries allocate in a program of XLA's CPU compiler.

The compiler's memory report does not include it. YNNPACK computes the fusions of kind `kCustom`.
Its scheduler makes some of their inner results whole and others in tiles; the module does not show
which. So the bound counts all of them at once, narrower floats as 32 bits, and a copy of what a
product or a convolution reads. Eigen and YNNPACK both may lay out every window of a convolution.

Measured with jax 0.10.2 and 0.12.0.1 on two cores, by counting `malloc` (docs/cpu-memory.md):
libraries allocate at most this bound, plus up to 27 MiB for blocks of products and of sums of all
elements. The bound omits these blocks: their size follows the caches and cores, not the arrays.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["library_bytes"]

_LOCAL_ID = 0xFFFF_FFFF

_FIXED = {1: 8, 5: 4}
"""Bytes of a field by its wire type; other fields are an integer or begin with their length."""

_MORE = 0x80
"""The bit of an integer's byte that says that another byte follows."""

_WIDTHS = {1: 1, 2: 1, 3: 2, 5: 8, 6: 1, 7: 2, 9: 8, 12: 8, 15: 8, 18: 16}
"""Bytes of an element by `PrimitiveType` of xla_data.proto; 4 for all other types."""

_KINDS_OF_NUMBERS = frozenset({*range(1, 13), 15, 16, 18})
"""`PrimitiveType`s without tuples, tokens and types that the library does not accept."""

_BYTES = frozenset({2, 6})
"""8-bit integers: a product alone in its fusion copies them to make them signed or unsigned."""

_VIEWS = frozenset({"bitcast", "broadcast", "get-tuple-element", "reshape", "tuple"})
"""Operations whose results take no memory of their own."""

_LAYOUT = frozenset({"constant", "convert", "parameter", "transpose"})
"""A product is computed in blocks if its fusion has only these operations besides it."""

_NOT_ELEMENTWISE = frozenset(
    {"convolution", "dot", "iota", "pad", "reduce", "reduce-window", "transpose"}
)
"""Operations that the library accepts and that are not elementwise."""

_RUNS = frozenset({"async-start", "call", "conditional", "while"})


def library_bytes(module: bytes) -> int:
    """Most bytes that libraries hold at once in a serialized HloModuleProto compiled for a CPU."""
    message = _Message.read(module)
    found = [_Computation(message=_Message.read(each)) for each in message.parts(3)]
    computations = {each.identifier: each for each in found}
    return _Module(computations=computations).held_by(message.number(6))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """The fields of a protobuf message, by their numbers."""

    fields: Mapping[int, Sequence[int | bytes]]

    @classmethod
    def read(cls, data: bytes) -> _Message:
        fields: dict[int, list[int | bytes]] = defaultdict(list)
        at = 0
        while at < len(data):
            key, at = _varint(data, at)
            number, kind = key >> 3, key & 7
            if kind in _FIXED:
                length = _FIXED[kind]
            else:
                length, at = _varint(data, at)
                if kind == 0:
                    fields[number].append(length)
                    continue
            fields[number].append(data[at : at + length])
            at += length
        return cls(fields=fields)

    def parts(self, field: int) -> Iterator[bytes]:
        """The messages or strings of a field."""
        return (each for each in self.fields.get(field, ()) if isinstance(each, bytes))

    def part(self, field: int) -> bytes:
        return next(self.parts(field), b"")

    def numbers(self, field: int) -> Iterator[int]:
        """The integers of a field, packed or not."""
        for each in self.fields.get(field, ()):
            if isinstance(each, int):
                yield each
                continue
            at = 0
            while at < len(each):
                value, at = _varint(each, at)
                yield value

    def number(self, field: int, default: int = 0) -> int:
        return next(self.numbers(field), default)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The integer at `at`, and the position after it."""
    value = shift = 0
    while data[at] & _MORE:
        value |= (data[at] & ~_MORE) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


class _Instruction:
    """An instruction, read from an HloInstructionProto."""

    def __init__(self, data: bytes) -> None:
        self.message = _Message.read(data)
        self.opcode = self.message.part(2).decode()
        self.identifier = self.message.number(35) & _LOCAL_ID
        self.operands = [each & _LOCAL_ID for each in self.message.numbers(36)]
        self.after = [*self.operands, *(each & _LOCAL_ID for each in self.message.numbers(37))]
        self.called = list(self.message.numbers(38))

    @property
    def is_library_fusion(self) -> bool:
        return self.opcode == "fusion" and self.message.part(11) == b"kCustom"

    @cached_property
    def shape(self) -> _Message:
        return _Message.read(self.message.part(3))

    @property
    def dimensions(self) -> list[int]:
        return list(self.shape.numbers(3))

    @property
    def is_number(self) -> bool:
        """Whether its result is a scalar; a tuple has no dimensions either."""
        return not self.dimensions and self.shape.number(2) in _KINDS_OF_NUMBERS

    @property
    def width(self) -> int:
        return _WIDTHS.get(self.shape.number(2), 4)

    @property
    def nbytes(self) -> int:
        """Bytes of its result, an array."""
        return math.prod(self.dimensions) * self.width


@dataclass(frozen=True, kw_only=True)
class _Computation:
    """An HloComputationProto; operands come before the instructions that read them.

    Instructions are parsed on demand, because most are in fusions that no library computes. For a
    GPT of 8 layers, parsing all of them took 29 % of memsafe's own time.
    """

    message: _Message

    @property
    def identifier(self) -> int:
        return self.message.number(5)

    @property
    def root(self) -> int:
        return self.message.number(6) & _LOCAL_ID

    @cached_property
    def instructions(self) -> Mapping[int, _Instruction]:
        found = map(_Instruction, self.message.parts(2))
        return {each.identifier: each for each in found}

    def operands(self, instruction: _Instruction) -> list[_Instruction]:
        return [self.instructions[each] for each in instruction.operands]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Module:
    computations: Mapping[int, _Computation]
    known: dict[int, int] = field(default_factory=dict)

    def held_by(self, identifier: int) -> int:
        """Most bytes that libraries hold at once while a computation runs.

        XLA's CPU client runs independent calls at the same time. In a chain, each call waits for
        the one before, so a chain holds at most the bytes of its largest call.
        """
        if identifier not in self.known:
            self.known[identifier] = self._held_by(self.computations[identifier])
        return self.known[identifier]

    def _held_by(self, computation: _Computation) -> int:
        largest: list[int] = []
        lengths: list[int] = []
        reached: dict[int, dict[int, int]] = {}  # By instruction, by chain: calls so far.
        for instruction in computation.instructions.values():
            before: dict[int, int] = {}
            for each in instruction.after:
                for chain, length in reached.get(each, {}).items():
                    before[chain] = max(length, before.get(chain, 0))
            nbytes = self._held_during(instruction, computation)
            if nbytes:
                ends = (chain for chain, length in before.items() if length == lengths[chain])
                chain = next(ends, len(lengths))
                if chain == len(lengths):
                    largest.append(0)
                    lengths.append(0)
                largest[chain] = max(largest[chain], nbytes)
                lengths[chain] = before[chain] = lengths[chain] + 1
            reached[instruction.identifier] = before
        return sum(largest)

    def _held_during(self, instruction: _Instruction, computation: _Computation) -> int:
        if instruction.is_library_fusion:
            return _held_in(self.computations[instruction.called[0]])
        if instruction.opcode == "convolution":
            return _windows(instruction, computation)
        if instruction.opcode in _RUNS:
            return max(map(self.held_by, instruction.called))
        return 0


def _held_in(fused: _Computation) -> int:
    """Bytes of the results inside a fusion without its own, and the largest copy of operands."""
    if _is_one_number(fused):
        return 0
    own = fused.instructions[fused.root]
    outside = {own.identifier}
    while own.opcode in {"bitcast", "reshape"}:
        (own,) = fused.operands(own)
        outside.add(own.identifier)
    inside = [each for each in fused.instructions.values() if each.opcode not in _VIEWS]
    made = [each for each in inside if each.opcode != "parameter"]
    results = sum(each.nbytes for each in made if each.identifier not in outside)
    is_alone = sum(each.opcode not in _LAYOUT for each in inside) == 1
    return results + max((_copied(each, fused, is_alone=is_alone) for each in made), default=0)


def _is_one_number(fused: _Computation) -> bool:
    """Whether a fusion reduces arrays of one shape to a number; the library does so in blocks."""
    found = list(fused.instructions.values())
    others = [each for each in found if each.opcode in _NOT_ELEMENTWISE]
    spread = (fused.operands(each)[0] for each in found if each.opcode == "broadcast")
    made = (*others, fused.instructions[fused.root])
    return (
        [each.opcode for each in others] == ["reduce"]
        and all(each.is_number for each in made)
        and not any(each.dimensions for each in spread)
    )


def _copied(instruction: _Instruction, fused: _Computation, *, is_alone: bool) -> int:
    if instruction.opcode == "convolution":
        return _windows(instruction, fused)
    if instruction.opcode != "dot":
        return 0
    left, right = fused.operands(instruction)
    if not is_alone:
        return right.nbytes
    # The library copies floats in blocks, which do not count.
    return sum(each.nbytes for each in (left, right) if each.shape.number(2) in _BYTES)


def _windows(convolution: _Instruction, computation: _Computation) -> int:
    """Bytes of every window of a convolution, and of copies of its operands and result."""
    message = convolution.message
    axes = _Message.read(message.part(16))
    sizes = (_Message.read(each).number(1, 1) for each in _Message.read(message.part(15)).parts(1))
    image, kernel = computation.operands(convolution)
    made = convolution.dimensions
    positions = made[axes.number(9)] * math.prod(made[each] for each in axes.numbers(12))
    windows = positions * math.prod(sizes) * image.dimensions[axes.number(8)]
    return windows * image.width + image.nbytes + kernel.nbytes + convolution.nbytes
