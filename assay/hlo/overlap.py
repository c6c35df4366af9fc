"""Overlap: which work the schedule puts between an asynchronous operation's start and its done.

A done is followed back to its start through all that only passes the start on, never by a name,
also around a loop that carries it: then the pair spans the end of one iteration and the beginning
of the next. What another asynchronous operation does meanwhile is no work of the device's own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from assay.hlo.cost_analysis import STARTS, CostAnalysis
from assay.hlo.host_transfers import HOST_THREAD
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation, Module
from assay.hlo.timeline import COLLECTIVES, Span, Timelines, async_starts
from assay.hlo.trip_count import Executions, TripCounter
from assay.hlo.values import Value
from assay.model.module import AsyncPair

DONES: Final = frozenset(
    {
        "all-gather-done",
        "all-reduce-done",
        "async-done",
        "collective-permute-done",
        "copy-done",
        "recv-done",
        "send-done",
    }
)
"""Opcodes that wait for what a start began."""

_SAME: Final = frozenset({"add-dependency", "async-update", "opt-barrier"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A start and a done, what lies between, and how often that comes to pass.

    ``by`` is the operation that they are about, where the start's opcode does not say.
    """

    start: Instruction
    done: Instruction | None
    spans: tuple[Span, ...]
    runs: Executions
    by: Instruction | None = None


def overlaps(
    module: Module, counts: Mapping[Computation, Executions], trips: TripCounter
) -> tuple[AsyncPair, ...]:
    """Every asynchronous operation that control flow reaches, by the computation of its done.

    One that is carried around a loop makes up to three pairs: into the loop, from one iteration to
    the next, and out of it. A start whose done is not found has ``done`` empty and no ``between``.
    """
    reached = [each for each in module.computations if each in counts and not _is_opened(each)]
    pairs = [pair for each in reached for pair in _Finder(each, counts, trips).pairs()]
    matched = {pair.start for pair in pairs}
    for computation in reached:
        for start in computation.of(STARTS):
            if start not in matched:
                runs = counts[computation]
                pairs.append(_Pair(start=start, done=None, spans=(), runs=runs))
    spans = (span for pair in pairs for span in pair.spans)
    fused = [each for each in pairs if each.by]
    ends = frozenset(end for each in fused for end in (each.start, each.done) if end)
    timelines = Timelines(spans, CostAnalysis(trips, beside=ends))
    return tuple(found for pair in pairs for found in _plain(pair, timelines))


def _is_opened(computation: Computation) -> bool:
    """Whether the computation is inside of a fusion or of what a start begins."""
    callers = computation.module.callers.get(computation, ())
    return computation.execution_thread == HOST_THREAD or any(
        caller.opcode in {"fusion", "async-start"} for caller in callers
    )


class _Finder:
    """The pairs whose dones are in one computation."""

    def __init__(
        self,
        computation: Computation,
        counts: Mapping[Computation, Executions],
        trips: TripCounter,
    ) -> None:
        self._computation = computation
        self._counts = counts
        self._trips = trips

    def pairs(self) -> Iterator[_Pair]:
        """The pairs in the order of their dones, then those of fusions."""
        for done in self._computation.of(DONES):
            yield from self._pairs_of(done)
        yield from self._pairs_of_fusions()

    def _pairs_of(self, done: Instruction) -> Iterator[_Pair]:
        value = _behind(Value(done.operands[0]))
        made_by = value.instruction
        if made_by.opcode in STARTS:
            spans = (Span(computation=self._computation, after=made_by, before=done),)
            runs = self._counts[self._computation]
            yield _Pair(start=made_by, done=done, spans=spans, runs=runs)
        elif made_by.opcode == "parameter":
            yield from self._carried_in(done, value)
        elif made_by.opcode == "while":
            yield from self._carried_out(done, value)

    def _pairs_of_fusions(self) -> Iterator[_Pair]:
        """One collective in several fusions, each fed by an earlier one of them.

        So a TPU writes an asynchronous collective: the first begins it, others compute meanwhile,
        and the last awaits it. All name the same channel.
        """
        parts: dict[int, list[tuple[Instruction, Instruction]]] = {}
        for fusion in self._computation.of(frozenset({"fusion"})):
            for collective in fusion.called[0].of(COLLECTIVES):
                parts.setdefault(collective.channel_id, []).append((fusion, collective))
        for channel, found in parts.items():
            fusions = [fusion for fusion, _ in found]
            if channel and len(fusions) > 1 and _is_chain(fusions):
                start, done = fusions[0], fusions[-1]
                spans = (Span(computation=self._computation, after=start, before=done),)
                runs = self._counts[self._computation]
                yield _Pair(start=start, done=done, spans=spans, runs=runs, by=found[0][1])

    def _carried_in(self, done: Instruction, value: Value) -> Iterator[_Pair]:
        """The done of what an earlier iteration, or the code before the loop, started."""
        loop = self._loop_around()
        if loop is None:
            return
        condition = Span(computation=loop.called[1])
        head = Span(computation=self._computation, before=done)
        count, outer = self._trips.count(loop).trips, self._counts.get(loop.computation)
        if outer is None:
            return
        before = _behind(Value(loop.operands[0], value.path)).instruction
        if before.opcode in STARTS:
            spans = (
                Span(computation=loop.computation, after=before, before=loop),
                condition,
                head,
            )
            yield _Pair(start=before, done=done, spans=spans, runs=_once(outer, count))
        again = _behind(Value(self._computation.root, value.path)).instruction
        if again.opcode in STARTS:
            spans = (Span(computation=self._computation, after=again), condition, head)
            runs = outer.times(None if count is None else max(0, count - 1))
            yield _Pair(start=again, done=done, spans=spans, runs=runs)

    def _carried_out(self, done: Instruction, value: Value) -> Iterator[_Pair]:
        """The done of what the last iteration of a loop before it started."""
        loop = value.instruction
        body, condition = loop.called
        last = _behind(Value(body.root, value.path)).instruction
        if last.opcode in STARTS:
            spans = (
                Span(computation=body, after=last),
                Span(computation=condition),
                Span(computation=self._computation, after=loop, before=done),
            )
            runs = _once(self._counts[self._computation], self._trips.count(loop).trips)
            yield _Pair(start=last, done=done, spans=spans, runs=runs)

    def _loop_around(self) -> Instruction | None:
        """The one loop whose body this computation is."""
        callers = self._computation.module.callers.get(self._computation, ())
        if len(callers) != 1 or callers[0].opcode != "while":
            return None
        return callers[0] if callers[0].called[0] is self._computation else None


def _is_chain(fusions: Sequence[Instruction]) -> bool:
    """Whether each is fed by one before it."""
    return all(
        any(_behind(Value(operand)).instruction in fusions[:at] for operand in fusion.operands)
        for at, fusion in enumerate(fusions)
        if at
    )


def _once(outer: Executions, trips: int | None) -> Executions:
    """Once per run of a loop, if it runs at all."""
    if trips is None:
        return Executions(count=outer.count, at_most=True)
    return outer.times(min(trips, 1))


def _behind(value: Value) -> Value:
    """What makes a value, behind all that only passes it on within its computation.

    A loop passes on the values that its body leaves unchanged.
    """
    while (before := _predecessor(value)) is not None:
        value = before
    return value


def _predecessor(value: Value) -> Value | None:
    instruction, path = value.instruction, value.path
    opcode = instruction.opcode
    if opcode == "get-tuple-element":
        return Value(instruction.operands[0], (instruction.tuple_index, *path))
    if opcode == "tuple" and path:
        return Value(instruction.operands[path[0]], path[1:])
    if opcode in _SAME:
        return Value(instruction.operands[0], path)
    if opcode == "while" and path:
        kept = _behind(Value(instruction.called[0].root, path))
        if kept.instruction.opcode == "parameter" and kept.path == path:
            return Value(instruction.operands[0], path)
    return None


def _plain(pair: _Pair, timelines: Timelines) -> Iterator[AsyncPair]:
    """The pair in plain values; two of them if it moves bytes both ways."""
    start, done = pair.start, pair.done
    between = timelines.cost(pair.spans) if pair.spans else None
    for each in async_starts(pair.by or start):
        yield AsyncPair(
            kind=each.kind,
            opcode=each.by.opcode,
            nbytes=each.nbytes,
            between=between,
            executions=pair.runs.count,
            at_most=pair.runs.at_most,
            computation=start.computation.name,
            start=start.name,
            done=done.name if done else "",
            source=start.source or each.by.source or _source_of_operands(start),
        )


def _source_of_operands(instruction: Instruction) -> str | None:
    """A compiler that makes a start may leave its source on the value that moves."""
    return next((each.source for each in instruction.operands if each.source), None)
