"""The buffer assignment: allocations, the bytes that hold each value, and the memory statistics."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.schema import BUFFER_ASSIGNMENT, MalformedModule, Message, decode
from assay.hlo.structure import nonnegative
from assay.hlo.values import Value, argument, entered, renamed
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
        # BufferAllocationProto and HeapSimulatorTrace messages
        self.allocations: Sequence[Message] = message.buffer_allocations
        self.heap_traces: Sequence[Message] = message.heap_simulator_traces

    @classmethod
    def from_proto(cls, data: bytes) -> "BufferAssignment":
        """The assignment that a compiler dumped in an HloProto.

        Raises:
            MalformedModule: ``data`` is no BufferAssignmentProto, or only a part of one.
        """
        message = decode(BUFFER_ASSIGNMENT, data)
        for allocation in message.buffer_allocations:
            sizes = (allocation.size, *(each.size for each in allocation.assigned))
            if min(sizes) < 0 or max(sizes) > allocation.size:
                raise MalformedModule(
                    f"got an allocation of {allocation.size} bytes with buffers of {min(sizes)} to "
                    f"{max(sizes)} bytes, wanted buffers that fit in it; dump the module again"
                )
        return cls(message)

    def slice_of(self, instruction: Instruction, path: tuple[int, ...] = ()) -> Slice | None:
        """Where the value at a position lies; None if the assignment does not name it.

        The assignment leaves out values that only rename another value, and values that a loop
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
    instruction = value.instruction
    if instruction.opcode == "while":
        return value.operand(0, value.path)
    if instruction.opcode in {"async-start", "call"}:
        return entered(value)
    callers = instruction.computation.module.callers.get(instruction.computation, ())
    if not value.callers and len(callers) == 1:
        value = replace(value, callers=callers)
    return argument(value)


def _position(location: Message) -> Position:
    return location.instruction_id, nonnegative(location.shape_index)


_MEMORIES: Final = {0: "", HOST_MEMORY_SPACE: "host_"}


def memory_stats(buffer_assignment: bytes) -> Memory:
    """The memory that the module's allocations come to, on the device and on the host.

    Raises:
        MalformedModule: these are no serialized BufferAssignmentProto, or only a part of one.
    """
    kinds = ("temp", "argument", "output", "alias")
    totals = {f"{memory}{kind}_bytes": 0 for memory in _MEMORIES.values() for kind in kinds}
    for allocation in BufferAssignment.from_proto(buffer_assignment).allocations:
        if allocation.color in _MEMORIES:
            for kind in _kinds(allocation):
                totals[f"{_MEMORIES[allocation.color]}{kind}_bytes"] += allocation.size
    return Memory(**totals)


def _kinds(allocation: Message) -> Iterator[str]:
    """What an allocation counts as; an argument that becomes an output counts three times."""
    is_argument, is_output = allocation.is_entry_computation_parameter, allocation.maybe_live_out
    if is_argument:
        yield "argument"
    if is_output:
        yield "output"
    if is_argument and is_output:
        yield "alias"
    internal = allocation.is_thread_local or allocation.is_constant
    if not (internal or is_argument or is_output):
        yield "temp"
