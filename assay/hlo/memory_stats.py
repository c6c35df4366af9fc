"""Memory statistics of a module, from its buffer assignment alone.

A dump holds no memory analysis. XLA makes its own of the same allocations; the two are equal on
CPU and GPU. A TPU's own analysis counts its scratch memory in another way: they differ by some KiB.
"""

from collections.abc import Callable
from typing import Final

from assay.hlo.assignment import BufferAssignment
from assay.hlo.schema import Message
from assay.model.evidence import Memory
from assay.model.module import HOST_MEMORY_SPACE

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
