"""Begun: what an asynchronous start occupies, and how many bytes it moves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.moves import moves
from assay.hlo.work import STARTS, Fused, fusion_nbytes
from assay.model.module import Direction, Shape
from assay.model.overlap import AsyncKind

COLLECTIVES: Final = frozenset(
    {
        "all-gather",
        "all-reduce",
        "all-to-all",
        "collective-broadcast",
        "collective-permute",
        "ragged-all-to-all",
        "recv",
        "reduce-scatter",
        "send",
    }
)
"""Opcodes that talk to other devices."""

_COLLECTIVE_STARTS: Final = STARTS - {"async-start", "copy-start"}
_COPIES: Final = frozenset(
    {
        "bitcast",
        "constant",
        "copy",
        "dynamic-slice",
        "dynamic-update-slice",
        "fusion",
        "get-tuple-element",
        "parameter",
        "reshape",
        "slice",
        "transpose",
        "tuple",
    }
)
_KINDS: Final = {
    Direction.TO_HOST: AsyncKind.TO_HOST,
    Direction.TO_DEVICE: AsyncKind.TO_DEVICE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What a start begins; ``by`` is the operation that does it."""

    kind: AsyncKind
    nbytes: int
    by: Instruction


def begun(start: Instruction) -> Sequence[Begun]:
    """What a start, or a collective by itself, begins; two things if it moves bytes both ways."""
    if start.opcode in _COLLECTIVE_STARTS | COLLECTIVES and not start.is_host_transfer:
        return [_collective(start)]
    inside = list(_inside(start))
    collective = next((each for each in inside if each.opcode in COLLECTIVES), None)
    if collective is not None:
        return [_collective(collective)]
    links = _over_host_links(start)
    if links or start.opcode in {"recv", "send"}:
        return links
    if not inside:
        return [Begun(kind=AsyncKind.COPY, nbytes=start.operands[0].shape.nbytes, by=start)]
    by = _main(start)
    if all(each.opcode in _COPIES for each in inside):
        written = Fused(start.called[0]).written()
        return [Begun(kind=AsyncKind.COPY, nbytes=written, by=by)]
    return [Begun(kind=AsyncKind.COMPUTE, nbytes=fusion_nbytes(start), by=by)]


def _collective(instruction: Instruction) -> Begun:
    """A collective moves what it reads or what it writes, whichever is more."""
    read = sum(operand.shape.nbytes for operand in instruction.operands)
    nbytes = max(read, _written(instruction).nbytes)
    return Begun(kind=AsyncKind.COLLECTIVE, nbytes=nbytes, by=instruction)


def _over_host_links(start: Instruction) -> list[Begun]:
    found: dict[Direction, Begun] = {}
    for move in moves(start):
        nbytes = move.nbytes + (found[move.direction].nbytes if move.direction in found else 0)
        found[move.direction] = Begun(kind=_KINDS[move.direction], nbytes=nbytes, by=move.by)
    return list(found.values())


def _inside(carrier: Instruction) -> Iterator[Instruction]:
    """All that a start or a fusion runs, if it is one that runs a computation as a whole."""
    if carrier.opcode not in {"async-start", "fusion"}:
        return
    for computation in carrier.called:
        for instruction in computation.instructions:
            yield instruction
            yield from _inside(instruction)


def _main(carrier: Instruction) -> Instruction:
    """The operation that makes a carrier's result."""
    while carrier.opcode in {"async-start", "bitcast", "fusion"}:
        carrier = carrier.called[0].root if carrier.called else carrier.operands[0]
    return carrier


def _written(instruction: Instruction) -> Shape:
    """Of a start's result the part that it writes; the rest repeats operands."""
    shape, opcode = instruction.shape, instruction.opcode
    if opcode in {"all-gather-start", "collective-permute-start"} and len(shape.elements) > 1:
        return shape.elements[1]
    if opcode in {"recv", "send"}:
        return shape.elements[0]
    return shape
