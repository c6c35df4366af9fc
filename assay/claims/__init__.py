"""The claims that Assay ships, one family a file; each is a frozen value with one pure method."""

from assay.claims.compile import Compiles, FitsDevice
from assay.claims.copies import CopiedBytes
from assay.claims.growth import TimeGrowth
from assay.claims.memory import (
    AcceptedTempBytes,
    DeviceBytesAtMost,
    DeviceBytesFall,
    HostBytes,
    TempBytesAtMost,
)
from assay.claims.tracing import NamesMatch, ResidualsOnHost
from assay.claims.transfers import TransferredBytes
from assay.claims.values import ValuesEqual

__all__ = [
    "AcceptedTempBytes",
    "Compiles",
    "CopiedBytes",
    "DeviceBytesAtMost",
    "DeviceBytesFall",
    "FitsDevice",
    "HostBytes",
    "NamesMatch",
    "ResidualsOnHost",
    "TempBytesAtMost",
    "TimeGrowth",
    "TransferredBytes",
    "ValuesEqual",
]
