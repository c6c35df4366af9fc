"""What a loop could never make in slices: most attempts to share a loop end at the same values.

A value that a loop cannot slice stays so while the loop grows, for nothing that it has taken in is
given back. So the way to such a value is remembered, and every later sink that needs something on
it is turned away before anything grows. Only a value whose equation has one way to carry its axis
is remembered: another way, not open from below, could be taken first for another result or sink.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jax.extend.core import Var

    from memsafe.factors import Axis, Factor
    from memsafe.region import Region, Splitting

    Sliced = tuple[Var, Axis]

__all__ = ["Feasibility"]


@dataclass(slots=True, kw_only=True)
class Feasibility:
    """What `region` could take in, while it grows and no other region does.

    Attributes:
        splitting: The values that are never kept.
        region: The loop.
        hopeless: Values along an axis that the loop cannot make in slices.
        possible: Those that nothing keeps out of the loop, while it has as many sinks.
        grown: That number.
    """

    splitting: Splitting
    region: Region
    hopeless: set[Sliced] = field(default_factory=set)
    possible: set[Sliced] = field(default_factory=set)
    grown: int = 0

    def may_take(self, sink: int, factor: Factor) -> bool:
        """Whether nothing keeps `sink` out but what growing itself may still meet."""
        if sink in self.region.factors:
            return True
        if self.grown != len(self.region.sinks):
            self.grown = len(self.region.sinks)
            self.possible.clear()
        operands = self.splitting.graph.made_operands(sink, factor)
        needed_by: dict[Sliced, Sliced | None] = {}
        todo: list[Sliced | None] = [None]  # The sink itself.
        for each in todo:
            needs = self._sliced(operands) if each is None else self._needs(each)
            if needs is None or not self.hopeless.isdisjoint(needs):
                stuck = each
                while stuck is not None:
                    self.hopeless.add(stuck)
                    stuck = needed_by[stuck]
                return False
            for need in needs:
                if need not in needed_by and need not in self.possible:
                    needed_by[need] = each
                    todo.append(need)
        self.possible.update(needed_by)
        return True

    def _needs(self, need: Sliced) -> list[Sliced] | None:
        """What the loop must slice to slice a value along an axis; None where it cannot."""
        value, axis = need
        carrier = self.splitting.graph.carrier(value, axis)
        have = self.region.versions(carrier.equation)
        made = [axis for axis in (each.results[carrier.result] for each in have) if axis]
        if any(one.covers(axis) for one in made):
            return []
        if not carrier.ways:
            return None
        is_taken = have and value not in self.splitting.split
        if is_taken and not any(one.steps_with(axis) for one in made):
            return None
        return [] if carrier.operands is None else self._sliced(carrier.operands)

    def _sliced(self, operands: Iterable[tuple[Var, Axis | None]]) -> list[Sliced] | None:
        """Those of `operands` that the loop would make; None where it would need one whole."""
        splitting, owned = self.splitting, self.region.owned
        found: list[Sliced] = []
        for value, axis in operands:
            defined = splitting.graph.definition[value]
            split = value in splitting.split
            if split or splitting.above[defined] & owned:
                if axis is not None:
                    found.append((value, axis))
                elif not (split and splitting.cheap[defined]):
                    return None
        return found
