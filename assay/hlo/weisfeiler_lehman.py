"""Weisfeiler-Lehman colour refinement of the nodes of a graph without names.

A node begins with its own label. In turns, operands before users and users before operands, it
takes in the colours of what it reads, and of those who read it and where they do, until a turn
tells no more nodes apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

Edge = tuple[int, bytes]
"""What a node reads: the node, and the place in which it is read, in a fixed number of bytes."""

COLOUR_SIZE: Final = 16
PLACE_SIZE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Colours:
    """A colour for each node: of what it is computed from, and of that and of what it is for."""

    values: Sequence[bytes]
    whole: Sequence[bytes]


def colours(labels: Sequence[bytes], operands: Sequence[Sequence[Edge]]) -> Colours:
    """Colours that two graphs share wherever a renumbering of nodes maps one to the other.

    Nodes come after their operands. The opposite does not hold: nodes of one colour need not be
    interchangeable, where a graph is so regular that no neighbourhood tells them apart.
    """
    users: list[list[Edge]] = [[] for _ in labels]
    for node, read in enumerate(operands):
        for operand, place in read:
            users[operand].append((node, place))
    values = whole = _swept(labels, operands, range(len(labels)))
    told_apart = -1
    while (number := len(set(whole))) > told_apart:
        told_apart = number
        whole = _swept(whole, users, range(len(labels) - 1, -1, -1))
        whole = _swept(whole, operands, range(len(labels)))
    return Colours(values=values, whole=whole)


def digest(data: bytes) -> bytes:
    """A colour for some bytes."""
    return blake2b(data, digest_size=COLOUR_SIZE).digest()


def place(*what: object) -> bytes:
    """The bytes of an edge's place; equal for equal words and numbers."""
    return blake2b(repr(what).encode(), digest_size=PLACE_SIZE).digest()


def _swept(
    before: Sequence[bytes], neighbours: Sequence[Sequence[Edge]], order: range
) -> list[bytes]:
    """Each node's colour with its neighbours' new ones taken in; their order means nothing."""
    after = list(before)
    for node in order:
        parts = [after[other] + where for other, where in neighbours[node]]
        parts.sort()
        after[node] = blake2b(after[node] + b"".join(parts), digest_size=COLOUR_SIZE).digest()
    return after
