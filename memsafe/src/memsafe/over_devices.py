"""Loops along a dimension that lies over several devices: a slice is a part of each device's rows.

No device then needs another's rows. A merged result has a state on each device until the loop
ends, so that devices wait for each other once, not in every slice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray

from memsafe.factors import Axis, apart, together
from memsafe.merges import Monoid
from memsafe.rules import (
    LOCAL,
    control_flow,
    convolutions,
    counters,
    indexing,
    linear_algebra,
    ordering,
    rule_of,
    scatters,
    tiles,
)
from memsafe.rules.bodies import SUMMED, Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn, Var

    from memsafe.factors import Factor, Piece

__all__ = ["OverDevices", "on_each_device", "over_devices"]

_ANYWHERE = {*LOCAL, *ordering.RULES, *linear_algebra.RULES} - {"iota"}
"""Primitives whose rules do not depend on where a piece lies, if the piece has no halo."""

_IN_PLACE = {
    "iota",
    *counters.RULES,
    *indexing.RULES,
    *scatters.RULES,
    *control_flow.RULES,
}
"""Primitives whose rules depend on where a piece lies: computed for each device, as a batch."""

_KNOWN = (_ANYWHERE | _IN_PLACE) - {"sharding_constraint"}
"""All of these but constraints, which set a division and move values that are divided otherwise."""

_Known = Monoid | scatters.Put | control_flow.Assembled
"""Merges that can have a state on each device."""


def over_devices(
    equation: JaxprEqn, factor: Factor, devices: int, divided: Collection[int] = ()
) -> Factor | None:
    """`factor` with dimensions over `devices`, for loops over the indices that each device has.

    None if there is no such loop. `divided` are the results that are divided over the same devices
    themselves. Their states are merged early: on each device they would be as large as the whole.
    """
    if factor.devices == devices:
        return factor
    is_known = equation.primitive.name in _KNOWN
    can_divide = factor.devices == 1 and factor.size > devices and factor.size % devices == 0
    is_cut_evenly = all(tiles(atom, factor, axis) for atom, axis in _carried(equation, factor))
    if not (is_known and can_divide and is_cut_evenly):
        return None
    if factor.merge is None:
        return factor.over(devices, None)
    if not isinstance(factor.merge, _Known) or isinstance(factor.merge, convolutions.Taps):
        return None
    whole = (SUMMED,) * len(equation.outvars)
    kinds = getattr(factor.merge, "kinds", whole)
    early = frozenset(at for at in divided if not isinstance(kinds[at], Axis))
    return factor.over(devices, OverDevices(merge=factor.merge, devices=devices, early=early))


def _carried(equation: JaxprEqn, factor: Factor) -> Iterator[tuple[Any, Axis]]:
    """The arrays that carry a factor, each with the axis that carries it."""
    atoms, axes = (*equation.invars, *equation.outvars), (*factor.operands, *factor.results)
    return ((atom, axis) for atom, axis in zip(atoms, axes, strict=True) if axis is not None)


def on_each_device(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    """The results of an equation on a piece that is a part of each device's own indices."""
    rule = rule_of(equation)
    assert rule is not None
    if equation.primitive.name in _ANYWHERE:
        return rule.apply(equation, factor, operands, piece)
    alone = factor.over(1, None)

    def applied(piece: Piece, operands: Sequence[Array]) -> list[Array]:
        return rule.apply(equation, alone, operands, piece)

    dims = [axis.dim for axis in factor.results if axis is not None]
    made = _batched(applied, factor, operands, piece, dims)
    return [together(result, dim) for result, dim in zip(made, dims, strict=True)]


def _batched(
    function: Any,
    factor: Factor,
    operands: Sequence[Array],
    piece: Piece,
    out: Sequence[int | None],
) -> Any:
    """`function` of each device's piece and operands, with its results batched along `out`."""
    devices = factor.devices
    own = piece.on_each(devices)
    assert own.size is not None
    given = [
        operand if axis is None else apart(operand, axis.dim, devices)
        for operand, axis in zip(operands, factor.operands, strict=True)
    ]
    dims = [axis and axis.dim for axis in factor.operands]
    begins = np.arange(devices, dtype=np.int32) * np.int32(own.size)

    def on_one(begin: Array, operands: list[Array]) -> Any:
        there = replace(own, start=begin + own.start, size=piece.size, place=own.start)
        return function(there, operands)

    return jax.vmap(on_one, in_axes=(0, dims), out_axes=list(out))(jnp.asarray(begins), given)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverDevices:
    """A merge with a state on each device, along a new first dimension of the states.

    Attributes:
        merge: How the pieces of one device are merged.
        devices: Number of devices.
        early: The results whose states all devices merge after every piece.
    """

    merge: _Known
    devices: int
    early: frozenset[int] = frozenset()

    def start(self, equation: JaxprEqn) -> tuple[Array, ...]:
        """The state before the first piece, on each device."""
        states = self.merge.start(self._of_one(equation))
        return tuple(
            jnp.broadcast_to(state, (self.devices, *state.shape)) if is_each else state
            for state, is_each in zip(states, self._is_each(equation), strict=True)
        )

    def part(
        self, equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> tuple[Array, ...]:
        """The state of each device's part of a piece."""
        one, alone = self._of_one(equation), factor.over(1, self.merge)

        def part(piece: Piece, operands: Sequence[Array]) -> list[Array]:
            return list(self.merge.part(one, alone, operands, piece))

        dims = [0 if is_made else None for is_made in self._is_each(equation, early=False)]
        made = _batched(part, factor, operands, piece, dims)
        return tuple(
            self._joined(at, each) if at in self.early else each for at, each in enumerate(made)
        )

    def combine(
        self, state: tuple[Array, ...], part: tuple[Array, ...], *, first: Array
    ) -> tuple[Array, ...]:
        """The state of each device after one more piece."""
        if not isinstance(self.merge, control_flow.Assembled):
            return self.merge.combine(state, part, first=first)
        kinds = tuple(kind.of_each if isinstance(kind, Axis) else kind for kind in self.merge.kinds)
        return replace(self.merge, kinds=kinds).combine(state, part, first=first)

    def finish(
        self, equation: JaxprEqn, state: tuple[Array, ...], operands: Sequence[Array | None]
    ) -> list[Array]:
        """The results of the merged states of all devices."""
        is_each = self._is_each(equation)
        joined = (self._joined(at, one) if is_each[at] else one for at, one in enumerate(state))
        return self.merge.finish(equation, tuple(joined), operands)

    def state_avals(self, equation: JaxprEqn) -> tuple[ShapedArray, ...]:
        """Shapes and types of the states of all devices."""
        avals = self.merge.state_avals(self._of_one(equation))
        return tuple(
            ShapedArray((self.devices, *aval.shape), aval.dtype) if is_each else aval
            for aval, is_each in zip(avals, self._is_each(equation), strict=True)
        )

    def _is_each(self, equation: JaxprEqn, *, early: bool = True) -> list[bool]:
        """For each state, whether each device has its own. Devices share the places of slices."""
        states, results = len(self.merge.state_avals(equation)), len(equation.outvars)
        return [at < results and not (early and at in self.early) for at in range(states)]

    def _joined(self, at: int, states: Array) -> Array:
        """The states of all devices merged into one."""
        if isinstance(self.merge, control_flow.Assembled):
            kind = self.merge.kinds[at]
            if isinstance(kind, Axis):
                return together(jnp.moveaxis(states, 0, kind.dim), kind.dim)
            return states.sum(0, dtype=states.dtype) if kind is SUMMED else states[0]
        monoid = self.merge if isinstance(self.merge, Monoid) else self.merge.monoid
        neutral = np.asarray(monoid.neutral(states.dtype), states.dtype)
        joined: Array = lax.reduce(states, neutral, monoid.combined, dimensions=(0,))
        return joined

    def _of_one(self, equation: JaxprEqn) -> JaxprEqn:
        """The equation with results as large as those of one device."""
        if not isinstance(self.merge, control_flow.Assembled):
            return equation
        results = [
            _Result(_part_of(value.aval, kind, self.devices))
            for value, kind in zip(equation.outvars, self.merge.kinds, strict=True)
        ]
        changed: JaxprEqn = equation.replace(outvars=cast("list[Var]", results))
        return changed


@dataclass(frozen=True, slots=True)
class _Result:
    """A result, with what a merge reads of it."""

    aval: ShapedArray


def _part_of(aval: Any, kind: Kind, devices: int) -> ShapedArray:
    shape = list(aval.shape)
    if isinstance(kind, Axis):
        shape[kind.dim] //= devices
    return ShapedArray(tuple(shape), aval.dtype)
