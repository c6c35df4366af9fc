"""A region: equations that one loop computes together, slice by slice along one axis.

A region grows from a *sink*, an equation that turns values too large to keep into one that is
kept. From there it takes in, upward, whatever makes those large values, as long as each equation
carries the loop's axis; then every later sink that can share the loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jax.extend.core import Var

    from memsafe.factors import Axis, Factor
    from memsafe.graph import Graph

__all__ = ["Blocked", "Region", "TilingMismatch", "bits"]


class Blocked(Exception):
    """A region cannot take in an equation.

    Attributes:
        equation: The index of the equation that stands in the way.
        value: The value whose keeping would remove the obstacle, if there is one.
        why: What is wrong, in a few words.
    """

    def __init__(self, equation: int, why: str, value: Var | None = None) -> None:
        super().__init__(why)
        self.equation, self.why, self.value = equation, why, value


class TilingMismatch(Exception):
    """A reshape on the way carries the axis in blocks; the region must step in them too."""

    def __init__(self, times: int) -> None:
        super().__init__(f"{times} indices at a time")
        self.times = times


@dataclass(slots=True, kw_only=True)
class Region:
    """Equations of one loop.

    Attributes:
        size: The indices that the loop runs over.
        factors: The factor that each equation is split along.
        again: Further factors of equations that the loop computes along other axes as well, as
            for the sum of a matrix and its transpose.
        axes: The axis along which each value of the loop is sliced, at first.
        sinks: The equations that the loop is there for.
        mask: All its equations.
        owned: The equations whose kept results this loop is the first to make.
        outside: All that the loop's whole inputs depend on.
        slices: The bytes of slices by their length, as far as known; it grows no more by then.
    """

    size: int
    factors: dict[int, Factor] = field(default_factory=dict)
    again: dict[int, tuple[Factor, ...]] = field(default_factory=dict)
    axes: dict[Var, Axis] = field(default_factory=dict)
    sinks: list[int] = field(default_factory=list)
    mask: int = 0
    owned: int = 0
    outside: int = 0
    slices: dict[int, float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def least(self) -> int:
        """The fewest indices that a slice may have."""
        least, devices = max(each.least for each in self._all_factors()), self.devices
        return -(-least // devices) * devices

    @property
    def devices(self) -> int:
        """The number of devices that the indices of a slice are a multiple of."""
        return math.lcm(*{each.devices for each in self._all_factors()})

    def _all_factors(self) -> Iterator[Factor]:
        return chain(self.factors.values(), *self.again.values())

    def versions(self, index: int) -> tuple[Factor, ...]:
        """All the factors that an equation of the loop is computed along."""
        first = self.factors.get(index)
        return () if first is None else (first, *self.again.get(index, ()))

    def inputs(self, graph: Graph) -> list[Var]:
        """The values that the loop reads and does not make, in order of first use."""
        found: dict[Var, None] = {}
        for index in sorted(self.factors):
            for value in graph.reads[index]:
                if graph.definition.get(value) not in self.factors:
                    found[value] = None
        return list(found)


def bits(mask: int) -> list[int]:
    """The equations of a mask, the first first."""
    found = []
    while mask:
        found.append((mask & -mask).bit_length() - 1)
        mask &= mask - 1
    return found
