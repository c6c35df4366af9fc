"""A region: equations that one loop computes together, slice by slice along one axis.

A region grows from a *sink*, an equation that turns values too large to keep into one that is
kept. From there it takes in, upward, whatever makes those large values, as long as each equation
carries the loop's axis; then every later sink that can share the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jax.extend.core import Literal

from memsafe.costs import fuses_with_consumer
from memsafe.factors import Factor
from memsafe.graph import Graph, variables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jax.extend.core import Var

    from memsafe.factors import Axis

__all__ = ["Blocked", "Region", "Splitting"]


class Blocked(Exception):
    """A region cannot take in an equation.

    Attributes:
        equation: The index of the equation that stands in the way.
        value: The value that would have to be kept whole for it, where that would help.
        why: What is wrong, in a few words.
    """

    def __init__(self, equation: int, why: str, value: Var | None = None) -> None:
        super().__init__(why)
        self.equation, self.why, self.value = equation, why, value


class TooFine(Exception):
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
        axes: The axis along which each value of the loop is sliced.
        sinks: The equations that the loop is there for.
        owned: The equations whose kept results this loop is the first to make.
        outside: All that the loop's whole inputs depend on.
    """

    size: int
    factors: dict[int, Factor] = field(default_factory=dict)
    axes: dict[Var, Axis] = field(default_factory=dict)
    sinks: list[int] = field(default_factory=list)
    owned: int = 0
    outside: int = 0

    @property
    def mask(self) -> int:
        """The region's equations."""
        return sum(1 << index for index in self.factors)

    @property
    def least(self) -> int:
        """The fewest indices that a slice may have."""
        return max(factor.least for factor in self.factors.values())

    def inputs(self, graph: Graph) -> list[Var]:
        """The values that the loop reads and does not make, in order of first use."""
        found: dict[Var, None] = {}
        for index in sorted(self.factors):
            for value in variables(graph.equations[index]):
                if graph.definition.get(value) not in self.factors:
                    found[value] = None
        return list(found)


class Splitting:
    """Grows regions over a graph in which the values of `split` are never kept whole."""

    def __init__(self, graph: Graph, split: set[Var]) -> None:
        self.graph = graph
        self.split = split
        self.above = list(graph.ancestors)
        self.covered = 0
        self.cones = self._cones()
        self.cheap = self._cheap()

    def _cones(self) -> list[int]:
        """For each equation, itself and what makes its operands through values never kept."""
        found: list[int] = []
        for index, equation in enumerate(self.graph.equations):
            mask = 1 << index
            for value in variables(equation):
                if value in self.split:
                    mask |= found[self.graph.definition[value]]
            found.append(mask)
        return found

    def _cheap(self) -> list[bool]:
        """For each equation, whether its values come pointwise from little: a mask, a bias."""
        graph = self.graph
        cheap: list[bool] = []
        sources: list[int] = []
        for equation in graph.equations:
            made = sum(graph.size[value] for value in equation.outvars)
            split = [graph.definition[v] for v in variables(equation) if v in self.split]
            kept = sum(graph.size[v] for v in variables(equation) if v not in self.split)
            sources.append(kept + sum(sources[index] for index in split))
            pointwise = fuses_with_consumer(equation) and all(cheap[index] for index in split)
            cheap.append(pointwise and 8 * sources[-1] <= made)
        return cheap

    def sinks(self) -> list[int]:
        """The equations that use values never kept, and make none."""
        return [
            index
            for index, equation in enumerate(self.graph.equations)
            if any(value in self.split for value in variables(equation))
            and not any(value in self.split for value in equation.outvars)
        ]

    def seeds(self, sink: int) -> Iterator[Factor]:
        """The factors of `sink` that slice all of its large operands."""
        operands = self.graph.equations[sink].invars
        for factor in self.graph.factors[sink]:
            pairs = zip(operands, factor.operands, strict=True)
            if all(axis is not None for value, axis in pairs if self._is_split(value)):
                yield factor

    def grown(self, sink: int, factor: Factor) -> Region:
        """The region that computes `sink` alone; raises Blocked."""
        while True:
            region = Region(size=factor.size)
            try:
                self.extend(region, sink, factor)
            except TooFine as fine:
                if factor.size % fine.times or factor.size == fine.times:
                    raise Blocked(sink, f"{factor.size} indices are no multiple") from None
                factor = factor.coarser(fine.times)
            else:
                return region

    def merge(self, region: Region, sinks: list[int]) -> None:
        """Takes into `region` each of `sinks`, in order, that shares values with it and can."""
        mask = region.mask
        for sink in sinks:
            if not self.cones[sink] & mask:
                continue
            for factor in self.seeds(sink):
                if factor.size % region.size:
                    continue
                try:
                    self.extend(region, sink, factor.coarser(factor.size // region.size))
                except (Blocked, TooFine):
                    continue
                mask = region.mask
                break

    def extend(self, region: Region, sink: int, factor: Factor) -> None:
        """Takes `sink` and what makes its operands into `region`, or raises and changes nothing."""
        growth = _Growth(splitting=self, region=region, outside=region.outside)
        growth.take(sink, factor)
        growth.run()
        owned = region.owned | self._owned(growth.factors)
        if growth.outside & owned:
            raise Blocked(sink, "it needs a result of the loop that is still running")
        region.factors.update(growth.factors)
        region.axes.update(growth.axes)
        region.sinks.append(sink)
        region.owned, region.outside = owned, growth.outside

    def close(self, region: Region) -> None:
        """Makes the region one thing: what depends on a part of it depends on all it reads."""
        self.covered |= region.owned
        behind = region.outside | region.owned
        for index, mask in enumerate(self.above):
            if mask & region.owned:
                self.above[index] = mask | behind

    def _owned(self, factors: dict[int, Factor]) -> int:
        mask = 0
        for index in factors:
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
    factors: dict[int, Factor] = field(default_factory=dict)
    axes: dict[Var, Axis] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)

    def take(self, index: int, factor: Factor) -> None:
        """Puts an equation into the loop, split along `factor`."""
        have = self.region.factors.get(index) or self.factors.get(index)
        if have is not None:
            if have != factor:
                raise Blocked(index, "it would be split along two axes at once")
            return
        self.factors[index] = factor
        self.waiting.append(index)
        results = self.splitting.graph.equations[index].outvars
        for value, axis in zip(results, factor.results, strict=True):
            if axis is not None:
                self.axes[value] = axis

    def run(self) -> None:
        """Follows operands upward until the loop is closed above; raises Blocked or TooFine."""
        while self.waiting:
            index = self.waiting.pop()
            equation = self.splitting.graph.equations[index]
            pairs = zip(equation.invars, self.factors[index].operands, strict=True)
            for value, axis in pairs:
                if not isinstance(value, Literal):
                    self._operand(index, value, axis)

    def _operand(self, index: int, value: Var, axis: Axis | None) -> None:
        splitting = self.splitting
        defined = splitting.graph.definition.get(value)
        if defined is None:
            return
        split = value in splitting.split
        if split or splitting.above[defined] & self.region.owned:
            if axis is not None:
                self._demand(value, defined, axis)
            elif split and splitting.cheap[defined]:
                self._take_whole(defined)
            else:
                why = "it needs a whole operand that the loop makes in slices"
                raise Blocked(index, why, value if split else None)
        else:
            self.outside |= splitting.above[defined]

    def _demand(self, value: Var, defined: int, axis: Axis) -> None:
        """Has the loop make `value` in slices along `axis`."""
        have = self.region.axes.get(value) or self.axes.get(value)
        if have is not None:
            if have != axis:
                raise Blocked(defined, "its result is wanted along two axes at once")
            return
        if defined in self.region.factors or defined in self.factors:
            raise Blocked(defined, "its reduction ends only with the loop")
        self.take(defined, self._factor(value, defined, axis))

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

    def _factor(self, value: Var, defined: int, axis: Axis) -> Factor:
        graph = self.splitting.graph
        result = graph.equations[defined].outvars.index(value)
        for factor in graph.factors[defined]:
            carried = factor.carrying(result, axis)
            if carried is not None:
                return carried
            own = factor.results[result]
            if own is not None and own.dim == axis.dim and _is_coarser(own, axis):
                raise TooFine(own.block // axis.block)
        raise Blocked(defined, f"it cannot be split along dimension {axis.dim} of its result")


def _is_coarser(own: Axis, axis: Axis) -> bool:
    return own.block > axis.block and own.block % axis.block == 0
