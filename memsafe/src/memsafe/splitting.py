"""Grows loops for values that are never kept whole, from the equations that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jax.extend.core import Literal

from memsafe.feasibility import Feasibility, WholeReads
from memsafe.growth import Grown, Growth
from memsafe.region import Blocked, Region, TilingMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jax.extend.core import Var

    from memsafe.factors import Factor
    from memsafe.graph import Graph

__all__ = ["Splitting"]


class Splitting:
    """Grows regions over a graph in which the values of `split` are never kept whole.

    `way` is the maximum number of equations with only kept results that a loop takes in to reach
    one more sink; None: no limit.
    """

    def __init__(self, graph: Graph, split: set[Var], way: int | None = None) -> None:
        self.graph = graph
        self.split = split
        self.way = way
        self.above = list(graph.ancestors)
        self.closed: list[tuple[int, int]] = []
        self.covered = 0
        self.keeping = self._keeping()
        self.known_seeds: dict[int, list[Factor]] = {}
        self.cones = self._cones()
        self.cheap = self._cheap()
        self.whole_reads = WholeReads(splitting=self)

    def _keeping(self) -> int:
        """The equations that make at least one kept value."""
        mask = 0
        for index, equation in enumerate(self.graph.equations):
            if not self.split.issuperset(equation.outvars):
                mask |= 1 << index
        return mask

    def _cones(self) -> list[int]:
        """For each equation: itself, and those that feed it through values that are never kept."""
        found: list[int] = []
        for index, reads in enumerate(self.graph.reads):
            mask = 1 << index
            for value in reads:
                if value in self.split:
                    mask |= found[self.graph.definition[value]]
            found.append(mask)
        return found

    def _cheap(self) -> list[bool]:
        """For each equation, whether its values come pointwise from small ones: a mask, a bias."""
        graph = self.graph
        cheap: list[bool] = []
        sources: list[int] = []  # Bytes; only read for cheap equations.
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
        """The equations that read values that are never kept, and make no such values."""
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
        """The region that computes `sink` alone; raises Blocked.

        How it grows depends only on the equations that feed the sink through values never kept.
        """
        key = sink, factor, self.cones[sink]
        if key not in self.graph.grown:
            self.graph.grown[key] = self._grown_alone(sink, factor)
        grown = self.graph.grown[key]
        if isinstance(grown, Blocked):
            raise Blocked(grown.equation, grown.why, grown.value)
        region = Region(size=grown.size)
        self._take_in(region, sink, grown)
        return region

    def _grown_alone(self, sink: int, factor: Factor) -> Grown | Blocked:
        while True:
            growth = Growth(splitting=self, region=Region(size=factor.size))
            try:
                return growth.of(sink, factor)
            except TilingMismatch as mismatch:
                if factor.size % (mismatch.times * factor.devices) or (
                    factor.size == mismatch.times * factor.devices
                ):
                    return Blocked(sink, f"{factor.size} indices are no multiple")
                factor = factor.coarser(mismatch.times)
            except Blocked as obstacle:
                return obstacle.with_traceback(None)

    def merge(self, region: Region, sinks: list[int]) -> bool:
        """Takes into `region`, in order, each of `sinks` that shares values with it and can join.

        Returns whether all sinks that share values have joined. Values that depend on no input do
        not count as shared, such as a mask that all layers of a model read.
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
        for factor, whole in self.ways(sink, region.size):
            behind = map(self.above.__getitem__, whole)
            if any(map(region.owned.__and__, behind)):
                continue
            if not feasibility.may_take(sink, factor):
                continue
            try:
                self.extend(region, sink, factor)
            except (Blocked, TilingMismatch):
                continue
            return True
        return False

    def ways(self, sink: int, size: int) -> list[tuple[Factor, list[int]]]:
        """The factors that may take `sink` into a loop over `size` indices, and their whole reads.

        See `WholeReads`. As in `grown`, only the equations that feed the sink matter.
        """
        known, key = self.graph.ways, (sink, size, self.cones[sink])
        if key not in known:
            fine = (
                factor
                for factor in self.seeds(sink)
                if not factor.size % size and not size % factor.devices
            )
            factors = [each.coarser(each.size // size) for each in fine]
            reads = [self.whole_reads.of(self.graph.made_operands(sink, each)) for each in factors]
            known[key] = [
                (factor, whole)
                for factor, whole in zip(factors, reads, strict=True)
                if whole is not None
            ]
        return known[key]

    def extend(self, region: Region, sink: int, factor: Factor) -> None:
        """Takes `sink` and what makes its operands into `region`, or raises and changes nothing."""
        growth = Growth(splitting=self, region=region)
        grown = growth.of(sink, factor)
        if region.sinks and self.way is not None and self._kept(growth.taken) > self.way:
            raise Blocked(sink, "too many operations lie between it and the loop")
        self._take_in(region, sink, grown)

    def _take_in(self, region: Region, sink: int, grown: Grown) -> None:
        owned = region.owned | self.owned(grown.mask)
        outside = region.outside
        for index in grown.read:
            outside |= self.above[index]
        if outside & owned:
            raise Blocked(sink, "it needs a result of the loop that is still running")
        for index, (version, *others) in grown.versions.items():
            region.factors[index] = version
            if others:
                region.again[index] = tuple(others)
        region.axes.update(grown.axes)
        region.sinks.append(sink)
        region.mask |= grown.mask
        region.owned, region.outside = owned, outside

    def close(self, region: Region) -> None:
        """Makes the region a unit: what depends on a part of it depends on all that it reads.

        Dependents come after the region, or depend on a later equation since a loop was closed.
        """
        owned = region.owned
        self.covered |= owned
        behind = region.outside | owned
        first = min((at for at, mask in self.closed if mask & owned), default=len(self.above))
        first = min(first, (owned & -owned).bit_length() - 1)
        later = self.above[first:]
        self.above[first:] = [mask | behind if mask & owned else mask for mask in later]
        self.closed.append((first, behind))

    def _kept(self, taken: Iterable[tuple[int, Factor]]) -> int:
        """Number of the equations in `taken` whose results are all kept."""
        results = (self.graph.equations[index].outvars for index, _ in taken)
        return sum(not any(value in self.split for value in made) for made in results)

    def owned(self, mask: int) -> int:
        """The equations of `mask` that make kept values and that no earlier loop owns."""
        return mask & self.keeping & ~self.covered

    def _is_split(self, atom: Var | Literal) -> bool:
        return not isinstance(atom, Literal) and atom in self.split
