"""Tallies: how many of each kind of thing two programs have, and which lines account for it."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from assay.model.inspection import Aspect, Difference

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
