"""All that is known of an optimized module, with its buffers: copies, donations and the peak."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from assay.model.module import (
    AsyncPair,
    Collective,
    Direction,
    Inventory,
    Shape,
    Transfer,
    WhileLoop,
    nbytes_per_run,
)


class Content(Enum):
    """What an instruction that writes an array whole puts into it."""

    COPY = "copy"
    """What another array held, at most in another layout, element type or memory."""

    UPDATE = "update"
    """What another array held, with a part replaced that an update in place would write alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullBufferWrite:
    """One array that one instruction writes whole.

    ``shape`` is the array written, ``executions`` its writes per run of the module (None if
    unknown, an upper bound if ``at_most``). ``loop`` names the body of the innermost while loop
    around it and ``iterations`` counts that body's runs; "" and None outside of loops. ``in_place``
    tells whether source and destination share their bytes; None where the buffer assignment is not
    known. ``crosses_host_link`` tells that one of them lies in host memory, so that the write is a
    transfer too. ``opcode`` is the operation at the root, inside any fusion or asynchronous
    pair ``instruction`` is.
    """

    content: Content
    shape: Shape
    executions: int | None
    at_most: bool
    loop: str
    iterations: int | None
    in_place: bool | None
    opcode: str
    computation: str
    instruction: str
    source: str | None
    crosses_host_link: bool = False

    @property
    def nbytes_per_execution(self) -> int:
        """Logical bytes of the array."""
        return self.shape.nbytes

    @property
    def nbytes_per_run(self) -> int | None:
        """Bytes per run of the module; None if the executions are unknown."""
        return None if self.executions is None else self.shape.nbytes * self.executions


def full_buffer_writes_in_loops(
    writes: Iterable[FullBufferWrite], larger_than: int
) -> tuple[FullBufferWrite, ...]:
    """The full-buffer writes in loops, of arrays above a size, largest first."""
    return _above((each for each in writes if each.loop), larger_than)


def full_buffer_writes_outside_loops(
    writes: Iterable[FullBufferWrite], larger_than: int
) -> tuple[FullBufferWrite, ...]:
    """The full-buffer writes outside of loops, of arrays above a size, largest first."""
    return _above((each for each in writes if not each.loop), larger_than)


def _above(writes: Iterable[FullBufferWrite], larger_than: int) -> tuple[FullBufferWrite, ...]:
    executed = (each for each in writes if each.executions != 0)
    large = (each for each in executed if each.shape.nbytes > larger_than)
    return tuple(sorted(large, key=lambda each: -each.shape.nbytes))


def copied_bytes_per_iteration(writes: Iterable[FullBufferWrite], larger_than: int) -> int:
    """The most bytes that one iteration of any loop writes whole, in arrays above a size.

    Each loop is counted by itself, without the loops around and inside it; every branch of a
    conditional counts.
    """
    per_loop = Counter[str]()
    for write in full_buffer_writes_in_loops(writes, larger_than):
        per_loop[write.loop] += write.shape.nbytes
    return max(per_loop.values(), default=0)


def copied_bytes_outside_loops(writes: Iterable[FullBufferWrite], larger_than: int) -> int | None:
    """Bytes that one run writes whole outside of loops; None if it is unknown how often.

    Every branch of a conditional counts.
    """
    found = full_buffer_writes_outside_loops(writes, larger_than)
    written = [each.nbytes_per_run for each in found]
    return None if None in written else sum(filter(None, written))


@dataclass(frozen=True, slots=True, kw_only=True)
class Donation:
    """One array of an argument that the caller gives away.

    ``output_index`` is the output that takes its buffer over, None if none does. ``copied_by``
    names the instructions (with source lines) that copy the array whole although it was given
    away, once per run, outside of loops; ``copies_known`` tells whether all of them were seen, for
    which the buffer assignment is needed.
    """

    parameter_number: int
    parameter_index: tuple[int, ...]
    argument: str
    shape: Shape
    output_index: tuple[int, ...] | None
    must: bool
    copied_by: tuple[str, ...]
    copies_known: bool = True

    @property
    def honoured(self) -> bool | None:
        """Whether an output took the buffer over and nothing was copied for it; None if unknown."""
        if self.output_index is None or self.copied_by:
            return False
        return True if self.copies_known else None


class Holds(Enum):
    """What a buffer is there for."""

    ARGUMENT = "argument"
    OUTPUT = "output"
    TEMPORARY = "temporary"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBuffer:
    """A buffer that is alive at the peak; ``nbytes`` is what the compiler reserved, padding too.

    ``name`` is an argument's own name (``params['w']``), else the instruction that fills it.
    ``line`` is the user's line that it comes from; for an argument, the first line that reads it.
    It is None where the compiler kept no line.
    """

    holds: Holds
    name: str
    opcode: str
    shape: Shape
    nbytes: int
    line: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Device memory at the moment when most is alive, largest buffers first.

    ``nbytes`` sums all buffers, also those too small to be listed. ``at`` names the instruction at
    which the peak is reached. ``levels`` are the bytes alive over the schedule: the most in each of
    equal parts of it, at most 200. Temporaries of other heaps than the largest count as at their
    own peak.
    """

    nbytes: int
    at: str
    line: str | None
    buffers: tuple[LiveBuffer, ...]
    levels: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSummary:
    """One optimized module. Holds text, numbers, enums and tuples only, so it can be stored.

    ``buffers_assigned`` tells whether the compiler's buffer assignment was read too; without it
    ``peak`` is None and a full-buffer write does not know whether it is in place.
    ``library_bytes`` is the most that libraries of a CPU hold at once, see `assay.hlo.libraries`.
    """

    name: str
    instructions: int
    computations: int
    loops: tuple[WhileLoop, ...]
    transfers: tuple[Transfer, ...]
    full_buffer_writes: tuple[FullBufferWrite, ...] = ()
    donations: tuple[Donation, ...] = ()
    overlaps: tuple[AsyncPair, ...] = ()
    collectives: tuple[Collective, ...] = ()
    peak: Peak | None = None
    buffers_assigned: bool = False
    library_bytes: int = 0
    fingerprint: str = ""
    inventory: Inventory | None = None

    @property
    def to_host_bytes_per_run(self) -> int | None:
        """Bytes from device to host memory per run; None if a trip count is unknown."""
        return nbytes_per_run(self.transfers, Direction.TO_HOST)

    @property
    def to_device_bytes_per_run(self) -> int | None:
        """Bytes from host to device memory per run; None if a trip count is unknown."""
        return nbytes_per_run(self.transfers, Direction.TO_DEVICE)

    @property
    def collective_bytes_per_run(self) -> int | None:
        """Bytes that a device sends to others in collectives per run; None if any is unknown."""
        sent = [each.nbytes_per_run for each in self.collectives]
        return None if None in sent else sum(filter(None, sent))
