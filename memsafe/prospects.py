"""What a loop could never make in slices: most attempts to share a loop end at the same values.

A value that a loop cannot slice stays so while the loop grows, for nothing that it has taken in is
given back. So the way to such a value is remembered, and every later sink that needs something on
it is turned away before anything grows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jax.extend.core import Literal

from memsafe.factors import Factor

if TYPE_CHECKING:
    from jax.extend.core import Var

    from memsafe.factors import Axis
    from memsafe.region import Region, Splitting

    Sliced = tuple[Var, Axis]

__all__ = ["Prospects"]


@dataclass(slots=True, kw_only=True)
class Prospects:
    """What `region` could take in, while it grows and no other region does.

    Attributes:
        splitting: The values that are never kept.
        region: The loop.
        hopeless: Values along an axis that the loop cannot make in slices.
    """

    splitting: Splitting
    region: Region
    hopeless: set[Sliced] = field(default_factory=set)

    def may_take(self, sink: int, factor: Factor) -> bool:
        """Whether nothing keeps `sink` out but what growing itself may still meet."""
        if sink in self.region.factors:
            return True
        needed_by: dict[Sliced, Sliced | None] = {}
        todo: list[Sliced | None] = [None]  # The sink itself.
        for each in todo:
            needs = self._operands(sink, factor) if each is None else self._needs(*each)
            if needs is None or not self.hopeless.isdisjoint(needs):
                stuck = each
                while stuck is not None:
                    self.hopeless.add(stuck)
                    stuck = needed_by[stuck]
                return False
            for need in needs:
                if need not in needed_by:
                    needed_by[need] = each
                    todo.append(need)
        return True

    def _needs(self, value: Var, axis: Axis) -> list[Sliced] | None:
        """What the loop must slice to slice `value` along `axis`; None where it cannot."""
        graph = self.splitting.graph
        defined = graph.definition[value]
        result = graph.equations[defined].outvars.index(value)
        have = self.region.versions(defined)
        if any(factor.results[result] == axis for factor in have):
            return []
        if have and value not in self.splitting.split:
            return None
        found = graph.carrier(defined, result, axis)
        return self._operands(defined, found) if isinstance(found, Factor) else None

    def _operands(self, index: int, factor: Factor) -> list[Sliced] | None:
        """The operands that the loop would make itself; None where one would be needed whole."""
        splitting, owned = self.splitting, self.region.owned
        found: list[Sliced] = []
        for value, axis in zip(
            splitting.graph.equations[index].invars, factor.operands, strict=True
        ):
            if isinstance(value, Literal) or value not in splitting.graph.definition:
                continue
            defined = splitting.graph.definition[value]
            split = value in splitting.split
            if split or splitting.above[defined] & owned:
                if axis is not None:
                    found.append((value, axis))
                elif not (split and splitting.cheap[defined]):
                    return None
        return found
