"""What XLA's CPU compiler leaves to libraries, and the most that those allocate by themselves.

The compiler's report of memory and its buffer assignment have no bytes of theirs. YNNPACK computes
the fusions of kind ``kCustom``. Its scheduler computes some of the results inside whole and some in
tiles, and the module does not show which. The bound is therefore all of them at once, in 32 bits
where floats are narrower, and a copy of what a product or a convolution reads. Eigen and YNNPACK
both may lay out every window of a convolution. docs/cpu-memory.md has the measurements.

Blocks of products and of sums of all elements, which follow the caches and the cores and not the
arrays, are not in the bound.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation, Module
from assay.hlo.opcodes import RUNS, opcodes
from assay.hlo.schema import MalformedModule

_LIBRARY: Final = "kCustom"
_COMPUTES: Final = RUNS | opcodes("async-start convolution fusion")
_VIEWS: Final = opcodes("bitcast broadcast get-tuple-element reshape tuple")
_LAYOUT: Final = opcodes("constant convert parameter transpose")
"""A product that is alone in its fusion but for these is computed in blocks."""
_NOT_ELEMENTWISE: Final = opcodes("convolution dot iota pad reduce reduce-window transpose")
"""Of the operations that the library takes."""
_NARROW: Final = frozenset({"bf16", "f16"})
_BYTES: Final = frozenset({"s8", "u8"})
"""Integers that a product of their own copies, to make them signed or unsigned."""


def library_bytes(module: Module) -> int:
    """The most that libraries hold at once in a run of a module compiled for a CPU."""
    return _Held().by(module.entry)


@dataclass(frozen=True, slots=True)
class _Held:
    """The bytes by computation; each is read once."""

    _known: dict[Computation, int] = field(default_factory=dict)

    def by(self, computation: Computation) -> int:
        """The most that the libraries that a computation calls hold at once.

        XLA's CPU client runs calls at the same time if none waits for another. A chain of calls,
        each of which waits for the one before, holds no more than its largest call.
        """
        if computation not in self._known:
            self._known[computation] = self._by_chains(computation)
        return self._known[computation]

    def _by_chains(self, computation: Computation) -> int:
        calls = {each.id: each for each in computation.of(_COMPUTES)}
        held = {identifier: self._during(each) for identifier, each in calls.items()}
        if not any(held.values()):
            return 0
        largest: list[int] = []
        lengths: list[int] = []
        reached: dict[int, dict[int, int]] = {}  # Of each instruction: how far along each chain.
        for instruction in computation.instructions:
            before: dict[int, int] = {}
            for each in (*instruction.operands, *instruction.control_predecessors):
                for chain, length in reached.get(each.id, {}).items():
                    before[chain] = max(length, before.get(chain, 0))
            if nbytes := held.get(instruction.id, 0):
                ends = (chain for chain, length in before.items() if length == lengths[chain])
                chain = next(ends, len(lengths))
                if chain == len(lengths):
                    largest.append(0)
                    lengths.append(0)
                largest[chain] = max(largest[chain], nbytes)
                lengths[chain] = before[chain] = lengths[chain] + 1
            reached[instruction.id] = before
        return sum(largest)

    def _during(self, instruction: Instruction) -> int:
        if instruction.opcode == "fusion":
            is_library = instruction.fusion_kind == _LIBRARY
            return _inside(instruction.called[0]) if is_library else 0
        if instruction.opcode == "convolution":
            return _windows(instruction)
        return max(map(self.by, instruction.called), default=0)


def _inside(fused: Computation) -> int:
    """All results inside a fusion but its own, and the largest copy that one of them reads."""
    if _is_one_number(fused):
        return 0
    outside = set(_own(fused.root))
    inside = fused.but(_VIEWS)
    made = [each for each in inside if each.opcode != "parameter"]
    results = sum(_nbytes(each) for each in made if each not in outside)
    is_alone = sum(each.opcode not in _LAYOUT for each in inside) == 1
    return results + max((_copied(each, is_alone=is_alone) for each in made), default=0)


def _is_one_number(fused: Computation) -> bool:
    """Whether it reduces all elements of arrays of one shape, which the library reads in blocks."""
    others = fused.of(_NOT_ELEMENTWISE)
    spread = (each.operands[0].shape for each in fused.of(opcodes("broadcast")))
    made = (each.shape for each in (*others, fused.root))
    return (
        [each.opcode for each in others] == ["reduce"]
        and not any(each.dimensions or each.elements for each in made)
        and not any(each.dimensions for each in spread)
    )


def _own(root: Instruction) -> Iterator[Instruction]:
    """The instructions that write the result of a fusion, whose memory the compiler reports."""
    yield root
    while root.opcode in {"bitcast", "reshape"}:
        root = root.operands[0]
        yield root


def _copied(instruction: Instruction, *, is_alone: bool) -> int:
    if instruction.opcode == "convolution":
        return _windows(instruction)
    if instruction.opcode != "dot":
        return 0
    left, right = instruction.operands[:2]
    if not is_alone:
        return _nbytes(right)
    # It copies blocks of floats.
    return sum(_nbytes(each) for each in (left, right) if each.shape.element_type in _BYTES)


def _windows(convolution: Instruction) -> int:
    """Every window of a convolution laid out, and copies of what it reads and makes."""
    image, kernel = convolution.operands[:2]
    axes = convolution.convolution
    if axes is None:
        raise MalformedModule("got a convolution without its dimensions; dump the module again")
    made = convolution.shape.dimensions
    positions = made[axes.output_batch_dimension]
    positions *= prod(made[each] for each in axes.output_spatial_dimensions)
    taps = prod(each.size for each in convolution.window)
    elements: int = positions * taps * image.shape.dimensions[axes.input_feature_dimension]
    width = _nbytes(image) // max(prod(image.shape.dimensions), 1)
    return elements * width + _nbytes(image) + _nbytes(kernel) + _nbytes(convolution)


def _nbytes(instruction: Instruction) -> int:
    shape = instruction.shape
    scale = 2 if shape.element_type in _NARROW else 1
    return scale * shape.nbytes
