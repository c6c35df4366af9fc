"""Summary: all that the rest of Assay wants to know of one module, as plain values."""

from dataclasses import dataclass

from assay.hlo.executions import executions
from assay.hlo.loops import Loop, loops
from assay.hlo.module import Module
from assay.hlo.moves import Direction
from assay.hlo.transfers import Transfer, nbytes_per_run, transfers
from assay.hlo.trips import TripCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSummary:
    """One optimized module. Holds text, numbers, enums and tuples only, so it can be stored."""

    name: str
    instructions: int
    computations: int
    loops: tuple[Loop, ...]
    transfers: tuple[Transfer, ...]

    @property
    def to_host_bytes_per_run(self) -> int | None:
        """Bytes from device to host memory per run; None if a trip count is unknown."""
        return nbytes_per_run(self.transfers, Direction.TO_HOST)

    @property
    def to_device_bytes_per_run(self) -> int | None:
        """Bytes from host to device memory per run; None if a trip count is unknown."""
        return nbytes_per_run(self.transfers, Direction.TO_DEVICE)


def read(data: bytes) -> ModuleSummary:
    """What a serialized HloModuleProto holds.

    Raises:
        MalformedModule: ``data`` is no HloModuleProto, or only a part of one.
    """
    module = Module.from_proto(data)
    trips = TripCounter(module)
    counts = executions(module, trips)
    return ModuleSummary(
        name=module.name,
        instructions=sum(map(len, module.computations)),
        computations=len(module.computations),
        loops=loops(module, trips, counts),
        transfers=transfers(module, counts),
    )
