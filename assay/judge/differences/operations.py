"""Differences between the operations that two programs are made of."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from assay.judge.differences.tally import Change, Item, changes
from assay.model.difference import Aspect, Difference
from assay.model.inventory import Inventory, Operations
from assay.model.module import Shape
from assay.model.overlap import AsyncKind

_COLLECTIVES: Final = frozenset(
    {
        "all-gather",
        "all-reduce",
        "all-to-all",
        "collective-broadcast",
        "collective-permute",
        "ragged-all-to-all",
        "reduce-scatter",
    }
)
_RETURN_OPERANDS: Final = frozenset({"all-gather-start", "collective-permute-start"})
"""Starts whose result holds the operand and then the result."""

_TOLD_OTHERWISE: Final = frozenset({"copy", "fusion", "while"})
_PHASES: Final = ("-start", "-update", "-done")


def of_collectives(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """Collectives gained and lost, whether they are asynchronous or not."""
    for change in changes(_collectives(before), _collectives(after)):
        opcode, shape = change.kind
        yield change.told(Aspect.COLLECTIVE, f"{opcode} {shape}")


def of_fusions(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """The number of fusions, whatever they compute."""
    ours, theirs = map(_fusions, (before, after))
    if ours != theirs:
        yield Difference(aspect=Aspect.FUSION, subject="fusions", before=ours, after=theirs)


def of_operations(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """All other operations; one that only has another shape is told once."""
    places: defaultdict[tuple[str, str | None], list[Change[tuple[str, Shape]]]] = defaultdict(list)
    for change in changes(_others(before), _others(after)):
        places[change.kind[0], change.source].append(change)
    for (opcode, source), here in places.items():
        if len(here) == 2 and here[0].gained == -here[1].gained:  # noqa: PLR2004 - old and new
            old, new = sorted(here, key=lambda change: change.gained)
            yield Difference(
                aspect=Aspect.OPERATION,
                subject=f"{opcode} {old.kind[1]} becomes {new.kind[1]}",
                where=f"({new.gained} times)" if new.gained > 1 else "",
                nbytes=(new.nbytes or 0) + (old.nbytes or 0),
                source=source,
            )
        else:
            for change in here:
                yield change.told(Aspect.OPERATION, f"{opcode} {change.kind[1]}")


def synchronous_nbytes(inventory: Inventory, kind: AsyncKind) -> Counter[int]:
    """Sizes of the results of collectives, or copies, that have no start and no done."""
    opcodes = {AsyncKind.COLLECTIVE: _COLLECTIVES, AsyncKind.COPY: frozenset({"copy"})}
    found: Counter[int] = Counter()
    for each in inventory.operations:
        if each.opcode in opcodes.get(kind, ()):
            found[each.shape.nbytes] += each.count
    return found


def _collectives(inventory: Inventory) -> Iterator[Item[tuple[str, Shape]]]:
    for each in inventory.operations:
        opcode = each.opcode.removesuffix("-start")
        if opcode in _COLLECTIVES:
            returned = each.opcode in _RETURN_OPERANDS and len(each.shape.elements) > 1
            yield _item(each, opcode, each.shape.elements[1] if returned else each.shape)


def _fusions(inventory: Inventory) -> int:
    return sum(each.count for each in inventory.operations if each.opcode == "fusion")


def _others(inventory: Inventory) -> Iterator[Item[tuple[str, Shape]]]:
    for each in inventory.operations:
        told = each.opcode in _COLLECTIVES or each.opcode in _TOLD_OTHERWISE
        if not told and not each.opcode.endswith(_PHASES):
            yield _item(each, each.opcode, each.shape)


def _item(each: Operations, opcode: str, shape: Shape) -> Item[tuple[str, Shape]]:
    return Item(
        kind=(opcode, shape),
        count=each.count,
        nbytes=shape.nbytes * each.count,
        source=each.source,
    )
