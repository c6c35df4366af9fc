"""The peak: what is alive in device memory when most is, by the compiler's own heap simulation.

Arguments, outputs and constants have allocations of their own for the whole run. Temporaries share
one heap; the buffer assignment keeps the events of its simulation, in program order.

XLA's ``peak_memory_in_bytes`` is, seen on GPU and TPU, what arguments, outputs and constants take
and the peak of one heap, the largest. On a TPU that may be the heap on chip, and then it says
little of the main memory that is meant here. On CPU it leaves the heap out.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from assay.hlo.assignment import BufferAssignment, Position
from assay.hlo.instruction import Instruction
from assay.hlo.module import Module
from assay.hlo.schema import Message
from assay.hlo.values import Value, behind
from assay.model.module import Shape
from assay.model.summary import Holds, LiveBuffer, Peak

_MAIN_MEMORY: Final = 0
"""The colour of allocations in the device's main memory; others are on chip, or on the host."""

_ALLOCATE, _FREE, _SHARE = 0, 1, 2  # HeapSimulatorTrace.Event.Kind
_LISTED: Final = 100
_PASSES_THROUGH: Final = frozenset({"parameter", "while"})


@dataclass(frozen=True, slots=True)
class _Moment:
    """Groups of logical buffers that share memory, and the event at which each group is alive.

    A group also has the buffers that come to lie in its memory after that.
    """

    nbytes: int
    groups: tuple[tuple[int, ...], ...]
    event: Message | None


def peak(module: Module, assignment: BufferAssignment) -> Peak:
    """Device memory of the module at its peak; the hundred largest buffers are listed."""
    names = _Names(module, assignment)
    traces = _traces_by_allocation(assignment)
    buffers: list[LiveBuffer] = []
    largest = _Moment(0, (), None)
    for allocation in assignment.allocations:
        if allocation.color != _MAIN_MEMORY or allocation.is_thread_local:
            continue
        if allocation.index not in traces:
            buffers.append(names.of_allocation(allocation))
        for trace in traces.get(allocation.index, ()):
            moment = _fullest(trace, assignment)
            buffers.extend(names.of_group(group) for group in moment.groups)
            largest = max(largest, moment, key=lambda each: each.nbytes)
    buffers.sort(key=lambda each: -each.nbytes)
    at = names.of_event(largest.event)
    return Peak(
        nbytes=sum(each.nbytes for each in buffers),
        at=at.name if at else "",
        line=at.source if at else None,
        buffers=tuple(buffers[:_LISTED]),
    )


def _traces_by_allocation(assignment: BufferAssignment) -> Mapping[int, list[Message]]:
    """The heaps of each allocation, found by the buffers in them.

    A trace's own index is that of an allocation before temporaries were joined into one.
    """
    found: dict[int, list[Message]] = {}
    for trace in assignment.heap_traces:
        places = (assignment.slices.get(event.buffer_id) for event in trace.events)
        place = next((each for each in places if each), None)
        if place is not None:
            found.setdefault(place.allocation, []).append(trace)
    return found


def _fullest(trace: Message, assignment: BufferAssignment) -> _Moment:
    """The moment of a heap's simulation with the most bytes alive."""
    best, best_at, nbytes = 0, -1, 0
    for index, (change, _) in enumerate(_steps(trace, assignment)):
        nbytes += change
        if nbytes > best:
            best, best_at = nbytes, index
    alive: Mapping[int, list[int]] = {}
    for index, (_, after) in enumerate(_steps(trace, assignment)):
        if index == best_at:
            alive = dict(after)  # what shares with them later is added to the lists in it
    event = trace.events[best_at] if best_at >= 0 else None
    return _Moment(best, tuple(map(tuple, alive.values())), event)


def _steps(
    trace: Message, assignment: BufferAssignment
) -> Iterator[tuple[int, Mapping[int, list[int]]]]:
    """After each event: how the bytes alive changed, and who shares the memory of whom."""
    roots: dict[int, int] = {}
    users: dict[int, int] = {}
    groups: dict[int, list[int]] = {}
    for event in trace.events:
        buffer, change = event.buffer_id, 0
        if event.kind == _FREE:
            root = roots.get(buffer, buffer)
            users[root] = users.get(root, 1) - 1
            if users[root] <= 0 and root in groups:
                del groups[root]
                change = -_nbytes(root, assignment)
        else:
            root = roots.get(event.share_with_canonical_id, buffer)
            root = root if event.kind == _SHARE else buffer
            roots[buffer] = root
            if root not in groups:
                groups[root], users[root] = [], 0
                change = _nbytes(root, assignment)
            groups[root].append(buffer)
            users[root] += 1
        yield change, groups


def _nbytes(buffer: int, assignment: BufferAssignment) -> int:
    found = assignment.slices.get(buffer)
    return found.nbytes if found else 0


class _Names:
    """What to call a buffer: the instruction that fills it, and the user's line that it is from."""

    def __init__(self, module: Module, assignment: BufferAssignment) -> None:
        self._module = module
        self._assignment = assignment

    def of_allocation(self, allocation: Message) -> LiveBuffer:
        """An allocation that one value after another fills, for the whole run."""
        if allocation.is_entry_computation_parameter:
            parameter = self._module.entry.parameter(allocation.parameter_number)
            return LiveBuffer(
                holds=Holds.ARGUMENT,
                name=parameter.op_name or parameter.name,
                opcode=parameter.opcode,
                shape=parameter.shape.at(tuple(allocation.parameter_shape_index)),
                nbytes=allocation.size,
                line=parameter.source or _first_read(parameter),
            )
        holds = Holds.TEMPORARY
        if allocation.is_constant:
            holds = Holds.CONSTANT
        elif allocation.maybe_live_out:
            holds = Holds.OUTPUT
        # An output's memory may hold small temporaries before the output is written.
        largest = max((each.size for each in allocation.assigned), default=0)
        members = [each.logical_buffer_id for each in allocation.assigned if each.size == largest]
        return self._described(members, holds, allocation.size)

    def of_group(self, group: Iterable[int]) -> LiveBuffer:
        """Temporaries that share memory."""
        members = list(group)
        return self._described(members, Holds.TEMPORARY, _nbytes(members[0], self._assignment))

    def of_event(self, event: Message | None) -> Instruction | None:
        """The instruction at which a buffer was allocated."""
        if event is None:
            return None
        position = self._assignment.definitions.get(event.buffer_id)
        return self._module.instruction(position[0]) if position else None

    def _described(self, members: Iterable[int], holds: Holds, nbytes: int) -> LiveBuffer:
        found = [self._value(self._assignment.definitions[each]) for each in members]
        value = min((each for each in found if each), key=_vagueness, default=None)
        if value is None:
            return LiveBuffer(
                holds=holds, name="", opcode="", shape=_NO_SHAPE, nbytes=nbytes, line=None
            )
        return LiveBuffer(
            holds=holds,
            name=value.instruction.name,
            opcode=_operation(value.instruction),
            shape=value.instruction.shape.at(value.path),
            nbytes=nbytes,
            line=_line(value),
        )

    def _value(self, position: Position) -> Value | None:
        instruction = self._module.instruction(position[0])
        if instruction is None:
            return None
        value = Value(instruction, position[1])
        return self._filled_in(value) if instruction.opcode in _PASSES_THROUGH else value

    def _filled_in(self, value: Value) -> Value:
        """What fills an array that a loop carries: the value that its body hands on."""
        loop: Instruction | None = value.instruction
        if value.instruction.opcode == "parameter":
            callers = self._module.callers.get(value.instruction.computation, ())
            loop = next((each for each in callers if each.opcode == "while"), None)
        if loop is None or not value.path:
            return value
        inside = behind(Value(loop.called[0].root, value.path))
        return value if inside.instruction.opcode in _PASSES_THROUGH else inside


_NO_SHAPE: Final = Shape(element_type="opaque")
_SAYS_LITTLE: Final = frozenset({"bitcast", "broadcast", "constant", "copy", "copy-start", "tuple"})


def _vagueness(value: Value) -> tuple[bool, bool, bool]:
    """Sorts what tells most of a buffer first: an operation with a line of the user's."""
    opcode = _operation(value.instruction)
    return opcode in _PASSES_THROUGH, _line(value) is None, opcode in _SAYS_LITTLE


def _operation(instruction: Instruction) -> str:
    """What an instruction does; of a fusion with one result, what is at its root."""
    root = instruction.called[0].root if instruction.opcode == "fusion" else instruction
    while root.opcode == "bitcast":
        root = root.operands[0]
    return instruction.opcode if root.opcode in {"parameter", "tuple"} else root.opcode


def _first_read(parameter: Instruction) -> str | None:
    """The first source line that reads an argument; an argument has no source line itself."""
    computation = parameter.computation
    pending = list(computation.readers.get(parameter.id, ()))
    heapify(pending)
    seen = set(pending)
    while pending:
        reader = computation.at(heappop(pending))
        if reader.source is not None:
            return reader.source
        for position in computation.readers.get(reader.id, ()):
            if position not in seen:
                heappush(pending, position)
                seen.add(position)
    return None


def _line(value: Value) -> str | None:
    """The line of a value, else of what a fusion computes it by, else of what it is made from."""
    instruction = value.instruction
    inside = [callee.root for callee in instruction.called if instruction.opcode == "fusion"]
    made_from = [behind(Value(operand)).instruction for operand in instruction.operands]
    return next((each.source for each in (instruction, *inside, *made_from) if each.source), None)
