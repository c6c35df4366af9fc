"""The differences between two inspections: memory, and every part of their modules."""

from collections.abc import Iterator
from typing import Final

from assay.judge.differences.interface import (
    of_arguments,
    of_donations,
    of_host_arrays,
    of_layouts,
    of_outputs,
    of_shared,
)
from assay.judge.differences.loops import matched, of_full_buffer_writes, of_loops
from assay.judge.differences.operations import (
    of_collectives,
    of_fusions,
    of_operations,
    of_overlaps,
    of_transfers,
)
from assay.model.evidence import Memory
from assay.model.inspection import Aspect, Comparison, Difference, Inspection
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


_HOW = (
    "to find out, compare the .ll and .ptx files that XLA_FLAGS=--xla_dump_to=DIR writes with each "
    "toolchain, or time the program with both"
)


def compare(before: Inspection, after: Inspection) -> Comparison:
    """How the inspection after differs from the one before, most important first."""
    old, new = before.evidence.module, after.evidence.module
    if old is None or new is None:
        return Comparison(before=before.subject, error=before.error, differences=None)
    found = (*_of_memory(before, after), *differences(old, new))
    return Comparison(
        before=before.subject,
        error=before.error,
        differences=tuple(sorted(found, key=lambda difference: difference.weight)),
        notes=tuple(_notes(before, after)),
    )


def _of_memory(before: Inspection, after: Inspection) -> Iterator[Difference]:
    """Each kind of memory of which one program takes more; the largest change first."""
    ours, theirs = _sizes(before), _sizes(after)
    for name, was in ours.items():
        now = theirs.get(name)
        if was is not None and now is not None and was != now:
            yield Difference(
                aspect=Aspect.MEMORY, subject=name, before=was, after=now, nbytes=now - was
            )


def _sizes(inspection: Inspection) -> dict[str, int | None]:
    memory = inspection.evidence.memory
    if memory is None:
        return {}
    return {"peak": inspection.peak_bytes, **_parts(memory)}


def _parts(memory: Memory) -> dict[str, int | None]:
    return {
        "temporaries": memory.temp_bytes,
        "arguments": memory.argument_bytes,
        "outputs": memory.output_bytes,
        "shared by arguments and outputs": memory.alias_bytes,
        "host memory of temporaries": memory.host_temp_bytes,
        "host memory of arguments": memory.host_argument_bytes,
        "host memory of outputs": memory.host_output_bytes,
    }


def _notes(before: Inspection, after: Inspection) -> Iterator[str]:
    """What the comparison does not see."""
    missing = [each.subject for each in (before, after) if each.evidence.memory is None]
    if missing:
        yield f"memory is not compared: there is no buffer assignment in {' and '.join(missing)}"
    ours, theirs = (each.evidence.toolchain for each in (before, after))
    if ours.versions and ours.identity == theirs.identity:
        return
    old, new = (each.evidence.module for each in (before, after))
    same = bool(old and new and old.fingerprint and old.fingerprint == new.fingerprint)
    if not (ours.versions and theirs.versions):
        if same:
            yield (
                "the HLO is the same, but a dump does not say which toolchain wrote it; another "
                f"toolchain may generate other code from it; {_HOW}"
            )
    elif same:
        yield (
            f"the HLO is the same, but the toolchain is not ({ours} before, {theirs} now): the "
            f"code that it generates may differ; {_HOW}"
        )
    else:
        yield f"the toolchain differs too: {ours} before, {theirs} now"
