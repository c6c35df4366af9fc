"""How a reshape merges dimensions: `[b, h, s]` to `[b * h, s]` has groups `((b, h), (s,))`.

Each merged dimension has one group: the sizes that it is made of. A dimension of size one that a
reshape only inserts has an empty group.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Dims = tuple[int, ...]
    Groups = tuple[Dims, ...]

__all__ = ["apart", "expanded", "merging", "places"]


def merging(separate: Dims, merged: Dims) -> Groups | None:
    """The groups of a reshape that only merges, else None; also None for empty arrays."""
    if math.prod(separate) != math.prod(merged) or 0 in separate or not merged:
        return None
    rest, groups = list(separate), []
    for size in merged:
        group: list[int] = []
        while rest and (math.prod(group) < size or (size == 1 and not group and rest[0] == 1)):
            group.append(rest.pop(0))
        if math.prod(group) != size:
            return None
        groups.append(tuple(group))
    return (*groups[:-1], (*groups[-1], *rest))


def apart(shape: Sequence[int]) -> Groups:
    """Groups of one dimension each."""
    return tuple((size,) for size in shape)


def expanded(groups: Groups) -> Dims:
    """The shape with all dimensions separate."""
    return tuple(itertools.chain.from_iterable(groups))


def places(groups: Groups, dims: Iterable[int]) -> Dims:
    """The separate dimensions that the merged `dims` are made of."""
    starts = list(itertools.accumulate(map(len, groups), initial=0))
    return tuple(itertools.chain.from_iterable(range(starts[dim], starts[dim + 1]) for dim in dims))
