"""The claims that Assay ships, one family a file; each is a frozen value with one pure method."""

from assay.claims.compile import (
    Compiles,
    FitsDevice,
    NamesMatch,
    Parameters,
    Refuses,
    ResidualsOnHost,
    Runs,
)
from assay.claims.memory import (
    BaselineTempBytes,
    CopiedBytes,
    CopiedBytesOutsideLoops,
    DeviceBytesAtMost,
    DeviceBytesFall,
    DonatedBytesReused,
    FitsBudget,
    HostBytes,
    TempBytesAtMost,
    TransferredBytes,
)
from assay.claims.processes import CollectiveBytes, ProcessBytes
from assay.claims.scaling import BytesExponent, Cost, TimeExponent, TimeGrowth
from assay.claims.steps import GraphsCompiled, LastCompile, Sent, SentPerStep, TracingSends
from assay.claims.times import (
    BaselineTime,
    StoredTimeRatio,
    TimeAgainst,
    TimeRatio,
    TraceTimeRatio,
)
from assay.claims.values import ValuesEqual

__all__ = [
    "BaselineTempBytes",
    "BaselineTime",
    "BytesExponent",
    "CollectiveBytes",
    "Compiles",
    "CopiedBytes",
    "CopiedBytesOutsideLoops",
    "Cost",
    "DeviceBytesAtMost",
    "DeviceBytesFall",
    "DonatedBytesReused",
    "FitsBudget",
    "FitsDevice",
    "GraphsCompiled",
    "HostBytes",
    "LastCompile",
    "NamesMatch",
    "Parameters",
    "ProcessBytes",
    "Refuses",
    "ResidualsOnHost",
    "Runs",
    "Sent",
    "SentPerStep",
    "StoredTimeRatio",
    "TempBytesAtMost",
    "TimeAgainst",
    "TimeExponent",
    "TimeGrowth",
    "TimeRatio",
    "TraceTimeRatio",
    "TracingSends",
    "TransferredBytes",
    "ValuesEqual",
]
