"""A region: equations that one loop computes together, slice by slice along one axis.

A region grows from a *sink*, an equation that turns values too large to keep into one that is
kept. It grows upward through the equations that make those large values, as long as each equation
carries the loop's axis. Then it takes in every later sink that can share the loop.
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
    """A reshape in the region carries the axis in blocks; the loop must step by whole blocks."""

    def __init__(self, times: int) -> None:
        super().__init__(f"{times} indices at a time")
        self.times = times


@dataclass(slots=True, kw_only=True)
class Region:
    """Equations of one loop.

    Attributes:
        size: Number of indices that the loop runs over.
        factors: The factor that each equation is split along.
        again: Further factors of equations that the loop computes along other axes as well, as
            for the sum of a matrix and its transpose.
        axes: The axis along which each value is sliced in the first version of its equation.
        sinks: The equations from which the region grew, in order.
        mask: Bit mask of all equations of the loop.
        owned: Bit mask of the equations whose kept results this loop is the first to make.
        outside: Bit mask of all equations that the loop's kept inputs depend on.
        slices: Cache of the bytes of slices, by length; filled when the region grows no more.
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
        """The number of devices that share a slice; the length of a slice is a multiple of it."""
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
    """The equations of a bit mask, in ascending order."""
    found = []
    while mask:
        found.append((mask & -mask).bit_length() - 1)
        mask &= mask - 1
    return found
