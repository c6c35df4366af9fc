"""Products of arrays summed over shared dimensions."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from memsafe.factors import Axis, Factor, Rule
from memsafe.merges import SUM
from memsafe.rules.elementwise import apply_unchanged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jax.extend.core import JaxprEqn

__all__ = ["RULES"]


def _dot_general_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Batch dimensions, those of one operand alone, and contracted ones, which are merged."""
    left, right = (range(len(shape)) for shape in _shapes(equation))
    (left_summed, right_summed), (left_batch, right_batch) = equation.params["dimension_numbers"]
    if equation.params.get("out_sharding") is not None:
        return ()
    left_free = [dim for dim in left if dim not in {*left_summed, *left_batch}]
    right_free = [dim for dim in right if dim not in {*right_summed, *right_batch}]
    carried: list[tuple[int | None, int | None]] = [
        *zip(left_batch, right_batch, strict=True),
        *((dim, None) for dim in left_free),
        *((None, dim) for dim in right_free),
    ]
    factors = [
        _factor(equation, pair, results=(Axis(result),)) for result, pair in enumerate(carried)
    ]
    if _sums_in_parts(equation):
        factors += [
            _factor(equation, pair, results=(None,))
            for pair in zip(left_summed, right_summed, strict=True)
        ]
    return tuple(factor for factor in factors if factor.size > 1)


def _factor(
    equation: JaxprEqn, dims: tuple[int | None, int | None], results: tuple[Axis | None]
) -> Factor:
    sizes = zip(_shapes(equation), dims, strict=True)
    return Factor(
        size=next(shape[dim] for shape, dim in sizes if dim is not None),
        operands=tuple(None if dim is None else Axis(dim) for dim in dims),
        results=results,
        merge=SUM if results == (None,) else None,
    )


def _shapes(equation: JaxprEqn) -> list[tuple[int, ...]]:
    operands: list[Any] = [atom.aval for atom in equation.invars]
    return [operand.shape for operand in operands]


def _sums_in_parts(equation: JaxprEqn) -> bool:
    """Whether parts can be added: not booleans, and not floats cut down to integers."""
    avals: list[Any] = [atom.aval for atom in (*equation.invars, *equation.outvars)]
    dtypes = [aval.dtype for aval in avals]
    return all(jnp.issubdtype(dtype, jnp.integer) for dtype in dtypes) or all(
        jnp.issubdtype(dtype, jnp.inexact) for dtype in dtypes
    )


RULES: Mapping[str, Rule] = MappingProxyType(
    {"dot_general": Rule(factors=_dot_general_factors, apply=apply_unchanged)}
)
