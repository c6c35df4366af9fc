"""What an equation runs over: its indices, and how each is carried by operands and results.

An equation such as `dot_general` of `[m, k]` and `[k, n]` has three *factors*: `m` is carried by
the left operand and the result, `n` by the right operand and the result, `k` by both operands and
by no result: results of pieces of `k` are *merged* by adding. (Shardy calls the same thing an
op's sharding rule, einsum an index.) An equation can be computed piece by piece along any one of
its factors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from jax import lax

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax import Array
    from jax.core import ShapedArray
    from jax.extend.core import JaxprEqn

__all__ = ["Axis", "Factor", "Merge", "Piece", "Rule"]


class Axis(NamedTuple):
    """The dimension of an array that carries a factor; a tuple, for planning compares millions.

    Index i of the factor covers the elements `[i * block, (i + 1) * block)` of `dim`: where a
    reshape merges `[heads, 64]` into one dimension, a head is a block of 64.
    """

    dim: int
    block: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive indices of a factor: `length` of them from `start`.

    Attributes:
        start: The first index, an int32 scalar that a loop may count.
        length: How many, known when traced.
        counted: How many of the first ones an earlier piece has covered (the last piece of a
            loop is moved back to stay within the array); None where it is known to be none.
    """

    start: Array
    length: int
    counted: Array | None = None

    def of(self, value: Array, axis: Axis) -> Array:
        """The piece of an array that carries the factor on `axis`."""
        start, length = self.start * axis.block, self.length * axis.block
        return lax.dynamic_slice_in_dim(
            value, start, length, axis.dim, allow_negative_indices=False
        )


class Merge(Protocol):
    """How results of pieces of a reduced factor become the result of the whole.

    A law: over the pieces of a factor, in order, `finish(combine(… combine(start, part₁) …))`
    is what the equation computes on whole operands, up to the order of additions; indices that a
    piece says are counted do not count again.
    """

    def start(self, equation: JaxprEqn) -> tuple[Array, ...]:
        """The state before the first piece."""
        ...

    def part(
        self, equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> tuple[Array, ...]:
        """The state of one piece, from the piece's operands."""
        ...

    def combine(
        self, state: tuple[Array, ...], part: tuple[Array, ...], *, first: Array
    ) -> tuple[Array, ...]:
        """The state after one more piece; `first` (a bool scalar) says that none came before."""
        ...

    def finish(
        self, equation: JaxprEqn, state: tuple[Array, ...], operands: Sequence[Array | None]
    ) -> list[Array]:
        """The equation's results; `operands` holds those that are carried whole, else None."""
        ...

    def state_avals(self, equation: JaxprEqn) -> tuple[ShapedArray, ...]:
        """Shapes and types of the state."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One index of an equation, at its finest.

    Attributes:
        size: The number of indices.
        operands: The axis that carries it, for each operand; None: each piece needs it whole.
        results: The same for each result; None, for all of them, where pieces are merged.
        merge: How pieces are merged; None where every result carries the factor.
        least: The fewest indices of a piece.
    """

    size: int
    operands: tuple[Axis | None, ...]
    results: tuple[Axis | None, ...]
    merge: Merge | None = None
    least: int = 1

    def coarser(self, times: int) -> Factor:
        """The same factor with `times` indices taken as one; `times` divides its size."""
        if times == 1:
            return self
        return replace(
            self,
            size=self.size // times,
            operands=tuple(_coarser(axis, times) for axis in self.operands),
            results=tuple(_coarser(axis, times) for axis in self.results),
            least=-(-self.least // times),
        )

    def carrying(self, result: int, axis: Axis) -> Factor | None:
        """This factor as coarse as `result` carries it on `axis`, or None where it cannot."""
        return self._as_coarse(self.results[result], axis)

    def reading(self, operand: int, axis: Axis) -> Factor | None:
        """This factor as coarse as `operand` carries it on `axis`, or None where it cannot."""
        return self._as_coarse(self.operands[operand], axis)

    def _as_coarse(self, own: Axis | None, axis: Axis) -> Factor | None:
        if own is None or own.dim != axis.dim or axis.block % own.block:
            return None
        times = axis.block // own.block
        return None if self.size % times else self.coarser(times)

    def finest_block(self) -> int:
        """The smallest common multiple of the blocks that its arrays carry."""
        axes = (*self.operands, *self.results)
        return math.lcm(*(axis.block for axis in axes if axis is not None))


def _coarser(axis: Axis | None, times: int) -> Axis | None:
    return None if axis is None else Axis(axis.dim, axis.block * times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What memsafe knows of one primitive.

    Attributes:
        factors: An equation's factors; none where it must stay whole.
        apply: The equation's results on a piece's operands, for a factor that every result
            carries. An operand that carries the factor comes sliced, the others whole; each
            result has `piece.length * block` elements along its axis.
    """

    factors: Callable[[JaxprEqn], tuple[Factor, ...]]
    apply: Callable[[JaxprEqn, Factor, Sequence[Array], Piece], list[Array]]
