"""The differences between two inspections: interface, loops, operations, memory."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Final

from assay.judge.differences.counts import Item, count_differences
from assay.judge.differences.loops import matched, of_full_buffer_writes, of_loops
from assay.model.inspection import Aspect, Comparison, Difference, Inspection
from assay.model.module import (
    AsyncKind,
    AsyncPair,
    Cost,
    Direction,
    Inventory,
    Operations,
    Shape,
    SharedBuffer,
)
from assay.model.summary import Donation, ModuleSummary
from assay.model.units import format_bytes

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

_COMPARED_APART: Final = _COLLECTIVES | {"copy", "fusion", "while"}
_PHASES: Final = ("-start", "-update", "-done")
_ENDS: Final = {Direction.TO_HOST: "to the host", Direction.TO_DEVICE: "from the host"}
_MOVES: Final = {
    AsyncKind.TO_HOST: "moves to the host",
    AsyncKind.TO_DEVICE: "moves from the host",
    AsyncKind.COPY: "copies",
    AsyncKind.COLLECTIVE: "collectives",
    AsyncKind.COMPUTE: "computations",
}
_MEMORY: Final = {
    "temporaries": "temp_bytes",
    "at most in libraries": "library_bytes",
    "arguments": "argument_bytes",
    "outputs": "output_bytes",
    "shared by arguments and outputs": "alias_bytes",
    "host memory of temporaries": "host_temp_bytes",
    "host memory of arguments": "host_argument_bytes",
    "host memory of outputs": "host_output_bytes",
}
_UNNAMED: Final = Difference(
    aspect=Aspect.UNNAMED,
    subject="the same operations, with other attributes or operands or in another order",
)
_HOW: Final = (
    "to find out, compare the .ll and .ptx files that XLA_FLAGS=--xla_dump_to=DIR writes with each "
    "toolchain, or time the program with both"
)


def compare(before: Inspection, after: Inspection) -> Comparison:
    """How the inspection after differs from the one before, most important first."""
    old, new = before.evidence.module, after.evidence.module
    if old is None or new is None:
        return Comparison(before=before.subject, error=before.error, differences=None)
    return Comparison(
        before=before.subject,
        error=before.error,
        differences=_sorted([*_of_memory(before, after), *differences(old, new)]),
        notes=tuple(_notes(before, after)),
    )


def differences(before: ModuleSummary, after: ModuleSummary) -> tuple[Difference, ...]:
    """How the program after differs from the one before, most important first.

    Never empty if the fingerprints differ. If they are equal, the buffer assignments may still
    differ. An inventory or a buffer assignment that one of the summaries lacks is not compared.
    """
    is_same = bool(before.fingerprint) and before.fingerprint == after.fingerprint
    if is_same and not (before.buffers_assigned and after.buffers_assigned):
        return ()
    pairs = matched(before.loops, after.loops)
    found = [*of_full_buffer_writes(before, after, pairs), *_of_donations(before, after)]
    if not is_same:
        found += of_loops(before, after, pairs)
        found += count_differences(Aspect.TRANSFER, _transfers(before), _transfers(after))
        found += _of_overlaps(before, after)
        if before.inventory and after.inventory:
            found += _of_inventories(before.inventory, after.inventory)
        if not found and before.fingerprint != after.fingerprint:
            found.append(_UNNAMED)
    return _sorted(found)


def _sorted(found: Iterable[Difference]) -> tuple[Difference, ...]:
    return tuple(sorted(found, key=lambda difference: difference.weight))


def _of_memory(before: Inspection, after: Inspection) -> Iterator[Difference]:
    old, new = before.evidence.memory, after.evidence.memory
    if old is None or new is None:
        return
    sizes = {name: (getattr(old, size), getattr(new, size)) for name, size in _MEMORY.items()}
    for name, (was, now) in {"peak": (before.peak_bytes, after.peak_bytes), **sizes}.items():
        if was is not None and now is not None and was != now:
            yield Difference(
                aspect=Aspect.MEMORY, subject=name, before=was, after=now, nbytes=now - was
            )


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


def _of_donations(before: ModuleSummary, after: ModuleSummary) -> Iterator[Difference]:
    """Arguments that are donated, or donated and copied, in one of the programs only.

    A buffer that an output takes over in one program only is a difference of shared buffers.
    """
    ours, theirs = (
        {(each.parameter_number, each.parameter_index): each for each in summary.donations}
        for summary in (before, after)
    )
    for place in dict.fromkeys((*ours, *theirs)):
        old, new = ours.get(place), theirs.get(place)
        was, now = _fate(old), _fate(new)
        lost = bool(old and old.honoured) - bool(new and new.honoured)
        if was != now and _is_taken(old) == _is_taken(new):
            given = new or old
            assert given is not None
            yield Difference(
                aspect=Aspect.DONATION,
                subject=f"argument {given.argument} {now}, {was} before",
                where=_shape_and_size(given.shape),
                nbytes=lost * given.shape.nbytes,
            )


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


def _shape_and_size(shape: Shape) -> str:
    return f"({shape}, {format_bytes(shape.nbytes)})"


def _transfers(summary: ModuleSummary) -> Iterator[Item]:
    """By size and by runs, so that an iteration moved out of its loop changes nothing."""
    for each in summary.transfers:
        nbytes = each.nbytes_per_execution
        yield Item(
            subject=f"transfers of {format_bytes(nbytes)} {_ENDS[each.direction]}",
            key=nbytes,
            count=1 if each.executions is None else each.executions,
            nbytes=each.nbytes_per_run,
            source=each.source,
        )


def _of_overlaps(before: ModuleSummary, after: ModuleSummary) -> Iterator[Difference]:
    """Asynchronous operations gained and lost; of those in both, whether work overlaps them."""
    ours, theirs = _pairs_by_operation(before), _pairs_by_operation(after)
    work_is_known = all(pair.between for pair in (*before.overlaps, *after.overlaps))
    for kind, nbytes in dict.fromkeys((*ours, *theirs)):
        old, new = ours[kind, nbytes], theirs[kind, nbytes]
        waiting = _synchronous(after, kind, nbytes) - _synchronous(before, kind, nbytes)
        where = f"({waiting} now synchronous)" if len(new) < len(old) and waiting > 0 else ""
        operation = f"{_MOVES[kind]} of {format_bytes(nbytes)}"
        subject = f"asynchronous {operation}"
        if len(old) == len(new) and work_is_known:
            old, new = ([pair for pair in pairs if pair.between != Cost()] for pairs in (old, new))
            subject = f"{operation} overlapped with other work"
        item = Item(subject=subject, where=where, nbytes=nbytes)
        yield from count_differences(
            Aspect.OVERLAP,
            [replace(item, source=pair.source) for pair in old],
            [replace(item, source=pair.source) for pair in new],
        )


def _pairs_by_operation(
    summary: ModuleSummary,
) -> defaultdict[tuple[AsyncKind, int], list[AsyncPair]]:
    found = defaultdict[tuple[AsyncKind, int], list[AsyncPair]](list)
    for pair in summary.overlaps:
        found[pair.kind, pair.nbytes].append(pair)
    return found


def _synchronous(summary: ModuleSummary, kind: AsyncKind, nbytes: int) -> int:
    """How many operations of that kind and size run while nothing else does."""
    if kind in {AsyncKind.TO_HOST, AsyncKind.TO_DEVICE}:
        moved = Direction(kind.value), nbytes
        every = [(each.direction, each.nbytes_per_execution) for each in summary.transfers]
        asynchronous = [(each.kind, each.nbytes) for each in summary.overlaps]
        return every.count(moved) - asynchronous.count((kind, nbytes))
    opcodes = {AsyncKind.COLLECTIVE: _COLLECTIVES, AsyncKind.COPY: {"copy"}}.get(kind, set())
    return sum(
        each.count
        for each in (summary.inventory.operations if summary.inventory else ())
        if each.opcode in opcodes and each.shape.nbytes == nbytes
    )


def _of_inventories(before: Inventory, after: Inventory) -> Iterator[Difference]:
    for compared in (_of_interface, _of_layouts, _of_shared_buffers, _of_operations):
        yield from compared(before, after)
    for aspect, items in (
        (Aspect.HOST_PLACEMENT, _host_arrays),
        (Aspect.COLLECTIVE, _collectives),
        (Aspect.FUSION, _fusions),
    ):
        yield from count_differences(aspect, items(before), items(after))


def _of_interface(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """Arguments and outputs of another shape or memory, new ones, and those that are gone."""
    for aspect, ours, theirs in (
        (Aspect.ARGUMENT, before.arguments, after.arguments),
        (Aspect.OUTPUT, before.outputs, after.outputs),
    ):
        for number, (old, new) in enumerate(zip_longest(ours, theirs)):
            if old != new:
                was = f", was {old}" if old and new else ""
                end = f"is {new}{was}" if new else f"is gone, was {old}"
                subject = f"{aspect.value} {number} {end}"
                nbytes = (new.nbytes if new else 0) - (old.nbytes if old else 0)
                yield Difference(aspect=aspect, subject=subject, nbytes=nbytes)


def _of_layouts(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """Arguments and outputs of the same shape whose elements lie in another order."""
    arguments = before.arguments, after.arguments, before.argument_layouts, after.argument_layouts
    outputs = before.outputs, after.outputs, before.output_layouts, after.output_layouts
    for noun, both in (("argument", arguments), ("output", outputs)):
        for number, (was, shape, old, new) in enumerate(zip(*both, strict=False)):
            if was == shape and old != new:
                subject = f"{noun} {number} {shape} has layout {new}, was {old}"
                yield Difference(aspect=Aspect.LAYOUT, subject=subject)


def _of_shared_buffers(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """Outputs that take over an argument's buffer in one of the programs only."""
    for these, others, verb, sign in (
        (before.shared, after.shared, "no longer shares", -1),
        (after.shared, before.shared, "now shares", 1),
    ):
        kept = set(map(_place_of, others))
        for each in these:
            if _place_of(each) not in kept:
                output = "".join(f"[{index}]" for index in each.output_index)
                argument = "".join(f"[{index}]" for index in each.parameter_index)
                argument = f"argument {each.parameter_number}{argument}"
                yield Difference(
                    aspect=Aspect.SHARED_BUFFER,
                    subject=f"output{output} {verb} the buffer of {argument}",
                    where=_shape_and_size(each.shape),
                    nbytes=sign * each.shape.nbytes,
                )


def _place_of(shared: SharedBuffer) -> tuple[object, ...]:
    return shared.output_index, shared.parameter_number, shared.parameter_index


def _host_arrays(inventory: Inventory) -> Iterator[Item]:
    for each in inventory.host_arrays:
        size = format_bytes(each.shape.nbytes)
        yield _item(each, f"arrays {each.shape} ({size}) placed in host memory", each.shape)


def _collectives(inventory: Inventory) -> Iterator[Item]:
    """Collectives, whether they are asynchronous or not."""
    for each in inventory.operations:
        opcode = each.opcode.removesuffix("-start")
        if opcode in _COLLECTIVES:
            returned = each.opcode in _RETURN_OPERANDS and len(each.shape.elements) > 1
            shape = each.shape.elements[1] if returned else each.shape
            yield _item(each, f"{opcode} {shape}", shape)


def _fusions(inventory: Inventory) -> Iterator[Item]:
    """The number of fusions, without regard to what they compute."""
    for each in inventory.operations:
        if each.opcode == "fusion":
            yield Item(subject="fusions", count=each.count)


def _of_operations(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """All other operations; one that differs in shape alone is one difference."""
    operations = {_subject(each): each for each in (*before.operations, *after.operations)}
    places = defaultdict[tuple[str, str | None], list[Difference]](list)
    for found in count_differences(Aspect.OPERATION, _others(before), _others(after)):
        places[operations[found.subject].opcode, found.source].append(found)
    for (opcode, source), here in places.items():
        gains = [(each.after or 0) - (each.before or 0) for each in here]
        if len(here) == 2 and sum(gains) == 0:  # noqa: PLR2004 - the old shape and the new one
            old, new = here if gains[1] > 0 else reversed(here)
            was, now = (operations[each.subject].shape for each in (old, new))
            yield Difference(
                aspect=Aspect.OPERATION,
                subject=f"{opcode} {was} becomes {now}",
                where=f"({max(gains)} times)" if max(gains) > 1 else "",
                nbytes=(new.nbytes or 0) + (old.nbytes or 0),
                source=source,
            )
        else:
            yield from here


def _others(inventory: Inventory) -> Iterator[Item]:
    for each in inventory.operations:
        if each.opcode not in _COMPARED_APART and not each.opcode.endswith(_PHASES):
            yield _item(each, _subject(each), each.shape)


def _subject(operations: Operations) -> str:
    return f"{operations.opcode} {operations.shape}"


def _item(each: Operations, subject: str, shape: Shape) -> Item:
    nbytes = shape.nbytes * each.count
    return Item(subject=subject, count=each.count, nbytes=nbytes, source=each.source)
