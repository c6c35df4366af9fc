"""Summary: all that the rest of Assay wants to know of one module, as plain values."""

from assay.hlo.executions import executions
from assay.hlo.loops import loops
from assay.hlo.module import Module
from assay.hlo.transfers import transfers
from assay.hlo.trips import TripCounter
from assay.model.module import ModuleSummary


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
