"""Asynchronous operations in a schedule: start and done, bytes moved, the work meanwhile."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from assay.hlo.cost_analysis import FREE, STARTS, CostAnalysis, Fused, fusion_nbytes
from assay.hlo.host_transfers import host_transfers
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation
from assay.model.module import AsyncKind, Cost, Direction, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Part of a computation's schedule: after one instruction, before another; None is its end."""

    computation: Computation
    after: Instruction | None = None
    before: Instruction | None = None


class Timelines:
    """The work of the parts of schedules that it is made with; each instruction's counted once."""

    def __init__(self, spans: Iterable[Span], costs: CostAnalysis) -> None:
        by_computation: dict[Computation, list[Span]] = {}
        for span in spans:
            by_computation.setdefault(span.computation, []).append(span)
        self._timelines: Mapping[Computation, _Timeline] = {
            computation: _Timeline(computation, each, costs)
            for computation, each in by_computation.items()
            if computation.order is not None
        }

    def cost(self, spans: Iterable[Span]) -> Cost | None:
        """The work of all these parts; None if one is unknown or not scheduled."""
        total = Cost()
        for span in spans:
            timeline = self._timelines.get(span.computation)
            part = None if timeline is None else timeline.cost(span)
            if part is None:
                return None
            total = total.plus(part)
        return total


class _Timeline:
    """The work of one computation's schedule, summed from its beginning where a pair needs it."""

    def __init__(
        self, computation: Computation, spans: Iterable[Span], costs: CostAnalysis
    ) -> None:
        order = computation.order or ()
        self._positions = {identifier: at for at, identifier in enumerate(order)}
        wanted = [0] * (len(order) + 1)
        for span in spans:
            first, end = self._limits(span)
            wanted[first] += 1
            wanted[max(first, end)] -= 1
        parts = [
            costs.cost(computation.instruction(identifier))
            if covered and computation.opcode(identifier) not in FREE
            else Cost()
            for identifier, covered in zip(order, accumulate(wanted), strict=False)
        ]
        self._flops = [0, *accumulate(part.flops if part else 0 for part in parts)]
        self._nbytes = [0, *accumulate(part.nbytes if part else 0 for part in parts)]
        self._unknown = [0, *accumulate(part is None for part in parts)]

    def cost(self, span: Span) -> Cost | None:
        """The work of a part; None if that of an instruction in it is unknown."""
        first, end = self._limits(span)
        if end <= first:
            return Cost()
        if self._unknown[end] > self._unknown[first]:
            return None
        return Cost(
            flops=self._flops[end] - self._flops[first],
            nbytes=self._nbytes[end] - self._nbytes[first],
        )

    def _limits(self, span: Span) -> tuple[int, int]:
        first = 0 if span.after is None else self._positions[span.after.id] + 1
        end = len(self._positions) if span.before is None else self._positions[span.before.id]
        return first, end


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
