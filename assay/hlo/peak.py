"""The peak: what is alive in device memory when most is, by the compiler's own heap simulation.

Arguments, outputs and constants have allocations of their own for the whole run. Temporaries share
one heap; the buffer assignment keeps the events of its simulation, in program order.

XLA's ``peak_memory_in_bytes`` is, seen on GPU and TPU, what arguments, outputs and constants take
and the peak of one heap, the largest. On a TPU that may be the heap on chip, and then it says
little of the main memory that is meant here. On CPU it leaves the heap out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Final

from assay.hlo.assignment import BufferAssignment
from assay.hlo.instruction import Instruction
from assay.hlo.module import Module
from assay.hlo.opcodes import opcodes
from assay.hlo.schema import Message
from assay.hlo.values import Value, behind
from assay.model.module import Shape
from assay.model.summary import Holds, LiveBuffer, Peak

_MAIN_MEMORY: Final = 0
"""The colour of allocations in the device's main memory; others are on chip, or on the host."""

_FREE, _SHARE = 1, 2  # HeapSimulatorTrace.Event.Kind; the other kind allocates
_LISTED: Final = 100
_LEVELS: Final = 200
_PASSES_THROUGH: Final = opcodes("parameter while")
_SAYS_LITTLE: Final = opcodes("bitcast broadcast constant copy copy-start tuple")
_NO_SHAPE: Final = Shape(element_type="opaque")


@dataclass(frozen=True, slots=True)
class _Moment:
    """The groups of logical buffers that share memory and are alive after an event.

    A group also has the buffers that join it later. ``levels`` are the bytes alive before the first
    event of the heap and after each.
    """

    nbytes: int
    groups: Sequence[Sequence[int]]
    event: Message | None
    levels: Sequence[int]


def peak(module: Module, assignment: BufferAssignment) -> Peak:
    """Device memory of the module at its peak; the hundred largest buffers are listed."""
    heaps = _heaps_by_allocation(assignment)
    buffers: list[LiveBuffer] = []
    largest = _Moment(0, (), None, ())
    for allocation in assignment.allocations:
        if allocation.color != _MAIN_MEMORY or allocation.is_thread_local:
            continue
        if allocation.index not in heaps:
            buffers.append(_whole_run(allocation, module, assignment))
        for heap in heaps.get(allocation.index, ()):
            moment = _fullest(heap, assignment)
            for group in moment.groups:
                values = _values(group, module, assignment)
                buffers.append(_live(Holds.TEMPORARY, _nbytes(group[0], assignment), values))
            largest = max(largest, moment, key=lambda each: each.nbytes)
    buffers.sort(key=lambda each: -each.nbytes)
    position = assignment.definitions.get(largest.event.buffer_id) if largest.event else None
    at = module.instruction(position[0]) if position else None
    nbytes = sum(each.nbytes for each in buffers)
    return Peak(
        nbytes=nbytes,
        at=at.name if at else "",
        line=at.source if at else None,
        buffers=tuple(buffers[:_LISTED]),
        levels=_thinned(largest.levels, nbytes - largest.nbytes),
    )


def _thinned(levels: Sequence[int], always: int) -> tuple[int, ...]:
    """The most of each of at most ``_LEVELS`` equal parts, and what is always alive."""
    step = -(-len(levels) // _LEVELS) or 1
    return tuple(always + max(levels[at : at + step]) for at in range(0, len(levels), step))


def _heaps_by_allocation(assignment: BufferAssignment) -> Mapping[int, Sequence[Message]]:
    """The heap traces of each allocation, found by the buffers in them.

    A trace's own index is that of an allocation before temporaries were joined into one.
    """
    found = defaultdict[int, list[Message]](list)
    for trace in assignment.heap_traces:
        slices = (assignment.slices.get(event.buffer_id) for event in trace.events)
        if first := next(filter(None, slices), None):
            found[first.allocation].append(trace)
    return found


def _fullest(trace: Message, assignment: BufferAssignment) -> _Moment:
    """The first moment of a heap's simulation with the most bytes alive."""
    roots: dict[int, int] = {}
    users = Counter[int]()
    groups: dict[int, list[int]] = {}
    changes: list[tuple[int, int, list[int]]] = []  # root, 1 or -1 or 0 groups alive, the group
    for event in trace.events:
        buffer = event.buffer_id
        if event.kind == _FREE:
            root = roots.get(buffer, buffer)
            users[root] -= 1
            changes.append((root, -1 if users[root] == 0 else 0, groups[root]))
        else:
            shares = event.kind == _SHARE
            root = roots.get(event.share_with_canonical_id, buffer) if shares else buffer
            roots[buffer] = root
            users[root] += 1
            if users[root] == 1:
                groups[root] = []
            groups[root].append(buffer)
            changes.append((root, 1 if users[root] == 1 else 0, groups[root]))
    sizes = (change * _nbytes(root, assignment) for root, change, _ in changes)
    levels = list(accumulate(sizes, initial=0))
    fullest = levels.index(max(levels))
    alive: dict[int, Sequence[int]] = {}
    for root, change, group in changes[:fullest]:
        if change > 0:
            alive[root] = group
        elif change < 0:
            del alive[root]
    event = trace.events[fullest - 1] if fullest else None
    return _Moment(levels[fullest], tuple(alive.values()), event, levels)


def _nbytes(buffer: int, assignment: BufferAssignment) -> int:
    found = assignment.slices.get(buffer)
    return found.nbytes if found else 0


def _whole_run(allocation: Message, module: Module, assignment: BufferAssignment) -> LiveBuffer:
    """An allocation that one value after another fills, for the whole run."""
    if allocation.is_entry_computation_parameter:
        parameter = module.entry.parameter(allocation.parameter_number)
        return LiveBuffer(
            holds=Holds.ARGUMENT,
            name=parameter.op_name or parameter.name,
            opcode=parameter.opcode,
            shape=parameter.shape.at(tuple(allocation.parameter_shape_index)),
            nbytes=allocation.size,
            line=parameter.source or _first_read(parameter),
        )
    holds = Holds.OUTPUT if allocation.maybe_live_out else Holds.TEMPORARY
    # An output's memory may hold small temporaries before the output is written.
    largest = max((each.size for each in allocation.assigned), default=0)
    members = [each.logical_buffer_id for each in allocation.assigned if each.size == largest]
    return _live(
        Holds.CONSTANT if allocation.is_constant else holds,
        allocation.size,
        _values(members, module, assignment),
    )


def _values(
    buffers: Iterable[int], module: Module, assignment: BufferAssignment
) -> Sequence[Value]:
    """The values that fill logical buffers."""
    found = []
    for identifier, path in (assignment.definitions[each] for each in buffers):
        instruction = module.instruction(identifier)
        if instruction is not None:
            found.append(_filled_in(Value(instruction, path)))
    return found


def _filled_in(value: Value) -> Value:
    """The value; of an array that a loop carries, the value that its body hands on."""
    instruction = value.instruction
    loop: Instruction | None = None
    if instruction.opcode == "while":
        loop = instruction
    elif instruction.opcode == "parameter":
        callers = instruction.computation.module.callers.get(instruction.computation, ())
        loop = next((each for each in callers if each.opcode == "while"), None)
    if loop is None or not value.path:
        return value
    inside = behind(Value(loop.called[0].root, value.path))
    return value if inside.instruction.opcode in _PASSES_THROUGH else inside


def _live(holds: Holds, nbytes: int, values: Sequence[Value]) -> LiveBuffer:
    """A buffer, described by the value that tells most of it."""
    if not values:
        return LiveBuffer(
            holds=holds, name="", opcode="", shape=_NO_SHAPE, nbytes=nbytes, line=None
        )
    value = min(values, key=_vagueness)
    return LiveBuffer(
        holds=holds,
        name=value.instruction.name,
        opcode=_operation(value.instruction),
        shape=value.shape,
        nbytes=nbytes,
        line=_line(value),
    )


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
    seen = set[int]()
    while pending:
        position = heappop(pending)
        if position not in seen:
            seen.add(position)
            reader = computation.at(position)
            if reader.source is not None:
                return reader.source
            for each in computation.readers.get(reader.id, ()):
                heappush(pending, each)
    return None


def _line(value: Value) -> str | None:
    """The line of a value, else of what a fusion computes it by, else of what it is made from."""
    instruction = value.instruction
    inside = [callee.root for callee in instruction.called if instruction.opcode == "fusion"]
    made_from = [behind(Value(operand)).instruction for operand in instruction.operands]
    return next((each.source for each in (instruction, *inside, *made_from) if each.source), None)
