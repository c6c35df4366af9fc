"""The buffer assignment: allocations, the bytes that hold each value, and the memory statistics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.schema import BUFFER_ASSIGNMENT, Message, decode
from assay.hlo.values import Site, Value, argument, renamed
from assay.model.evidence import Memory
from assay.model.module import HOST_MEMORY_SPACE

Position = tuple[int, tuple[int, ...]]
"""An instruction's unique id, and the path into the tuple that it returns."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A run of bytes in an allocation. Two values share their memory if their slices are equal."""

    allocation: int
    offset: int
    nbytes: int


class BufferAssignment:
    """XLA's BufferAssignmentProto, joined with a module by the ids of its instructions."""

    def __init__(self, message: Message) -> None:
        self._message = message

    @classmethod
    def from_proto(cls, data: bytes) -> "BufferAssignment":
        """The assignment that a compiler dumped in an HloProto.

        Raises:
            MalformedModule: ``data`` is no BufferAssignmentProto, or only a part of one.
        """
        return cls(decode(BUFFER_ASSIGNMENT, data))

    @property
    def allocations(self) -> Sequence[Message]:
        """BufferAllocationProto messages."""
        allocations: Sequence[Message] = self._message.buffer_allocations
        return allocations

    @property
    def heap_traces(self) -> Sequence[Message]:
        """HeapSimulatorTrace messages: when each buffer of an allocation comes and goes."""
        traces: Sequence[Message] = self._message.heap_simulator_traces
        return traces

    def slice_of(self, instruction: Instruction, path: tuple[int, ...] = ()) -> Slice | None:
        """Where the value at a position lies; None if the assignment does not name it.

        The assignment leaves out what only gives another's value another name, and what a loop
        carries but never changes.
        """
        value: Value | None = Value(instruction, path)
        while value is not None:
            buffer = self._buffer_at.get((value.instruction.unique_id, value.path))
            if buffer is not None:
                return self.slices.get(buffer)
            value = renamed(value) or _handed_on(value)
        return None

    @cached_property
    def slices(self) -> Mapping[int, Slice]:
        """Where each logical buffer lies, by its id."""
        return {
            assigned.logical_buffer_id: Slice(allocation.index, assigned.offset, assigned.size)
            for allocation in self.allocations
            for assigned in allocation.assigned
        }

    @cached_property
    def definitions(self) -> Mapping[int, Position]:
        """Where each logical buffer is defined, by its id."""
        return {buffer.id: _position(buffer.defined_at) for buffer in self._message.logical_buffers}

    @cached_property
    def _buffer_at(self) -> Mapping[Position, int]:
        """A logical buffer of each position; where there are several, they share their memory."""
        found = {
            _position(alias.location): alias.source_buffer_id
            for alias in self._message.buffer_aliases
        }
        found.update((position, buffer) for buffer, position in self.definitions.items())
        return found


def _handed_on(value: Value) -> Value | None:
    """The same value on the other side of a computation that it goes into or comes out of."""
    instruction, path = value.instruction, value.path
    if instruction.opcode == "async-start" and path[:1] == (1,):
        return Value(instruction.called[0].root, path[1:])
    if instruction.opcode == "call":
        return Value(instruction.called[0].root, path)
    if instruction.opcode == "while":
        return Value(instruction.operands[0], path)
    if instruction.opcode == "parameter":
        return _passed(instruction, path)
    return None


def _passed(parameter: Instruction, path: tuple[int, ...]) -> Value | None:
    """What the caller passes for a parameter; None of the entry, and where there are several."""
    computation = parameter.computation
    callers = computation.module.callers.get(computation, ())
    return argument(Value(parameter, path, Site(callers[0], None))) if len(callers) == 1 else None


def _position(location: Message) -> Position:
    return location.instruction_id, tuple(location.shape_index)


_MAIN_MEMORY: Final = 0


def memory_stats(buffer_assignment: bytes) -> Memory:
    """The memory that the module's allocations come to, on the device and on the host.

    Raises:
        MalformedModule: these are no serialized BufferAssignmentProto, or only a part of one.
    """
    allocations = BufferAssignment.from_proto(buffer_assignment).allocations

    def total(kind: Callable[[Message], bool], color: int) -> int:
        return sum(each.size for each in allocations if each.color == color and kind(each))

    return Memory(
        temp_bytes=total(_is_temporary, _MAIN_MEMORY),
        argument_bytes=total(_is_argument, _MAIN_MEMORY),
        output_bytes=total(_is_output, _MAIN_MEMORY),
        alias_bytes=total(_is_both, _MAIN_MEMORY),
        host_temp_bytes=total(_is_temporary, HOST_MEMORY_SPACE),
        host_argument_bytes=total(_is_argument, HOST_MEMORY_SPACE),
        host_output_bytes=total(_is_output, HOST_MEMORY_SPACE),
        host_alias_bytes=total(_is_both, HOST_MEMORY_SPACE),
    )


def _is_argument(allocation: Message) -> bool:
    return bool(allocation.is_entry_computation_parameter)


def _is_output(allocation: Message) -> bool:
    return bool(allocation.maybe_live_out)


def _is_both(allocation: Message) -> bool:
    return _is_argument(allocation) and _is_output(allocation)


def _is_temporary(allocation: Message) -> bool:
    return not (
        allocation.is_thread_local
        or allocation.is_constant
        or _is_argument(allocation)
        or _is_output(allocation)
    )
