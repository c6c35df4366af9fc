"""Takes a sink into a loop, and above it all equations that make its operands in slices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memsafe.factors import Factor
from memsafe.jax_internals import aval_of
from memsafe.region import Blocked, TilingMismatch

if TYPE_CHECKING:
    from jax.extend.core import Var

    from memsafe.factors import Axis
    from memsafe.region import Region
    from memsafe.splitting import Splitting

__all__ = ["Grown", "Growth"]

_VERSIONS = 3
"""Maximum number of axes along which a slice may compute one equation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """What a region takes in with a sink.

    Attributes:
        size: Number of indices that the region runs over.
        versions: The factors that each equation is split along.
        axes: The axis along which each value is sliced, in the first version of its equation.
        read: The equations outside of the region whose results it reads.
        mask: The equations, as bits.
    """

    size: int
    versions: dict[int, tuple[Factor, ...]]
    axes: dict[Var, Axis]
    read: set[int]
    mask: int


@dataclass(slots=True, kw_only=True)
class Growth:
    """One attempt to take a sink into a region."""

    splitting: Splitting
    region: Region
    taken: list[tuple[int, Factor]] = field(default_factory=list)
    versions: dict[int, tuple[Factor, ...]] = field(default_factory=dict)
    axes: dict[Var, Axis] = field(default_factory=dict)
    read: set[int] = field(default_factory=set)
    mask: int = 0
    followed: int = 0

    def of(self, sink: int, factor: Factor) -> Grown:
        """What `sink` needs in the region. Raises Blocked or TilingMismatch."""
        self.take(sink, factor)
        self.run()
        self.complete()
        return Grown(
            size=self.region.size,
            versions=self.versions,
            axes=self.axes,
            read=self.read,
            mask=self.mask,
        )

    def take(self, index: int, factor: Factor) -> None:
        """Puts an equation into the loop, split along `factor`."""
        have, at = self._versions(index), 0
        if have:
            if factor in have:
                return
            at, factor = self._placed(have, factor)
            if factor in have:
                return
        results = self.splitting.graph.equations[index].outvars
        if at == len(have) > 0 and not self._can_repeat(index, (*have, factor)):
            own = next((value for value in results if value in self.splitting.split), None)
            raise Blocked(index, "it would be split along two axes at once", own)
        self.versions[index] = (*have[:at], factor, *have[at + 1 :])
        self.taken.append((index, factor))
        self.mask |= 1 << index
        if at == 0:
            for value, axis in zip(results, factor.results, strict=True):
                if axis is not None:
                    self.axes[value] = axis

    def _placed(self, have: tuple[Factor, ...], factor: Factor) -> tuple[int, Factor]:
        """The version for a factor: an existing one with a halo for both, else a new one."""
        for at, other in enumerate(have):
            both = other.joined(factor)
            if both is not None and both.halo <= self.region.size // 2:
                return at, both
        return len(have), factor

    def complete(self) -> None:
        """Makes the loop compute each index of its kept values once, in addition to the halos.

        Raises Blocked or TilingMismatch.
        """
        seen = -1
        while len(self.taken) > seen:
            seen = len(self.taken)
            owned = self.splitting.owned(self.mask)
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
        """Follows operands upward until every equation that the loop needs is taken in.

        Raises Blocked or TilingMismatch.
        """
        makers = self.splitting.graph.makers
        while self.followed < len(self.taken):
            index, factor = self.taken[self.followed]
            self.followed += 1
            for at, value, maker in makers[index]:
                self._operand(index, value, maker, factor.operands[at])

    def _versions(self, index: int) -> tuple[Factor, ...]:
        return self.versions.get(index) or self.region.versions(index)

    def _can_repeat(self, index: int, factors: tuple[Factor, ...]) -> bool:
        """Whether a slice may compute the equation along several axes: no result of it is kept."""
        split, results = self.splitting.split, self.splitting.graph.equations[index].outvars
        return (
            len(factors) <= _VERSIONS
            and all(factor.merge is None for factor in factors)
            and all(value in split for value in results)
        )

    def _operand(self, index: int, value: Var, maker: int, axis: Axis | None) -> None:
        splitting, owned = self.splitting, self.region.owned
        split = value in splitting.split
        if not split and not (owned and splitting.above[maker] & owned):
            self.read.add(maker)
        elif axis is not None:
            self._demand(value, axis)
        elif split and splitting.cheap[maker]:
            self._take_whole(maker)
        else:
            why = "it needs the whole of an operand that the loop computes in slices"
            raise Blocked(index, why, value if split else None)

    def _demand(self, value: Var, axis: Axis) -> None:
        """Makes the loop compute `value` in slices along `axis`."""
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
        """Makes every slice compute a cheap value whole (a mask); an inner loop may split it."""
        equation = self.splitting.graph.equations[index]
        self.take(
            index,
            Factor(
                size=self.region.size,
                operands=(None,) * len(equation.invars),
                results=(None,) * len(equation.outvars),
            ),
        )
