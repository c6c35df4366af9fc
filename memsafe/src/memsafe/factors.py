"""The factors of an equation: the indices it runs over, and the axes that carry each of them.

An equation such as `dot_general` of `[m, k]` and `[k, n]` has three *factors*: `m` is carried by
the left operand and the result, `n` by the right operand and the result, `k` by both operands and
by no result. The results of pieces of `k` are *merged* by adding. (Shardy calls the same thing an
op's sharding rule, einsum an index.) An equation can be computed piece by piece along any one of
its factors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import lax

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax import Array
    from jax.core import ShapedArray
    from jax.extend.core import JaxprEqn

__all__ = ["Axis", "Factor", "Merge", "Piece", "Rule", "apart", "together"]


class Axis(NamedTuple):
    """The dimension of an array that carries a factor; a tuple, because planning compares millions.

    Index i of the factor covers the elements `[i * block, (i + 1) * block)` of `dim`: where a
    reshape merges `[heads, 64]` into one dimension, a head is a block of 64.

    An axis with a *halo* also covers `before` elements below and `after` elements above; a negative
    number covers fewer. Some of these elements may lie beyond the array's ends. Their values are
    undefined there, and the equation that reads the halo fills them. But if the axis `wraps`, the
    array continues from its other end.

    If the dimension is divided equally over `devices`, a piece has as many indices in each device's
    part: of 12 indices over 2 devices, the first 4 are 0, 1, 6 and 7.
    """

    dim: int
    block: int = 1
    before: int = 0
    after: int = 0
    wraps: bool = False
    devices: int = 1

    @property
    def has_halo(self) -> bool:
        """Whether the axis covers other elements than its blocks."""
        return bool(self.before or self.after)

    @property
    def halo(self) -> float:
        """Number of indices that the axis covers in addition to a piece's own."""
        return (self.before + self.after) / self.block

    @property
    def exact(self) -> Axis:
        """The same blocks without a halo."""
        if not (self.has_halo or self.wraps):
            return self
        return self._replace(before=0, after=0, wraps=False)

    def steps_with(self, other: Axis) -> bool:
        """Whether both have the same blocks, and differ in halos at most."""
        same_blocks = self.dim == other.dim and self.block == other.block
        return same_blocks and self.devices == other.devices

    @property
    def of_each(self) -> Axis:
        """The axis of each device's part, in an array with a dimension of devices before it."""
        return self._replace(dim=self.dim + 1, devices=1)

    def first(self, piece: Piece) -> Array:
        """The position of the first element that a piece covers; may be negative."""
        return piece.start * self.block - self.before

    def width(self, length: int) -> int:
        """Number of elements that `length` indices cover."""
        return length * self.block + self.before + self.after

    def covers(self, other: Axis) -> bool:
        """Whether this axis covers all elements of `other`, with the values that `other` needs."""
        return self == other or (
            self.steps_with(other)
            and self.before >= other.before
            and self.after >= other.after
            and self.wraps >= other.wraps
        )

    def joined(self, other: Axis) -> Axis:
        """The smallest axis with these blocks that covers both."""
        return self._replace(
            before=max(self.before, other.before),
            after=max(self.after, other.after),
            wraps=self.wraps or other.wraps,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive indices of a factor: `length` of them from `start`.

    Attributes:
        start: The first index, an int32 scalar that a loop may count.
        length: Number of indices, known at trace time.
        counted: Number of first indices that an earlier piece has covered (the last piece of a
            loop is moved back to stay within the array); None if there are none.
        size: Number of indices over all pieces; None: their blocks lie within the array.
        place: The index where its slices go in results assembled from pieces; None: `start`.
    """

    start: Array
    length: int
    counted: Array | None = None
    size: int | None = None
    place: Array | None = None

    def goes_beyond(self, axis: Axis, elements: int) -> bool:
        """Whether the piece may extend beyond the ends of a dimension of `elements` elements."""
        within = self.size is None or self.size * axis.block + axis.after <= elements
        return axis.before > 0 or not within or (self.size is None and axis.after > 0)

    def of(self, value: Array, axis: Axis) -> Array:
        """The slice of `value` along `axis`; beyond an end zeros, or the other end if it wraps."""
        if axis.devices > 1:
            part = apart(value, axis.dim, axis.devices)
            return together(self.on_each(axis.devices).of(part, axis.of_each), axis.dim)
        start, width = axis.first(self), axis.width(self.length)
        if self.goes_beyond(axis, value.shape[axis.dim]):
            return (_around if axis.wraps else _within)(value, axis.dim, start, width)
        return lax.dynamic_slice_in_dim(value, start, width, axis.dim, allow_negative_indices=False)

    def put(self, whole: Array, part: Array, axis: Axis) -> Array:
        """`whole` with the piece's own indices replaced by `part`, which has no halo."""
        if axis.devices > 1:
            whole, part = (apart(each, axis.dim, axis.devices) for each in (whole, part))
            return together(self.on_each(axis.devices).put(whole, part, axis.of_each), axis.dim)
        return lax.dynamic_update_slice_in_dim(
            whole, part, self.start * axis.block, axis.dim, allow_negative_indices=False
        )

    def on_each(self, devices: int) -> Piece:
        """The part of the piece on each of `devices`, in the indices of that device's part."""
        count = np.int32(devices)
        return Piece(
            start=lax.div(self.start, count),
            length=self.length // devices,
            counted=None if self.counted is None else lax.div(self.counted, count),
            size=None if self.size is None else self.size // devices,
        )

    def filled(self, value: Array, axis: Axis, size: int, fill: Any) -> Array:
        """`value` with `fill` beyond the ends of its array of `size` elements, unless it wraps."""
        if axis.wraps or not self.goes_beyond(axis, size):
            return value
        place = axis.first(self) + lax.broadcasted_iota(jnp.int32, value.shape, axis.dim)
        return jnp.where((place >= 0) & (place < size), value, jnp.asarray(fill, value.dtype))


def apart(value: Array, dim: int, devices: int) -> Array:
    """`value` with `dim` as two dimensions: the devices, and the part that each device has."""
    shape = value.shape
    return lax.reshape(value, (*shape[:dim], devices, shape[dim] // devices, *shape[dim + 1 :]))


def together(value: Array, dim: int) -> Array:
    """`value` with the dimensions `dim` and after as one: the inverse of `apart`."""
    shape = value.shape
    return lax.reshape(value, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]))


def _within(value: Array, dim: int, start: Array, width: int) -> Array:
    """`width` elements from `start`; zeros beyond the ends."""
    size = value.shape[dim]
    inside = min(width, size)
    start = jnp.clip(start, -width, size)  # Further out there is nothing but zeros either.
    within = jnp.clip(start, 0, size - inside)
    window = lax.dynamic_slice_in_dim(value, within, inside, dim, allow_negative_indices=False)
    ends = [(width, width, 0) if each == dim else (0, 0, 0) for each in range(value.ndim)]
    padded = lax.pad(window, jnp.zeros((), value.dtype), ends)
    return lax.dynamic_slice_in_dim(
        padded, width + start - within, width, dim, allow_negative_indices=False
    )


def _around(value: Array, dim: int, start: Array, width: int) -> Array:
    """`width` elements from `start`; beyond an end, the elements from the other end."""
    places = (start + lax.iota(jnp.int32, width)) % value.shape[dim]
    return jnp.take(value, places, axis=dim, mode="clip")


class Merge(Protocol):
    """How results of pieces of a reduced factor become the result of the whole.

    A law: over the pieces of a factor, in order, `finish(combine(… combine(start, part₁) …))`
    is what the equation computes on whole operands, up to the order of additions; indices that a
    piece marks as counted do not count again.
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
    """One index of an equation, at its finest granularity.

    Attributes:
        size: The number of indices.
        operands: The axis of each operand that carries the factor; None: pieces need it whole.
        results: The axis of each result that carries the factor; None for all if pieces are merged.
        merge: How pieces are merged; None where every result carries the factor.
        least: Minimum number of indices of a piece.
        devices: Number of devices that the dimensions of its axes are divided over.
    """

    size: int
    operands: tuple[Axis | None, ...]
    results: tuple[Axis | None, ...]
    merge: Merge | None = None
    least: int = 1
    devices: int = 1

    def coarser(self, times: int) -> Factor:
        """The same factor with `times` indices taken as one; `times` divides its size."""
        if times == 1:
            return self
        return self._scaled(times)

    def joined(self, other: Factor) -> Factor | None:
        """This factor with the halos of both; None where they differ in more than halos."""
        if self.merge != other.merge:
            return None
        operands = _joined(self.operands, other.operands)
        results = _joined(self.results, other.results)
        if operands is None or results is None:
            return None
        return replace(self, operands=operands, results=results)

    @property
    def halo(self) -> float:
        """Maximum number of indices that an array covers in addition to a piece's own."""
        axes = (*self.operands, *self.results)
        return max((axis.halo for axis in axes if axis is not None), default=0.0)

    def carrying(self, result: int, axis: Axis) -> Factor | None:
        """This factor, coarsened so that `result` carries it on `axis`; None if it cannot."""
        return self._as_coarse(self.results[result], axis)

    def reading(self, operand: int, axis: Axis) -> Factor | None:
        """This factor, coarsened so that `operand` carries it on `axis`; None if it cannot."""
        return self._as_coarse(self.operands[operand], axis)

    def over(self, devices: int, merge: Merge | None) -> Factor:
        """The same factor, divided over `devices` (1: no longer divided), with `merge`."""

        def placed(axis: Axis | None) -> Axis | None:
            return axis and axis._replace(devices=devices)

        return replace(
            self,
            operands=tuple(map(placed, self.operands)),
            results=tuple(map(placed, self.results)),
            merge=merge,
            least=self.least // self.devices * devices,
            devices=devices,
        )

    def _as_coarse(self, own: Axis | None, axis: Axis) -> Factor | None:
        if own is None or own.dim != axis.dim or axis.block % own.block:
            return None
        if own.devices != axis.devices:
            return None
        times = axis.block // own.block
        before, after = (-(-halo // own.block) for halo in (axis.before, axis.after))
        return self._scaled(times, before, after, wraps=axis.wraps)

    def _scaled(
        self, times: int, before: int = 0, after: int = 0, *, wraps: bool = False
    ) -> Factor:
        """`times` indices as one, with halos of `before` and `after` of the finer indices."""

        def scaled(axis: Axis | None) -> Axis | None:
            return axis and Axis(
                axis.dim,
                axis.block * times,
                axis.before + before * axis.block,
                axis.after + after * axis.block,
                axis.wraps or wraps,
                axis.devices,
            )

        return replace(
            self,
            size=-(-self.size // times),
            operands=tuple(map(scaled, self.operands)),
            results=tuple(map(scaled, self.results)),
            least=-(-self.least // (times * self.devices)) * self.devices,
        )

    def finest_block(self) -> int:
        """The least common multiple of the blocks of its axes."""
        axes = (*self.operands, *self.results)
        return math.lcm(*(axis.block for axis in axes if axis is not None))


def _joined(
    axes: Sequence[Axis | None], others: Sequence[Axis | None]
) -> tuple[Axis | None, ...] | None:
    """Each of `axes` joined with that of `others`; None where they differ in more than halos."""
    found: list[Axis | None] = []
    for one, other in zip(axes, others, strict=True):
        if one == other:
            found.append(one)
        elif one is None or other is None or not one.steps_with(other):
            return None
        else:
            found.append(one.joined(other))
    return tuple(found)


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
