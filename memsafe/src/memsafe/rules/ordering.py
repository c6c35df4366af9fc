"""Primitives that look at a whole dimension in order: sorts, the largest few, running sums.

Along every other dimension, indices are independent. Along their own dimension, `top_k`, `argmax`
and `argmin` are merged. Both merges are idempotent: an index that is read twice changes nothing.
So they need no neutral element. There is none, because -NaN orders below -inf.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray

from memsafe.factors import Axis, Factor, Rule
from memsafe.jax_internals import bind
from memsafe.programs import shape_of
from memsafe.rules.elementwise import apply_unchanged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

__all__ = ["RULES"]

_MET = -1
"""Marks, in place of its index, an entry that an earlier piece has read."""


def _along(parameter: str) -> Rule:
    """The rule of a primitive; only the dimension that `parameter` names must stay whole."""
    return Rule(
        factors=lambda equation: _other_dims(equation, equation.params[parameter]),
        apply=apply_unchanged,
    )


def _other_dims(equation: JaxprEqn, own: int) -> tuple[Factor, ...]:
    """One factor for each dimension but `own` of arrays that have the same dimensions."""
    shape = shape_of(equation.invars[0])
    return tuple(
        Factor(
            size=size,
            operands=(Axis(dim),) * len(equation.invars),
            results=(Axis(dim),) * len(equation.outvars),
        )
        for dim, size in enumerate(shape)
        if size > 1 and dim != own % len(shape)
    )


def _avals(atoms: Sequence[Any]) -> list[Any]:
    return [atom.aval for atom in atoms]


def _elements(count: Array, factor: Factor, kind: Any) -> Array:
    """The number of elements that `count` indices of `factor` cover, in a type that can hold it."""
    axis = factor.operands[0]
    assert axis is not None
    return lax.convert_element_type(count, kind) * axis.block


@dataclass(frozen=True, slots=True)
class _TopK:
    """The k largest elements so far along `axis`; of equal elements, the earlier comes first."""

    axis: int

    def start(self, equation: JaxprEqn) -> tuple[Array, ...]:
        return tuple(jnp.zeros(aval.shape, aval.dtype) for aval in self.state_avals(equation))

    def part(
        self, equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> tuple[Array, ...]:
        """The k largest of the whole piece; those that an earlier piece has read are marked.

        At least k elements, marked or not, rank before any element left out: nothing is lost.
        """
        values, places = lax.top_k(operands[0], equation.params["k"], axis=self.axis)
        found = places + _elements(piece.start, factor, places.dtype)
        if piece.counted is None:
            return values, found
        met = places < _elements(piece.counted, factor, places.dtype)
        return values, lax.select(met, lax.full_like(found, _MET), found)

    def combine(
        self, state: tuple[Array, ...], part: tuple[Array, ...], *, first: Array
    ) -> tuple[Array, ...]:
        """The k largest of both; the state comes first, and so wins ties.

        The state's last value replaces each marked one: k entries before it are at least as large.
        """
        k = part[0].shape[self.axis]
        met = part[1] == _MET
        last = lax.slice_in_dim(state[0], k - 1, k, axis=self.axis)
        values = lax.select(met, jnp.broadcast_to(last, met.shape), part[0])
        values = lax.concatenate([state[0], values], self.axis)
        places = lax.concatenate([state[1], part[1]], self.axis)
        values, best = lax.top_k(values, k, axis=self.axis)
        places = jnp.take_along_axis(places, best, axis=self.axis, mode="promise_in_bounds")
        return lax.select(first, part[0], values), lax.select(first, part[1], places)

    def finish(
        self, equation: JaxprEqn, state: tuple[Array, ...], operands: Sequence[Array | None]
    ) -> list[Array]:
        return list(state)

    def state_avals(self, equation: JaxprEqn) -> tuple[ShapedArray, ...]:
        return tuple(ShapedArray(out.shape, out.dtype) for out in _avals(equation.outvars))


def _top_k_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    others = _other_dims(equation, equation.params["axis"])
    k, axis = equation.params["k"], equation.params["axis"]
    size = shape_of(equation.invars[0])[axis]
    if not 0 < k < size:
        return others
    own = Factor(
        size=size,
        operands=(Axis(axis),),
        results=(None, None),
        merge=_TopK(axis),
        least=k,
    )
    return (*others, own)


@dataclass(frozen=True, slots=True)
class _Extreme:
    """The first of the largest (or `smallest`) elements along `axis`, or the first NaN."""

    axis: int
    smallest: bool

    def start(self, equation: JaxprEqn) -> tuple[Array, ...]:
        return tuple(jnp.zeros(aval.shape, aval.dtype) for aval in self.state_avals(equation))

    def part(
        self, equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> tuple[Array, ...]:
        """The extreme and its place. No element wins twice: it would have to beat itself."""
        extreme = jnp.min if self.smallest else jnp.max
        (place,) = bind(equation, operands)
        return extreme(operands[0], axis=self.axis), place + _elements(
            piece.start, factor, place.dtype
        )

    def combine(
        self, state: tuple[Array, ...], part: tuple[Array, ...], *, first: Array
    ) -> tuple[Array, ...]:
        old, new = state[0], part[0]
        better = new < old if self.smallest else new > old
        if jnp.issubdtype(new.dtype, jnp.floating):
            better |= jnp.isnan(new) & ~jnp.isnan(old)
        taken = better | first
        return lax.select(taken, new, old), lax.select(taken, part[1], state[1])

    def finish(
        self, equation: JaxprEqn, state: tuple[Array, ...], operands: Sequence[Array | None]
    ) -> list[Array]:
        return [state[1]]

    def state_avals(self, equation: JaxprEqn) -> tuple[ShapedArray, ...]:
        operand, place = _avals([*equation.invars, *equation.outvars])
        return ShapedArray(place.shape, operand.dtype), ShapedArray(place.shape, place.dtype)


def _extreme(*, smallest: bool) -> Rule:
    def factors(equation: JaxprEqn) -> tuple[Factor, ...]:
        (axis,) = equation.params["axes"]
        shape = shape_of(equation.invars[0])
        others = (
            Factor(size=size, operands=(Axis(dim),), results=(Axis(dim - (dim > axis)),))
            for dim, size in enumerate(shape)
            if size > 1 and dim != axis
        )
        # A type that cannot count the elements wraps, and then ties have no defined order.
        if not 1 < shape[axis] <= np.iinfo(equation.params["index_dtype"]).max:
            return tuple(others)
        own = Factor(
            size=shape[axis],
            operands=(Axis(axis),),
            results=(None,),
            merge=_Extreme(axis, smallest),
        )
        return (*others, own)

    return Rule(factors=factors, apply=apply_unchanged)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "sort": _along("dimension"),
        "top_k": Rule(factors=_top_k_factors, apply=apply_unchanged),
        "approx_top_k": _along("reduction_dimension"),
        "argmax": _extreme(smallest=False),
        "argmin": _extreme(smallest=True),
        **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _along("axis")),
    }
)
