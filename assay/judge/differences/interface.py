"""Differences between what two programs take and give, and where their arrays lie."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from assay.judge.differences.tally import Item, changes
from assay.model.inspection import Aspect, Difference
from assay.model.module import Inventory, Shape, SharedBuffer
from assay.model.summary import Donation
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

    A buffer that an output takes over in one of them only is told as shared or not.
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
        return "is donated but taken by no output"
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
