"""Overlap: which work the schedule puts between an asynchronous operation's start and its done.

A done is followed back to its start through all that only passes the start on, never by a name,
also around a loop that carries it: then the pair spans the end of one iteration and the beginning
of the next. Work of another asynchronous operation between the two does not count.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from assay.hlo.cost_analysis import CostAnalysis, total, traffic_inside
from assay.hlo.host_transfers import HOST_THREAD, host_transfers
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation, Module
from assay.hlo.opcodes import COLLECTIVES, DONES, FREE, STARTS, opcodes
from assay.hlo.trip_count import Executions, TripCounter
from assay.hlo.values import Value, last, renamed
from assay.model.module import AsyncKind, AsyncPair, Cost, Direction, Shape

_COLLECTIVE_STARTS: Final = STARTS - {"async-start", "copy-start"}
_COPIES: Final = opcodes(
    "bitcast constant copy dynamic-slice dynamic-update-slice fusion get-tuple-element parameter "
    "reshape slice transpose tuple"
)


@dataclass(frozen=True, slots=True)
class _Span:
    """Part of a computation's schedule: after one instruction, before another.

    None stands for the beginning, or the end, of the schedule.
    """

    computation: Computation
    after: Instruction | None = None
    before: Instruction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A start and a done, the schedule between them, and how often both run.

    ``by`` is the operation itself, where the start's opcode does not show it.
    """

    start: Instruction
    done: Instruction | None
    spans: tuple[_Span, ...]
    runs: Executions
    by: Instruction | None = None


def overlaps(
    module: Module, counts: Mapping[Computation, Executions], trips: TripCounter
) -> tuple[AsyncPair, ...]:
    """Every asynchronous operation that control flow reaches, by the computation of its done.

    One that is carried around a loop makes up to three pairs: into the loop, from one iteration to
    the next, and out of it. A start whose done is not found has ``done`` empty and no ``between``.
    """
    reached = [
        each
        for each in module.computations
        if each in counts and not each.is_inlined and each.execution_thread != HOST_THREAD
    ]
    pairs = [pair for each in reached for pair in _pairs_in(each, counts, trips)]
    matched = {pair.start for pair in pairs}
    for computation in reached:
        for start in computation.of(STARTS):
            if start not in matched:
                runs = counts[computation]
                pairs.append(_Pair(start=start, done=None, spans=(), runs=runs))
    ends = frozenset(end for each in pairs if each.by for end in (each.start, each.done) if end)
    spans = defaultdict[Computation, list[_Span]](list)
    for span in (span for pair in pairs for span in pair.spans):
        spans[span.computation].append(span)
    costs = CostAnalysis(trips, asynchronous=ends)
    timelines = {each: _Timeline(each, spans[each], costs) for each in spans}
    return tuple(record for pair in pairs for record in _records(pair, timelines))


class _Timeline:
    """The work of a computation's schedule; only instructions inside of a span are analysed."""

    def __init__(
        self, computation: Computation, spans: Sequence[_Span], costs: CostAnalysis
    ) -> None:
        self._is_scheduled = computation.order is not None
        order = computation.order or ()
        self._positions = {identifier: at for at, identifier in enumerate(order)}
        depth_changes = [0] * (len(order) + 1)
        for first, end in map(self._limits, spans if self._is_scheduled else ()):
            depth_changes[first] += 1
            depth_changes[max(first, end)] -= 1
        parts = [
            costs.cost(computation.instruction(identifier))
            if depth and computation.opcode(identifier) not in FREE
            else Cost()
            for identifier, depth in zip(order, accumulate(depth_changes), strict=False)
        ]
        known = (part or Cost() for part in parts)
        self._until = list(accumulate(known, Cost.__add__, initial=Cost()))
        self._unknown = [at for at, part in enumerate(parts) if part is None]

    def cost(self, span: _Span) -> Cost | None:
        """The work of a part; None if it is not scheduled, or if a cost in it is unknown."""
        if not self._is_scheduled:
            return None
        first, end = self._limits(span)
        if bisect_left(self._unknown, first) < bisect_left(self._unknown, end):
            return None
        return self._until[end] + self._until[first] * -1 if first < end else Cost()

    def _limits(self, span: _Span) -> tuple[int, int]:
        first = 0 if span.after is None else self._positions[span.after.id] + 1
        end = len(self._positions) if span.before is None else self._positions[span.before.id]
        return first, end


def _pairs_in(
    computation: Computation, counts: Mapping[Computation, Executions], trips: TripCounter
) -> Iterator[_Pair]:
    """The pairs whose dones are in a computation, in the order of the dones; then fusions."""
    for done in computation.of(DONES):
        for start, spans, runs in _possible_starts(done, counts, trips):
            if start.opcode in STARTS:
                yield _Pair(start=start, done=done, spans=spans, runs=runs)
    for fusions, collective in chains_of_fusions(computation):
        start, done = fusions[0], fusions[-1]
        yield _Pair(
            start=start,
            done=done,
            spans=(_Span(computation, after=start, before=done),),
            runs=counts[computation],
            by=collective,
        )


def _possible_starts(
    done: Instruction, counts: Mapping[Computation, Executions], trips: TripCounter
) -> Iterator[tuple[Instruction, tuple[_Span, ...], Executions]]:
    """What makes the value that a done awaits, the schedule between, and how often both run.

    In a loop's body, an earlier iteration or the code before the loop may have made the value.
    After a loop, its last iteration may have.
    """
    here, value = done.computation, _behind(Value(done.operands[0]))
    origin, path = value.instruction, value.path
    if origin.opcode == "while":
        body, condition = origin.called
        start = _behind(Value(body.root, path)).instruction
        rest = (_Span(condition), _Span(here, after=origin, before=done))
        runs = _once(counts[here], trips.count(origin).trips)
        yield start, (_Span(body, after=start), *rest), runs
    elif origin.opcode != "parameter":
        yield origin, (_Span(here, after=origin, before=done),), counts[here]
    elif (loop := _loop_around(here)) is not None and loop.computation in counts:
        outer, count = counts[loop.computation], trips.count(loop).trips
        rest = (_Span(loop.called[1]), _Span(here, before=done))
        before = _behind(Value(loop.operands[0], path)).instruction
        entering = _Span(loop.computation, after=before, before=loop)
        yield before, (entering, *rest), _once(outer, count)
        again = _behind(Value(here.root, path)).instruction
        runs = outer.times(None if count is None else max(0, count - 1))
        yield again, (_Span(here, after=again), *rest), runs


def _loop_around(body: Computation) -> Instruction | None:
    """The one loop whose body this computation is."""
    callers = body.module.callers.get(body, ())
    if len(callers) == 1 and callers[0].opcode == "while" and callers[0].called[0] is body:
        return callers[0]
    return None


def _once(outer: Executions, trips: int | None) -> Executions:
    """Once per run of a loop, if it runs at all."""
    if trips is None:
        return Executions(count=outer.count, at_most=True)
    return outer.times(min(trips, 1))


def chains_of_fusions(
    computation: Computation,
) -> Iterator[tuple[Sequence[Instruction], Instruction]]:
    """Fusions that together are one collective, each fed by an earlier one, and the collective.

    This is how a TPU writes an asynchronous collective: the first fusion begins it, others compute
    meanwhile, and the last awaits it. All name the same channel.
    """
    channels = defaultdict[int, list[tuple[Instruction, Instruction]]](list)
    for fusion in computation.of(opcodes("fusion")):
        for collective in fusion.called[0].of(COLLECTIVES):
            channels[collective.channel_id].append((fusion, collective))
    for channel, found in channels.items():
        fusions = [fusion for fusion, _ in found]
        if channel and len(fusions) > 1 and _is_chain(fusions):
            yield fusions, found[0][1]


def _is_chain(fusions: Sequence[Instruction]) -> bool:
    """Whether each is fed by one before it."""
    return all(
        any(_behind(Value(operand)).instruction in fusions[:at] for operand in fusion.operands)
        for at, fusion in enumerate(fusions)
        if at
    )


def _behind(value: Value) -> Value:
    """What makes a value, behind all that only passes it on within its computation."""
    return last(value, _passed_on)


def _passed_on(value: Value) -> Value | None:
    """The value before; a loop passes on the values that its body leaves unchanged."""
    instruction, path = value.instruction, value.path
    if instruction.opcode == "add-dependency":
        return Value(instruction.operands[0], path)
    if instruction.opcode == "while" and path:
        carried = _behind(Value(instruction.called[0].root, path))
        if carried.instruction.opcode == "parameter" and carried.path == path:
            return Value(instruction.operands[0], path)
    return renamed(value)


def _records(pair: _Pair, timelines: Mapping[Computation, _Timeline]) -> Iterator[AsyncPair]:
    """The pair as records, one for each direction in which it moves bytes."""
    start, done = pair.start, pair.done
    between = total(timelines[each.computation].cost(each) for each in pair.spans)
    for kind, nbytes, by in _operations(pair.by or start):
        yield AsyncPair(
            kind=kind,
            opcode=by.opcode,
            nbytes=nbytes,
            between=between if done else None,
            executions=pair.runs.count,
            at_most=pair.runs.at_most,
            computation=start.computation.name,
            start=start.name,
            done=done.name if done else "",
            source=source_line(start, by),
        )


def _operations(start: Instruction) -> Iterator[tuple[AsyncKind, int, Instruction]]:
    """What a start, or a collective by itself, begins: its kind, its bytes and the operation."""
    inside = list(_inside(start))
    collective = next((each for each in inside if each.opcode in COLLECTIVES), None)
    if start.opcode in _COLLECTIVE_STARTS | COLLECTIVES and not start.is_host_transfer:
        collective = start
    if collective is not None:
        read = sum(operand.shape.nbytes for operand in collective.operands)
        yield AsyncKind.COLLECTIVE, max(read, _written(collective).nbytes), collective
        return
    moved: dict[Direction, tuple[int, Instruction]] = {}
    for transfer in host_transfers(start):
        nbytes, _ = moved.get(transfer.direction, (0, start))
        moved[transfer.direction] = nbytes + transfer.nbytes, transfer.by
    for direction, (nbytes, by) in moved.items():
        yield AsyncKind(direction.value), nbytes, by
    if moved or start.opcode in {"recv", "send"}:
        return
    if not inside:
        yield AsyncKind.COPY, start.operands[0].shape.nbytes, start
    elif all(each.opcode in _COPIES for each in inside):
        yield AsyncKind.COPY, traffic_inside(start).written, _main(start)
    else:
        yield AsyncKind.COMPUTE, traffic_inside(start).nbytes, _main(start)


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


def _written(collective: Instruction) -> Shape:
    """The part of a collective's result that it writes; the rest of a start's repeats operands."""
    shape, opcode = collective.shape, collective.opcode
    if opcode in {"all-gather-start", "collective-permute-start"} and len(shape.elements) > 1:
        return shape.elements[1]
    return shape.elements[0] if opcode in {"recv", "send"} else shape


def source_line(instruction: Instruction, by: Instruction) -> str | None:
    """The line of an instruction that carries an operation ``by``, or of the operation.

    A compiler that makes a start or a transfer may leave its line on the value that moves.
    """
    return next((e.source for e in (instruction, by, *instruction.operands) if e.source), None)
