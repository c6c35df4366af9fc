"""Scatters: updates of elements at computed places."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.lax import GatherScatterMode

from memsafe.factors import Factor, Rule
from memsafe.jax_internals import bind
from memsafe.merges import MAX, MIN, PRODUCT, SUM, Monoid, masked
from memsafe.rules.windows import factor_of, has_known_mode, is_opaque, of_scatter, widened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

__all__ = ["RULES", "Put"]

_WORD_BYTES = 4


def _scatter_factors(merge: Put | None) -> Callable[[JaxprEqn], tuple[Factor, ...]]:
    def factors(equation: JaxprEqn) -> tuple[Factor, ...]:
        """Stacks, dimensions that windows span, pointed ones, and merged index vectors."""
        if not has_known_mode(equation):
            return ()
        one = of_scatter(equation)
        found = [
            *(
                factor_of(one.array[dim], (dim, of, one.vector_dims[of]), dim)
                for dim, of in one.stacks
            ),
            *(
                factor_of(one.array[dim], (dim, None, one.window_dims[dim]), dim)
                for dim in one.whole()
                # A start that can drop the window must be compared with the whole dimension.
                if dim not in one.indexed or equation.params["mode"] == GatherScatterMode.CLIP
            ),
        ]
        if not is_opaque(equation):
            found += [factor_of(one.array[dim], (dim, None, None), dim) for dim in one.pointed()]
        if merge is not None and merge.is_exact(equation):
            found += [
                factor_of(one.vectors[of], (None, of, one.vector_dims[of]), merge)
                for of in one.free_vectors()
            ]
        return tuple(factor for factor in found if factor.size > 1)

    return factors


def _scatter(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    array, vectors, updates = factor.operands
    one, (target, indices, values) = of_scatter(equation), operands
    indices, params = widened(indices), equation.params
    if array is None or vectors is not None:
        return bind(equation, [target, indices, values])
    if params["mode"] == GatherScatterMode.CLIP:
        indices = one.clamped(indices)
    if updates is not None:
        return bind(equation, [target, indices, values])
    signed = jnp.int64 if indices.dtype.itemsize > _WORD_BYTES else jnp.int32
    local = one.shifted(lax.convert_element_type(indices, signed), array, piece)
    params = {**params, "mode": GatherScatterMode.FILL_OR_DROP, "indices_are_sorted": False}
    if not one.is_single():
        return bind(equation, [target, local, values], params)
    # If XLA of jax 0.10 drops one update of a slice, it writes the neighbour's value there.
    place, last = one.place(local, array), target.shape[array.dim] - 1
    within = lax.clamp(jnp.zeros((), local.dtype), local, jnp.full_like(local, last))
    local = jnp.where(np.array(one.indexed) == array.dim, within, local)
    (put,) = bind(equation, [target, local, values], params)
    return [lax.select(one.over_stacks((place >= 0) & (place <= last), put.shape), put, target)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Scatters updates into a neutral array piece by piece; merges the operand once, at the end.

    Attributes:
        monoid: The operation of an update on an element.
        scatter: The function of `jax.lax` for this operation.
    """

    monoid: Monoid
    scatter: Callable[..., Array]

    def is_exact(self, equation: JaxprEqn) -> bool:
        """Whether the merge gives the scatter's result.

        It does not for the order of complex numbers, nor for products that may overflow in
        another order.
        """
        result: Any = equation.outvars[0].aval
        dtype = result.dtype
        if jnp.issubdtype(dtype, jnp.integer):
            return True
        if self.monoid is PRODUCT:
            return jnp.issubdtype(dtype, jnp.inexact) and equation.params["unique_indices"]
        return jnp.issubdtype(dtype, jnp.inexact if self.monoid is _ADDED else jnp.floating)

    def start(self, equation: JaxprEqn) -> tuple[Array, ...]:
        """The neutral element."""
        return self.monoid.start(equation)

    def part(
        self, equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> tuple[Array, ...]:
        """The piece's updates, scattered into a neutral array."""
        _, indices, updates = operands
        indices = widened(indices)
        (array,), axis = self.start(equation), factor.operands[2]
        assert axis is not None
        nothing = self.monoid.neutral(updates.dtype)
        nothing = -nothing if self.scatter is lax.scatter_sub else nothing  # Zeros have a sign.
        updates = masked(updates, axis, piece, nothing)
        options = ("indices_are_sorted", "unique_indices", "mode")
        put = self.scatter(
            array,
            indices,
            lax.convert_element_type(updates, array.dtype),
            equation.params["dimension_numbers"],
            **{option: equation.params[option] for option in options},
        )
        return (put,)

    def combine(
        self, state: tuple[Array, ...], part: tuple[Array, ...], *, first: Array
    ) -> tuple[Array, ...]:
        """The operation on both."""
        return self.monoid.combine(state, part, first=first)

    def finish(
        self, equation: JaxprEqn, state: tuple[Array, ...], operands: Sequence[Array | None]
    ) -> list[Array]:
        """The operation on the operand and all updates."""
        whole = operands[0]
        assert whole is not None
        held = lax.convert_element_type(whole, state[0].dtype)
        return self.monoid.finish(equation, (self.monoid.combined(held, state[0]),), operands)

    def state_avals(self, equation: JaxprEqn) -> tuple[ShapedArray, ...]:
        """The result, in the type that sums are held in."""
        return self.monoid.state_avals(equation)


_ADDED = replace(SUM, neutral=lambda dtype: -np.zeros((), dtype))
"""The neutral element is negative zero: a positive zero would change an untouched negative one."""

_MERGES = {
    "scatter": None,
    "scatter-add": Put(monoid=_ADDED, scatter=lax.scatter_add),
    "scatter-sub": Put(monoid=_ADDED, scatter=lax.scatter_sub),
    "scatter-mul": Put(monoid=PRODUCT, scatter=lax.scatter_mul),
    "scatter-min": Put(monoid=MIN, scatter=lax.scatter_min),
    "scatter-max": Put(monoid=MAX, scatter=lax.scatter_max),
}


RULES: Mapping[str, Rule] = MappingProxyType(
    {name: Rule(factors=_scatter_factors(merge), apply=_scatter) for name, merge in _MERGES.items()}
)
