"""Convolutions, and reductions of windows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import lax

from memsafe.factors import Axis, Factor, Rule
from memsafe.merges import SUM, Monoid
from memsafe.programs import shape_of
from memsafe.rules.elementwise import apply_unchanged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

__all__ = ["RULES", "Taps", "is_apart"]


def _convolution_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Images, output features, input features, and a long kernel's taps; the last two are merged.

    Groups tie features to each other (or to images). Tied dimensions have no factor.
    """
    params = equation.params
    left, right, out = params["dimension_numbers"]
    if params.get("out_sharding") is not None:
        return ()
    taps = tuple(_taps(equation))
    images = _carried(equation, (Axis(left[0]), None), Axis(out[0]))
    if params["feature_group_count"] != 1:
        return images + taps
    features = _carried(equation, (None, Axis(right[0])), Axis(out[1]))
    summed = (Axis(left[1]), Axis(right[1]))
    sums = _carried(equation, summed, None) if _floats(equation) else ()
    if params["batch_group_count"] != 1:
        return sums + taps
    return images + features + sums + taps


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps(Monoid):
    """The sum over a spatial dimension of the kernel; each piece needs a part of the images.

    Attributes:
        at: The index of the spatial dimension.
    """

    at: int

    def part(
        self, equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> tuple[Array, ...]:
        """The convolution of the image's part with the kernel's piece; counted indices are zero.

        Zeros of the kernel times an infinity of the image give NaN, see README.md.
        """
        image, kernel = operands
        cut, axis = factor.operands
        assert cut is not None
        padding = list(equation.params["padding"])
        padding[self.at] = (0, 0)
        image = piece.filled(image, cut, shape_of(equation.invars[0])[cut.dim], 0)
        within = equation.replace(params={**equation.params, "padding": tuple(padding)})
        alone = replace(factor, operands=(None, axis))
        return SUM.part(within, alone, (image, kernel), piece)


def _taps(equation: JaxprEqn) -> Iterator[Factor]:
    """Spatial dimensions whose kernel is longer than the result, as in gradients of kernels."""
    params = equation.params
    left, right, out = params["dimension_numbers"]
    for at, (low, _) in enumerate(params["padding"]):
        stride, step = params["window_strides"][at], params["rhs_dilation"][at]
        size = shape_of(equation.invars[1])[right[2 + at]]
        count = shape_of(equation.outvars[0])[out[2 + at]]
        if size > max(count, 1) and params["lhs_dilation"][at] == 1 and _floats(equation):
            image = Axis(left[2 + at], step, low, (count - 1) * stride + 1 - low - step)
            yield Factor(
                size=size,
                operands=(image, Axis(right[2 + at])),
                results=(None,),
                merge=Taps(combined=lax.add, neutral=SUM.neutral, rounds=True, at=at),
            )


def _carried(
    equation: JaxprEqn, operands: tuple[Axis | None, Axis | None], result: Axis | None
) -> tuple[Factor, ...]:
    size = next(
        shape_of(atom)[axis.dim]
        for atom, axis in zip(equation.invars, operands, strict=True)
        if axis is not None
    )
    merge = SUM if result is None else None
    factor = Factor(size=size, operands=operands, results=(result,), merge=merge)
    return (factor,) if size > 1 else ()


def _floats(equation: JaxprEqn) -> bool:
    """Whether parts add up to the whole; small integers may be rounded or cut to a result."""
    atoms: list[Any] = [*equation.invars, *equation.outvars]
    return all(jnp.issubdtype(atom.aval.dtype, jnp.inexact) for atom in atoms)


def _window_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The dimensions that no window spans; a window's neutral element is a scalar operand."""
    arrays = [*equation.invars, *equation.outvars]
    shape = next(shape_of(atom) for atom in arrays if shape_of(atom))
    return tuple(
        Factor(
            size=size,
            operands=tuple(Axis(dim) if shape_of(atom) else None for atom in equation.invars),
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
