"""Differences in number: how many of each operation, transfer or copy two programs have."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from assay.model.inspection import Aspect, Difference

_LINES_AT_MOST: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Some things of one kind in a program. ``nbytes`` is their total, None if unknown.

    The kind is ``subject``, ``where`` and ``key``, which holds what the words do not tell apart.
    """

    subject: str
    where: str = ""
    key: Hashable = None
    count: int = 1
    nbytes: int | None = 0
    source: str | None = None


def count_differences(
    aspect: Aspect, before: Iterable[Item], after: Iterable[Item]
) -> Iterator[Difference]:
    """The kinds of which one program has more than the other, in the order of their first items.

    Lines are no part of a kind: a comment that moves all lines by one changes no count. The
    source of a difference are the lines that only the program with more items has. They are
    alternatives where other lines differ too.
    """
    ours, theirs = _by_kind(before), _by_kind(after)
    for kind in dict.fromkeys((*ours, *theirs)):
        old, new = ours.get(kind, []), theirs.get(kind, [])
        was, now = (sum(each.count for each in items) for items in (old, new))
        if was != now:
            more, fewer = (new, old) if now > was else (old, new)
            subject, where, _ = kind
            yield Difference(
                aspect=aspect,
                subject=subject,
                before=was,
                after=now,
                where=where,
                nbytes=_added_nbytes(old, new),
                source=_lines(_sources(more) - _sources(fewer), abs(now - was)),
            )


def _by_kind(items: Iterable[Item]) -> Mapping[tuple[str, str, Hashable], Sequence[Item]]:
    groups = defaultdict[tuple[str, str, Hashable], list[Item]](list)
    for item in items:
        groups[item.subject, item.where, item.key].append(item)
    return groups


def _added_nbytes(old: Iterable[Item], new: Iterable[Item]) -> int | None:
    was, now = ([each.nbytes for each in items] for items in (old, new))
    if None in was or None in now:
        return None
    return sum(filter(None, now)) - sum(filter(None, was))


def _sources(items: Iterable[Item]) -> Counter[str]:
    sources = Counter[str]()
    for item in items:
        if item.source:
            sources[item.source] += item.count
    return sources


def _lines(surplus: Counter[str], gained: int) -> str | None:
    """The first few lines of a surplus; joined by "or" where not all of them can account for it."""
    lines = sorted(surplus)
    if len(lines) > _LINES_AT_MOST:
        rest = len(lines) - _LINES_AT_MOST
        lines = [*lines[:_LINES_AT_MOST], f"{rest} more lines" if rest > 1 else "1 more line"]
    return (", " if surplus.total() <= gained else " or ").join(lines) or None
