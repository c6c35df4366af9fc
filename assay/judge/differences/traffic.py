"""Differences between what two programs move, and between what they move beside their work."""

from collections.abc import Iterator, Sequence
from typing import Final

from assay.judge.differences.operations import synchronous_nbytes
from assay.judge.differences.tally import Item, changes
from assay.model.difference import Aspect, Difference
from assay.model.module import Direction, Transfer
from assay.model.overlap import AsyncKind, AsyncPair
from assay.model.summary import ModuleSummary
from assay.model.units import format_bytes

_MOVES: Final = {
    AsyncKind.TO_HOST: "moves to the host",
    AsyncKind.TO_DEVICE: "moves from the host",
    AsyncKind.COPY: "copies",
    AsyncKind.COLLECTIVE: "collectives",
    AsyncKind.COMPUTE: "computations",
}
_ENDS: Final = {Direction.TO_HOST: "to the host", Direction.TO_DEVICE: "from the host"}
_HOST_LINK: Final = {
    AsyncKind.TO_HOST: Direction.TO_HOST,
    AsyncKind.TO_DEVICE: Direction.TO_DEVICE,
}


def of_transfers(before: Sequence[Transfer], after: Sequence[Transfer]) -> Iterator[Difference]:
    """By size and by runs, so that an iteration moved out of its loop changes nothing."""
    for change in changes(_transfer_items(before), _transfer_items(after)):
        direction, nbytes = change.kind
        subject = f"transfers of {format_bytes(nbytes)} {_ENDS[direction]}"
        yield change.told(Aspect.TRANSFER, subject)


def _transfer_items(transfers: Sequence[Transfer]) -> Iterator[Item[tuple[Direction, int]]]:
    for transfer in transfers:
        yield Item(
            kind=(transfer.direction, transfer.nbytes_per_execution),
            count=1 if transfer.executions is None else transfer.executions,
            nbytes=transfer.nbytes_per_run,
            source=transfer.source,
        )


def of_overlaps(before: ModuleSummary, after: ModuleSummary) -> Iterator[Difference]:
    """Asynchronous operations gained and lost; of the others, whether work runs beside them."""
    told = set()
    for change in changes(_overlap_items(before.overlaps), _overlap_items(after.overlaps)):
        kind, nbytes = change.kind
        told.add(change.kind)
        waiting = _synchronous(after, kind, nbytes) - _synchronous(before, kind, nbytes)
        end = f"({waiting} now synchronous)" if change.gained < 0 < waiting else ""
        subject = f"asynchronous {_MOVES[kind]} of {format_bytes(nbytes)}"
        yield change.told(Aspect.OVERLAP, subject, end)
    if all(pair.between for pair in (*before.overlaps, *after.overlaps)):
        ours, theirs = map(_with_work, (before.overlaps, after.overlaps))
        for change in changes(_overlap_items(ours), _overlap_items(theirs)):
            kind, nbytes = change.kind
            if change.kind not in told:
                subject = f"{_MOVES[kind]} of {format_bytes(nbytes)} with work beside them"
                yield change.told(Aspect.OVERLAP, subject)


def _overlap_items(pairs: Sequence[AsyncPair]) -> Iterator[Item[tuple[AsyncKind, int]]]:
    for pair in pairs:
        yield Item(kind=(pair.kind, pair.nbytes), nbytes=pair.nbytes, source=pair.source)


def _with_work(pairs: Sequence[AsyncPair]) -> tuple[AsyncPair, ...]:
    return tuple(
        pair for pair in pairs if pair.between and (pair.between.flops or pair.between.nbytes)
    )


def _synchronous(summary: ModuleSummary, kind: AsyncKind, nbytes: int) -> int:
    """How many operations of that kind and size run while nothing else does."""
    if kind in _HOST_LINK:
        moved = (_HOST_LINK[kind], nbytes)
        every = [(each.direction, each.nbytes_per_execution) for each in summary.transfers]
        asynchronous = [(each.kind, each.nbytes) for each in summary.overlaps]
        return every.count(moved) - asynchronous.count((kind, nbytes))
    return synchronous_nbytes(summary.inventory, kind)[nbytes] if summary.inventory else 0
