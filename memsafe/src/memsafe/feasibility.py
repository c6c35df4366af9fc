"""Values that a loop can never make in slices: most attempts to share a loop end at the same ones.

A value that a loop cannot slice stays so while the loop grows, because a loop never gives back what
it has taken in. So the path to such a value is remembered. A later sink that needs a value on this
path is rejected before anything grows. Only a value whose equation has one way to carry its axis is
remembered: another way, not open from below, could be taken first for another result or sink.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memsafe.region import bits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jax.extend.core import Var

    from memsafe.factors import Axis, Factor
    from memsafe.region import Region
    from memsafe.splitting import Splitting

    Sliced = tuple[Var, Axis]

__all__ = ["Feasibility", "WholeReads"]


@dataclass(slots=True, kw_only=True)
class WholeReads:
    """The kept values that any loop reads whole to make a value in slices along an axis.

    The result is None if no loop can make the value, whatever the loop has taken in. The search
    follows values that are never kept, as long as there is one way to carry their axis. Halos do
    not matter: what an equation reads whole, it reads whole with any halo.

    Attributes:
        splitting: The values that are never kept.
        known: For a value along an axis, the equations that make what is read whole, as bits.
    """

    splitting: Splitting
    known: dict[Sliced, int | None] = field(default_factory=dict)

    def of(self, operands: Iterable[tuple[Var, Axis | None]]) -> list[int] | None:
        """The equations whose results are read whole by an equation with such `operands`.

        Those that are read whole to make the operands are included.
        """
        operands = tuple(operands)
        todo = self._unknown(operands)
        while todo:
            unknown = self._unknown(self._operands(todo[-1]))
            if not unknown:
                need = todo.pop()
                value, axis = need
                ways = self.splitting.graph.carrier(value, axis).ways
                self.known[need] = self._read(self._operands(need)) if ways else None
            todo += unknown
        read = self._read(operands)
        return None if read is None else bits(read)

    def _operands(self, need: Sliced) -> tuple[tuple[Var, Axis | None], ...]:
        return self.splitting.graph.carrier(*need).operands or ()

    def _unknown(self, operands: Iterable[tuple[Var, Axis | None]]) -> list[Sliced]:
        split, known = self.splitting.split, self.known
        return [
            (value, axis.exact)
            for value, axis in operands
            if axis is not None and value in split and (value, axis.exact) not in known
        ]

    def _read(self, operands: Iterable[tuple[Var, Axis | None]]) -> int | None:
        splitting, found = self.splitting, 0
        for value, axis in operands:
            maker, split = splitting.graph.definition[value], value in splitting.split
            if axis is None and not split:
                found |= 1 << maker
            elif axis is None and not splitting.cheap[maker]:
                return None
            elif axis is not None and split:
                read = self.known[value, axis.exact]
                if read is None:
                    return None
                found |= read
        return found


@dataclass(slots=True, kw_only=True)
class Feasibility:
    """What `region` could take in, while only this region grows.

    Attributes:
        splitting: The values that are never kept.
        region: The loop.
        hopeless: Values along an axis that the loop cannot make in slices.
        possible: Values along an axis without a known obstacle, for the current number of sinks.
        grown: The number of sinks that `possible` holds for.
    """

    splitting: Splitting
    region: Region
    hopeless: set[Sliced] = field(default_factory=set)
    possible: set[Sliced] = field(default_factory=set)
    grown: int = 0

    def may_take(self, sink: int, factor: Factor) -> bool:
        """Whether no known obstacle keeps `sink` out; growing may still meet another one."""
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
        """The operands that the loop must slice to slice `need`; None if it cannot."""
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
