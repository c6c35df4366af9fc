"""Differences between two programs: how many of each operation, transfer and copy they have."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from assay.model.inspection import Aspect, Difference
from assay.model.module import (
    AsyncKind,
    AsyncPair,
    Direction,
    Inventory,
    Operations,
    Shape,
    Transfer,
)
from assay.model.summary import ModuleSummary
from assay.model.units import format_bytes

Kind = TypeVar("Kind", bound=Hashable)

_LINES_AT_MOST: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Generic[Kind]):
    """Some things of one kind; ``nbytes`` is theirs altogether, None if unknown."""

    kind: Kind
    count: int = 1
    nbytes: int | None = 0
    source: str | None = None


@dataclass(slots=True)
class _Sum:
    count: int = 0
    nbytes: int | None = 0
    sources: Counter[str] = field(default_factory=Counter)

    def add(self, item: Item[Kind]) -> None:
        self.count += item.count
        known = self.nbytes is not None and item.nbytes is not None
        self.nbytes = (self.nbytes or 0) + (item.nbytes or 0) if known else None
        if item.source:
            self.sources[item.source] += item.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[Kind]):
    """A kind of which one program has more than the other.

    ``nbytes`` is what the second has more. ``source`` names the lines that only the program with
    more of them has; where other lines differ too, these are alternatives.
    """

    kind: Kind
    before: int
    after: int
    nbytes: int | None
    source: str | None

    @property
    def gained(self) -> int:
        """How many the second program has more; negative for fewer."""
        return self.after - self.before

    def told(self, aspect: Aspect, subject: str, where: str = "") -> Difference:
        """The difference that this is, in words."""
        return Difference(
            aspect=aspect,
            subject=subject,
            before=self.before,
            after=self.after,
            where=where,
            nbytes=self.nbytes,
            source=self.source,
        )


def changes(before: Iterable[Item[Kind]], after: Iterable[Item[Kind]]) -> Iterator[Change[Kind]]:
    """The kinds whose counts differ, in the order in which they are met.

    Lines are no part of a kind: a comment that moves all lines by one changes no count.
    """
    ours, theirs = _sums(before), _sums(after)
    for kind in dict.fromkeys((*ours, *theirs)):
        one, other = ours.get(kind, _Sum()), theirs.get(kind, _Sum())
        if one.count != other.count:
            known = one.nbytes is not None and other.nbytes is not None
            yield Change(
                kind=kind,
                before=one.count,
                after=other.count,
                nbytes=(other.nbytes or 0) - (one.nbytes or 0) if known else None,
                source=_lines(other, one) if other.count > one.count else _lines(one, other),
            )


def _sums(items: Iterable[Item[Kind]]) -> Mapping[Kind, _Sum]:
    sums: dict[Kind, _Sum] = {}
    for item in items:
        sums.setdefault(item.kind, _Sum()).add(item)
    return sums


def _lines(more: _Sum, fewer: _Sum) -> str | None:
    """The lines that account for a surplus, the first few; "or" where not all of them can."""
    surplus = more.sources - fewer.sources
    lines = sorted(surplus)
    if len(lines) > _LINES_AT_MOST:
        rest = len(lines) - _LINES_AT_MOST
        lines = [*lines[:_LINES_AT_MOST], f"{rest} more lines" if rest > 1 else "1 more line"]
    apart = ", " if surplus.total() <= more.count - fewer.count else " or "
    return apart.join(lines) or None


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
    """The number of fusions, without regard to what they compute."""
    ours, theirs = map(_fusions, (before, after))
    if ours != theirs:
        yield Difference(aspect=Aspect.FUSION, subject="fusions", before=ours, after=theirs)


def of_operations(before: Inventory, after: Inventory) -> Iterator[Difference]:
    """All other operations; one that differs in shape alone is one difference."""
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
    """Asynchronous operations gained and lost; of those in both, whether work overlaps them."""
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
                subject = f"{_MOVES[kind]} of {format_bytes(nbytes)} overlapped with other work"
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
