"""What an asynchronous start occupies, and how many bytes it moves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from assay.hlo.cost_analysis import STARTS, Fused, fusion_nbytes
from assay.hlo.host_transfers import host_transfers
from assay.hlo.instruction import Instruction
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
class AsyncStart:
    """What a start begins; ``by`` is the operation that does it."""

    kind: AsyncKind
    nbytes: int
    by: Instruction


def async_starts(start: Instruction) -> Sequence[AsyncStart]:
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
        return [AsyncStart(kind=AsyncKind.COPY, nbytes=start.operands[0].shape.nbytes, by=start)]
    by = _main(start)
    if all(each.opcode in _COPIES for each in inside):
        written = Fused(start.called[0]).written()
        return [AsyncStart(kind=AsyncKind.COPY, nbytes=written, by=by)]
    return [AsyncStart(kind=AsyncKind.COMPUTE, nbytes=fusion_nbytes(start), by=by)]


def _collective(instruction: Instruction) -> AsyncStart:
    """A collective moves what it reads or what it writes, whichever is more."""
    read = sum(operand.shape.nbytes for operand in instruction.operands)
    nbytes = max(read, _written(instruction).nbytes)
    return AsyncStart(kind=AsyncKind.COLLECTIVE, nbytes=nbytes, by=instruction)


def _over_host_links(start: Instruction) -> list[AsyncStart]:
    found: dict[Direction, AsyncStart] = {}
    for host_transfer in host_transfers(start):
        nbytes = host_transfer.nbytes + (
            found[host_transfer.direction].nbytes if host_transfer.direction in found else 0
        )
        found[host_transfer.direction] = AsyncStart(
            kind=_KINDS[host_transfer.direction], nbytes=nbytes, by=host_transfer.by
        )
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
