"""Reductions over dimensions by one operation."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from memsafe.factors import Axis, Factor, Rule
from memsafe.merges import AND, MAX, MIN, OR, PRODUCT, SUM, XOR, Monoid, reduced
from memsafe.rules.elementwise import apply_unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

__all__ = ["RULES"]


def _factors(merge: Monoid) -> Callable[[JaxprEqn], tuple[Factor, ...]]:
    def factors(equation: JaxprEqn) -> tuple[Factor, ...]:
        """Kept dimensions, and reduced ones, which are merged."""
        operand: Any = equation.invars[0].aval
        reduced = equation.params["axes"]
        if equation.params.get("out_sharding") is not None:
            return ()
        kept = [dim for dim in range(operand.ndim) if dim not in reduced]
        return tuple(
            Factor(
                size=size,
                operands=(Axis(dim),),
                results=(Axis(kept.index(dim)) if dim in kept else None,),
                merge=None if dim in kept else merge,
            )
            for dim, size in enumerate(operand.shape)
            if size > 1 and (dim in kept or _has_neutral(merge, operand.dtype))
        )

    return factors


def _has_neutral(merge: Monoid, dtype: Any) -> bool:
    """Whether there is a neutral element; the order of complex numbers has no least element."""
    return merge not in {MAX, MIN} or not jnp.issubdtype(dtype, jnp.complexfloating)


def _kept(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The kept dimensions; how to merge results of a user's own operation is not known."""
    operand: Any = equation.invars[0].aval
    arrays = len(equation.invars) // 2  # Each has a scalar initial value.
    kept = [dim for dim in range(operand.ndim) if dim not in equation.params["dimensions"]]
    return tuple(
        Factor(
            size=operand.shape[dim],
            operands=(*[Axis(dim)] * arrays, *[None] * arrays),
            results=(Axis(place),) * arrays,
        )
        for place, dim in enumerate(kept)
        if operand.shape[dim] > 1
    )


def _apply(
    equation: JaxprEqn, _factor: Factor, operands: Sequence[Array], _piece: Piece
) -> list[Array]:
    """The equation on a piece; its parameters contain no shape to change."""
    return reduced(equation, operands)


_MERGES = {
    "reduce_sum": SUM,
    "reduce_prod": PRODUCT,
    "reduce_max": MAX,
    "reduce_min": MIN,
    "reduce_and": AND,
    "reduce_or": OR,
    "reduce_xor": XOR,
}

RULES: Mapping[str, Rule] = MappingProxyType(
    {name: Rule(factors=_factors(merge), apply=_apply) for name, merge in _MERGES.items()}
    | {"reduce": Rule(factors=_kept, apply=apply_unchanged)}
)
