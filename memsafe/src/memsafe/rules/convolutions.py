"""Convolutions, and reductions of windows."""

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

__all__ = ["RULES", "is_apart"]


def _convolution_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Images, output features, and input features, which are merged; no spatial dimension.

    Groups tie features to each other (or to images): what they tie is not offered.
    """
    params = equation.params
    left, right, out = params["dimension_numbers"]
    if params.get("out_sharding") is not None or params["batch_group_count"] != 1:
        return ()
    images = _carried(equation, (Axis(left[0]), None), Axis(out[0]))
    if params["feature_group_count"] != 1:
        return images
    features = _carried(equation, (None, Axis(right[0])), Axis(out[1]))
    summed = (Axis(left[1]), Axis(right[1]))
    return images + features + (_carried(equation, summed, None) if _floats(equation) else ())


def _carried(
    equation: JaxprEqn, operands: tuple[Axis | None, Axis | None], result: Axis | None
) -> tuple[Factor, ...]:
    size = next(
        _shape(atom)[axis.dim]
        for atom, axis in zip(equation.invars, operands, strict=True)
        if axis is not None
    )
    merge = SUM if result is None else None
    factor = Factor(size=size, operands=operands, results=(result,), merge=merge)
    return (factor,) if size > 1 else ()


def _floats(equation: JaxprEqn) -> bool:
    """Whether parts add up as the whole does: small integers may be rounded or cut to a result."""
    atoms: list[Any] = [*equation.invars, *equation.outvars]
    return all(jnp.issubdtype(atom.aval.dtype, jnp.inexact) for atom in atoms)


def _window_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The dimensions that no window spans; a window's neutral element is a scalar operand."""
    arrays = [*equation.invars, *equation.outvars]
    shape = next(_shape(atom) for atom in arrays if _shape(atom))
    return tuple(
        Factor(
            size=size,
            operands=tuple(Axis(dim) if _shape(atom) else None for atom in equation.invars),
            results=(Axis(dim),) * len(equation.outvars),
        )
        for dim, size in enumerate(shape)
        if size > 1 and is_apart(equation.params, dim)
    )


def is_apart(params: dict[str, Any], dim: int) -> bool:
    """Whether each index of `dim` is its own window."""
    ones = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    return tuple(params["padding"][dim]) == (0, 0) and all(
        params[name][dim] == 1 for name in ones if name in params
    )


def _shape(atom: Any) -> tuple[int, ...]:
    return tuple(atom.aval.shape)


_WINDOWED = (
    "reduce_window",
    "reduce_window_max",
    "reduce_window_min",
    "reduce_window_sum",
    "select_and_gather_add",
    "select_and_scatter_add",
)

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "conv_general_dilated": Rule(factors=_convolution_factors, apply=apply_unchanged),
        **dict.fromkeys(_WINDOWED, Rule(factors=_window_factors, apply=apply_unchanged)),
    }
)
