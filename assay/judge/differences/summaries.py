"""The differences between two summaries; no name is ever compared."""

from typing import Final

from assay.judge.differences.interface import (
    of_arguments,
    of_donations,
    of_host_arrays,
    of_layouts,
    of_outputs,
    of_shared,
)
from assay.judge.differences.loops import of_full_buffer_writes, of_loops
from assay.judge.differences.matching import matched
from assay.judge.differences.operations import of_collectives, of_fusions, of_operations
from assay.judge.differences.traffic import of_overlaps, of_transfers
from assay.model.difference import Aspect, Difference
from assay.model.summary import ModuleSummary

_OF_INVENTORIES: Final = (
    of_arguments,
    of_outputs,
    of_shared,
    of_layouts,
    of_host_arrays,
    of_collectives,
    of_fusions,
    of_operations,
)
_UNNAMED: Final = Difference(
    aspect=Aspect.UNNAMED,
    subject="the same operations, with other attributes or operands or in another order",
)


def differences(before: ModuleSummary, after: ModuleSummary) -> tuple[Difference, ...]:
    """How the program after differs from the one before, most important first.

    Never empty if they have two fingerprints. With one fingerprint, the buffer assignments may
    still differ. What one of the summaries was read without (an inventory, a buffer assignment) is
    not compared.
    """
    if before.fingerprint and before.fingerprint == after.fingerprint:
        return _of_assignments(before, after)
    pairs = matched(before.loops, after.loops)
    found = [
        *of_loops(before.loops, after.loops, pairs),
        *of_full_buffer_writes(before, after, pairs),
        *of_transfers(before.transfers, after.transfers),
        *of_overlaps(before, after),
        *of_donations(before.donations, after.donations),
    ]
    if before.inventory and after.inventory:
        for compare in _OF_INVENTORIES:
            found += compare(before.inventory, after.inventory)
    if not found and before.fingerprint != after.fingerprint:
        found.append(_UNNAMED)
    return tuple(sorted(found, key=lambda difference: difference.weight))


def _of_assignments(before: ModuleSummary, after: ModuleSummary) -> tuple[Difference, ...]:
    """How two modules differ that are one but for which arrays share their memory."""
    if not (before.buffers_assigned and after.buffers_assigned):
        return ()
    pairs = matched(before.loops, after.loops)
    found = [
        *of_full_buffer_writes(before, after, pairs),
        *of_donations(before.donations, after.donations),
    ]
    return tuple(sorted(found, key=lambda difference: difference.weight))
