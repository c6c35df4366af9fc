"""Differences between what two programs take and give, and where their arrays lie."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from assay.judge.differences.tally import Item, changes
from assay.model.difference import Aspect, Difference
from assay.model.inventory import Inventory, SharedBuffer
from assay.model.module import Shape
from assay.model.units import format_bytes


def of_arguments(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """Arguments of another shape or memory, new ones, and those that are gone."""
    return _of_interface(Aspect.ARGUMENT, before.arguments, after.arguments)


def of_outputs(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """Outputs of another shape or memory, new ones, and those that are gone."""
    return _of_interface(Aspect.OUTPUT, before.outputs, after.outputs)


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
