"""A region: equations that one loop computes together, slice by slice along one axis.

A region grows from a *sink*, an equation that turns values too large to keep into one that is
kept. From there it takes in, upward, whatever makes those large values, as long as each equation
carries the loop's axis; then every later sink that can share the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from jax.extend.core import Literal

from memsafe.factors import Factor
from memsafe.feasibility import Feasibility
from memsafe.graph import Graph
from memsafe.jax_internals import aval_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jax.extend.core import Var

    from memsafe.factors import Axis

__all__ = ["Blocked", "Region", "Splitting"]


_VERSIONS = 3
"""Along how many axes a slice may compute one equation."""


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
        owned: The equations whose kept results this loop is the first to make.
        outside: All that the loop's whole inputs depend on.
        slices: The bytes of slices by their length, as far as known; it grows no more by then.
    """

    size: int
    factors: dict[int, Factor] = field(default_factory=dict)
    again: dict[int, tuple[Factor, ...]] = field(default_factory=dict)
    axes: dict[Var, Axis] = field(default_factory=dict)
    sinks: list[int] = field(default_factory=list)
    owned: int = 0
    outside: int = 0
    slices: dict[int, float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def mask(self) -> int:
        """The region's equations."""
        return sum(1 << index for index in self.factors)

    @property
    def least(self) -> int:
        """The fewest indices that a slice may have."""
        return max(each.least for each in chain(self.factors.values(), *self.again.values()))

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


class Splitting:
    """Grows regions over a graph in which the values of `split` are never kept whole.

    `way` is the most equations, of which all is kept, that a loop takes in to reach one more sink;
    None: as many as it takes.
    """

    def __init__(self, graph: Graph, split: set[Var], way: int | None = None) -> None:
        self.graph = graph
        self.split = split
        self.way = way
        self.above = list(graph.ancestors)
        self.covered = 0
        self.known_seeds: dict[int, list[Factor]] = {}
        self.known_ways: dict[tuple[int, int], list[Factor]] = {}
        self.cones = self._cones()
        self.cheap = self._cheap()

    def _cones(self) -> list[int]:
        """For each equation, itself and what makes its operands through values never kept."""
        found: list[int] = []
        for index, reads in enumerate(self.graph.reads):
            mask = 1 << index
            for value in reads:
                if value in self.split:
                    mask |= found[self.graph.definition[value]]
            found.append(mask)
        return found

    def _cheap(self) -> list[bool]:
        """For each equation, whether its values come pointwise from little: a mask, a bias."""
        graph = self.graph
        cheap: list[bool] = []
        sources: list[int] = []  # Bytes; of what is not cheap nobody asks.
        for index, reads in enumerate(graph.reads):
            cheap.append(False)
            sources.append(0)
            if not graph.units[index].absorbed:
                continue
            split = [graph.definition[value] for value in reads if value in self.split]
            if all(cheap[each] for each in split):
                kept = sum(graph.size[value] for value in reads if value not in self.split)
                sources[index] = kept + sum(sources[each] for each in split)
                cheap[index] = 8 * sources[index] <= graph.made[index]
        return cheap

    def sinks(self) -> list[int]:
        """The equations that use values never kept, and make none."""
        return [
            index
            for index, reads in enumerate(self.graph.reads)
            if not self.split.isdisjoint(reads)
            and self.split.isdisjoint(self.graph.equations[index].outvars)
        ]

    def seeds(self, sink: int) -> list[Factor]:
        """The factors of `sink` that slice all of its large operands."""
        if sink not in self.known_seeds:
            operands = self.graph.equations[sink].invars
            large = [at for at, value in enumerate(operands) if self._is_split(value)]
            self.known_seeds[sink] = [
                factor
                for factor in self.graph.factors[sink]
                if all(factor.operands[at] is not None for at in large)
            ]
        return self.known_seeds[sink]

    def grown(self, sink: int, factor: Factor) -> Region:
        """The region that computes `sink` alone; raises Blocked."""
        while True:
            region = Region(size=factor.size)
            try:
                self.extend(region, sink, factor)
            except TilingMismatch as mismatch:
                if factor.size % mismatch.times or factor.size == mismatch.times:
                    raise Blocked(sink, f"{factor.size} indices are no multiple") from None
                factor = factor.coarser(mismatch.times)
            else:
                return region

    def merge(self, region: Region, sinks: list[int]) -> bool:
        """Takes into `region` each of `sinks`, in order, that shares values with it and can.

        Whether none of those that share values was left out. A mask that all layers of a model
        read is nothing to share a loop for.
        """
        constant = self.graph.constant
        mask, all_in = region.mask & ~constant, True
        feasibility = Feasibility(splitting=self, region=region)
        for sink in sinks:
            if not self.cones[sink] & mask:
                continue
            if self._taken_in(feasibility, sink):
                mask = region.mask & ~constant
            else:
                all_in = False
        return all_in

    def _taken_in(self, feasibility: Feasibility, sink: int) -> bool:
        region = feasibility.region
        for factor in self._ways(sink, region.size):
            if not feasibility.may_take(sink, factor):
                continue
            try:
                self.extend(region, sink, factor)
            except (Blocked, TilingMismatch):
                continue
            return True
        return False

    def _ways(self, sink: int, size: int) -> list[Factor]:
        """The factors of `sink` that slice its large operands, with so many indices."""
        if (sink, size) not in self.known_ways:
            fine = (factor for factor in self.seeds(sink) if not factor.size % size)
            self.known_ways[sink, size] = [each.coarser(each.size // size) for each in fine]
        return self.known_ways[sink, size]

    def extend(self, region: Region, sink: int, factor: Factor) -> None:
        """Takes `sink` and what makes its operands into `region`, or raises and changes nothing."""
        growth = _Growth(splitting=self, region=region, outside=region.outside)
        growth.take(sink, factor)
        growth.run()
        growth.complete()
        if region.sinks and self.way is not None and self._kept(growth.taken) > self.way:
            raise Blocked(sink, "too many operations lie between it and the loop")
        owned = region.owned | self.owned(index for index, _ in growth.taken)
        if growth.outside & owned:
            raise Blocked(sink, "it needs a result of the loop that is still running")
        for index, (version, *others) in growth.versions.items():
            region.factors[index] = version
            if others:
                region.again[index] = tuple(others)
        region.axes.update(growth.axes)
        region.sinks.append(sink)
        region.owned, region.outside = owned, growth.outside

    def close(self, region: Region) -> None:
        """Makes the region one thing: what depends on a part of it depends on all it reads."""
        self.covered |= region.owned
        behind = region.outside | region.owned
        first = min(region.factors)
        for index, mask in enumerate(self.above[first:], first):
            if mask & region.owned:
                self.above[index] = mask | behind

    def _kept(self, taken: Iterable[tuple[int, Factor]]) -> int:
        """How many of the equations make only what is kept."""
        results = (self.graph.equations[index].outvars for index, _ in taken)
        return sum(not any(value in self.split for value in made) for made in results)

    def owned(self, indices: Iterable[int]) -> int:
        """Those that make what is kept, and that no loop before makes."""
        mask = 0
        for index in indices:
            kept = any(value not in self.split for value in self.graph.equations[index].outvars)
            if kept and not self.covered >> index & 1:
                mask |= 1 << index
        return mask

    def _is_split(self, atom: Var | Literal) -> bool:
        return not isinstance(atom, Literal) and atom in self.split


@dataclass(slots=True, kw_only=True)
class _Growth:
    """One attempt to take a sink into a region."""

    splitting: Splitting
    region: Region
    outside: int
    taken: list[tuple[int, Factor]] = field(default_factory=list)
    versions: dict[int, tuple[Factor, ...]] = field(default_factory=dict)
    axes: dict[Var, Axis] = field(default_factory=dict)
    followed: int = 0

    def take(self, index: int, factor: Factor) -> None:
        """Puts an equation into the loop, split along `factor`."""
        have = self._versions(index)
        if factor in have:
            return
        at, factor = self._placed(have, factor)
        if factor in have:
            return
        if at == len(have) > 0 and not self._can_repeat(index, (*have, factor)):
            results = self.splitting.graph.equations[index].outvars
            own = next((value for value in results if value in self.splitting.split), None)
            raise Blocked(index, "it would be split along two axes at once", own)
        self.versions[index] = (*have[:at], factor, *have[at + 1 :])
        self.taken.append((index, factor))
        results = self.splitting.graph.equations[index].outvars
        for value, axis in zip(results, factor.results, strict=True):
            if axis is not None and at == 0:
                self.axes[value] = axis

    def _placed(self, have: tuple[Factor, ...], factor: Factor) -> tuple[int, Factor]:
        """Which version a factor becomes: one that is there with a halo for both, else another."""
        for at, other in enumerate(have):
            both = other.joined(factor)
            if both is not None and both.halo <= self.region.size // 2:
                return at, both
        return len(have), factor

    def complete(self) -> None:
        """Has the loop make each index of what is kept in it once, in addition to what halos need.

        Raises Blocked or TilingMismatch.
        """
        seen = -1
        while len(self.taken) > seen:
            seen = len(self.taken)
            owned = self.splitting.owned(self.versions)
            for index in [index for index in self.versions if owned >> index & 1]:
                self._make_exact(index)
            self.run()

    def _make_exact(self, index: int) -> None:
        first, *_ = self.versions[index]
        results = self.splitting.graph.equations[index].outvars
        for value, axis in zip(results, first.results, strict=True):
            if axis is not None:
                if aval_of(value).shape[axis.dim] != self.region.size * axis.block:
                    raise Blocked(index, "the slices of the loop do not divide a result of it")
                self._demand(value, axis.exact)

    def run(self) -> None:
        """Follows operands upward until the loop is closed above.

        Raises Blocked or TilingMismatch.
        """
        while self.followed < len(self.taken):
            index, factor = self.taken[self.followed]
            self.followed += 1
            equation = self.splitting.graph.equations[index]
            for value, axis in zip(equation.invars, factor.operands, strict=True):
                if not isinstance(value, Literal):
                    self._operand(index, value, axis)

    def _versions(self, index: int) -> tuple[Factor, ...]:
        return self.versions.get(index) or self.region.versions(index)

    def _can_repeat(self, index: int, factors: tuple[Factor, ...]) -> bool:
        """Whether a slice may compute the equation along several axes: nothing of it is kept."""
        split, results = self.splitting.split, self.splitting.graph.equations[index].outvars
        return (
            len(factors) <= _VERSIONS
            and all(factor.merge is None for factor in factors)
            and all(value in split for value in results)
        )

    def _operand(self, index: int, value: Var, axis: Axis | None) -> None:
        splitting = self.splitting
        defined = splitting.graph.definition.get(value)
        if defined is None:
            return
        split = value in splitting.split
        if split or splitting.above[defined] & self.region.owned:
            if axis is not None:
                self._demand(value, axis)
            elif split and splitting.cheap[defined]:
                self._take_whole(defined)
            else:
                why = "it needs the whole of an operand that the loop computes in slices"
                raise Blocked(index, why, value if split else None)
        else:
            self.outside |= splitting.above[defined]

    def _demand(self, value: Var, axis: Axis) -> None:
        """Has the loop make `value` in slices along `axis`."""
        carrier = self.splitting.graph.carrier(value, axis)
        for factor in self._versions(carrier.equation):
            if factor.merge is not None:
                raise Blocked(carrier.equation, "its reduction ends only with the loop")
            made = factor.results[carrier.result]
            if made is not None and made.covers(axis):
                return
        if isinstance(carrier.factor, Factor):
            self.take(carrier.equation, carrier.factor)
        elif carrier.factor:
            raise TilingMismatch(carrier.factor)
        else:
            why = f"it cannot be split along dimension {axis.dim} of its result"
            raise Blocked(carrier.equation, why, value if value in self.splitting.split else None)

    def _take_whole(self, index: int) -> None:
        """Has every slice make all of a cheap value, such as a mask; a loop inside may split it."""
        equation = self.splitting.graph.equations[index]
        self.take(
            index,
            Factor(
                size=self.region.size,
                operands=(None,) * len(equation.invars),
                results=(None,) * len(equation.outvars),
            ),
        )
