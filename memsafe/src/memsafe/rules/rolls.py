"""A roll as one equation: a piece of the result is a piece of the operand that wraps around."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from memsafe.factors import Axis, Factor, Rule
from memsafe.jax_internals import bind
from memsafe.programs import shape_of
from memsafe.rules.halos import piece_of_operand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jax import Array
    from jax.core import ShapedArray
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

__all__ = ["ROLL", "RULES"]

ROLL: Any = Primitive("roll")
"""`x` → x rolled along `dim`: element i is element i + `offset` of x, which wraps around."""


def _rolled(x: Array, *, dim: int, offset: int) -> Array:
    """The primitive's result by equations that say the same."""
    first, size = offset % x.shape[dim], x.shape[dim]
    spans = ((first, size), (0, first))
    return lax.concatenate([lax.slice_in_dim(x, *span, axis=dim) for span in spans], dim)


def _abstract(x: ShapedArray, **_: Any) -> ShapedArray:
    return x


def _batched(
    arguments: Sequence[Array], dims: Sequence[int], *, dim: int, offset: int
) -> tuple[Array, int]:
    (x,), (batch,) = arguments, dims
    return ROLL.bind(x, dim=dim + (dim >= batch), offset=offset), batch


ROLL.def_impl(_rolled)
ROLL.def_abstract_eval(_abstract)
batching.primitive_batchers[ROLL] = _batched
mlir.register_lowering(ROLL, mlir.lower_fun(_rolled, multiple_results=False))


def _factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    own, offset = equation.params["dim"], equation.params["offset"]
    return tuple(
        Factor(
            size=size,
            operands=(Axis(dim, 1, -offset, offset, wraps=True) if dim == own else Axis(dim),),
            results=(Axis(dim),),
        )
        for dim, size in enumerate(shape_of(equation.invars[0]))
        if size > 1
    )


def _apply(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    """Along the rolled dimension, the result is the piece of the operand."""
    (x,), (axis,) = operands, factor.results
    assert axis is not None
    if axis.dim != equation.params["dim"]:
        return bind(equation, [x])
    finest = next(each for each in _factors(equation) if each.results[0] == Axis(axis.dim))
    return [piece_of_operand(x, 0, finest, factor, piece)[0]]


RULES: Mapping[str, Rule] = MappingProxyType({"roll": Rule(factors=_factors, apply=_apply)})
