"""The differences between two inspections: interface, loops, operations, memory."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from assay.judge.differences.loops import matched, of_full_buffer_writes, of_loops
from assay.judge.differences.operations import (
    Item,
    changes,
    of_collectives,
    of_fusions,
    of_operations,
    of_overlaps,
    of_transfers,
)
from assay.model.evidence import Memory
from assay.model.inspection import Aspect, Comparison, Difference, Inspection
from assay.model.module import Inventory, Shape, SharedBuffer
from assay.model.summary import Donation, ModuleSummary
from assay.model.units import format_bytes


def of_arguments(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """Arguments of another shape or memory, new ones, and those that are gone."""
    return _of_interface(Aspect.ARGUMENT, before.arguments, after.arguments)


def of_outputs(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """Outputs of another shape or memory, new ones, and those that are gone."""
    return _of_interface(Aspect.OUTPUT, before.outputs, after.outputs)


def of_layouts(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """Arguments and outputs of the same shape whose elements lie in another order."""
    for aspect, shapes, old, new in (
        (Aspect.ARGUMENT, after.arguments, before.argument_layouts, after.argument_layouts),
        (Aspect.OUTPUT, after.outputs, before.output_layouts, after.output_layouts),
    ):
        for number, (shape, was, now) in enumerate(zip(shapes, old, new, strict=False)):
            if was != now:
                yield Difference(
                    aspect=Aspect.LAYOUT,
                    subject=f"{aspect.value} {number} {shape} has layout {now}, was {was}",
                )


def of_donations(before: Sequence[Donation], after: Sequence[Donation]) -> Iterator[Difference]:
    """Donated arguments that are reused in one of the programs only.

    A buffer that an output takes over in one program only is a difference of shared buffers.
    """
    ours, theirs = map(_by_parameter, (before, after))
    for place in dict.fromkeys((*ours, *theirs)):
        old, new = ours.get(place), theirs.get(place)
        was, now = (_fate(each) for each in (old, new))
        lost = bool(old and old.honoured) - bool(new and new.honoured)
        if was != now and _is_taken(old) == _is_taken(new):
            given = new or old
            assert given is not None
            yield Difference(
                aspect=Aspect.DONATION,
                subject=f"argument {given.argument} {now}, {was} before",
                where=f"({given.shape}, {format_bytes(given.shape.nbytes)})",
                nbytes=lost * given.shape.nbytes,
            )


def _by_parameter(found: Sequence[Donation]) -> dict[tuple[int, tuple[int, ...]], Donation]:
    return {(each.parameter_number, each.parameter_index): each for each in found}


def _is_taken(donation: Donation | None) -> bool:
    return donation is not None and donation.output_index is not None


def _fate(donation: Donation | None) -> str:
    if donation is None:
        return "is not donated"
    if donation.output_index is None:
        return "is donated but reused by no output"
    if donation.copied_by:
        return "is donated but copied"
    return "is donated and reused" if donation.honoured else "is donated"


def of_host_arrays(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """Arrays that only one of the programs puts into host memory."""
    for change in changes(_host_items(before), _host_items(after)):
        size = format_bytes(change.kind.nbytes)
        subject = f"arrays {change.kind} ({size}) placed in host memory"
        yield change.told(Aspect.HOST_PLACEMENT, subject)


def _host_items(inventory: Inventory) -> Iterator[Item[Shape]]:
    for each in inventory.host_arrays:
        nbytes = each.shape.nbytes * each.count
        yield Item(kind=each.shape, count=each.count, nbytes=nbytes, source=each.source)


def of_shared(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """Outputs that take over an argument's buffer in one of the programs only."""
    for lost in before.shared:
        if lost not in after.shared:
            yield _shared(lost, "no longer shares", -1)
    for gained in after.shared:
        if gained not in before.shared:
            yield _shared(gained, "now shares", 1)


def _of_interface(
    aspect: Aspect, before: Sequence[Shape], after: Sequence[Shape]
) -> Iterator[Difference]:
    for number, (old, new) in enumerate(zip_longest(before, after)):
        if old != new:
            was = f", was {old}" if old and new else ""
            end = f"is {new}{was}" if new else f"is gone, was {old}"
            nbytes = (new.nbytes if new else 0) - (old.nbytes if old else 0)
            yield Difference(aspect=aspect, subject=f"{aspect.value} {number} {end}", nbytes=nbytes)


def _shared(shared: SharedBuffer, verb: str, sign: int) -> Difference:
    output = "".join(f"[{index}]" for index in shared.output_index)
    argument = "".join(f"[{index}]" for index in shared.parameter_index)
    return Difference(
        aspect=Aspect.SHARED_BUFFER,
        subject=f"output{output} {verb} the buffer of argument {shared.parameter_number}{argument}",
        where=f"({shared.shape}, {format_bytes(shared.shape.nbytes)})",
        nbytes=sign * shared.shape.nbytes,
    )


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
                f"toolchain may generate other code from it. {_HOW}"
            )
    elif same:
        yield (
            f"the HLO is the same, but the toolchain differs ({ours} before, {theirs} now): the "
            f"generated code may differ. {_HOW}"
        )
    else:
        yield f"the toolchain differs too: {ours} before, {theirs} now"
