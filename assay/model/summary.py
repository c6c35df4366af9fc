"""The summary of a module: all that is known of what a compiler emitted, as plain values."""

from dataclasses import dataclass

from assay.model.buffers import Donation, FullBufferWrite, Peak
from assay.model.inventory import Inventory
from assay.model.module import Direction, Loop, Transfer, nbytes_per_run
from assay.model.overlap import AsyncPair


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSummary:
    """One optimized module. Holds text, numbers, enums and tuples only, so it can be stored.

    ``buffers_assigned`` tells whether the compiler's buffer assignment was read too; without it
    ``peak`` is None and a full-buffer write does not know whether it is in place.
    """

    name: str
    instructions: int
    computations: int
    loops: tuple[Loop, ...]
    transfers: tuple[Transfer, ...]
    full_buffer_writes: tuple[FullBufferWrite, ...] = ()
    donations: tuple[Donation, ...] = ()
    overlaps: tuple[AsyncPair, ...] = ()
    peak: Peak | None = None
    buffers_assigned: bool = False
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
