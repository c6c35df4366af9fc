"""Dimensions along which an element comes of its neighbours: a piece cuts its window of the whole.

The operand is carried whole and the result in slices. So of a chain of stencils two arrays are
kept, however much each of them makes on its way. What lies beyond the operand's ends is filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import lax

from memsafe.factors import Axis, Factor, Piece, Rule
from memsafe.jax_internals import bind
from memsafe.merges import MAX, MIN, SUM
from memsafe.rules import convolutions, shapes
from memsafe.rules.windows import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.merges import Monoid

    Cut = Callable[[Array, Any], Array]
    Apply = Callable[[JaxprEqn, int, Sequence[Array], Cut], list[Array]]
    Windows = Mapping[int, "_Window"]
    """By dimension of the result."""

__all__ = ["RULES"]

_JOINED = 8
"""The most operands of a concatenation: a piece cuts a window of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """What of an operand a result's index i comes from: `span` elements from i · stride + first.

    Attributes:
        dim: The dimension of the operand.
    """

    dim: int
    first: int
    span: int = 1
    stride: int = 1

    def width(self, length: int) -> int:
        """The elements that `length` indices come from."""
        return (length - 1) * self.stride + self.span

    def cut(self, x: Array, piece: Piece, size: int, fill: Any = 0) -> Array:
        """What the piece comes from, of `size` indices in all; `fill` beyond the ends of `x`."""
        width, whole = self.width(piece.length), x.shape[self.dim]
        inside = min(width, whole)
        start = piece.start * self.stride + self.first
        within = jnp.clip(start, 0, whole - inside)
        window = lax.dynamic_slice_in_dim(x, within, inside, self.dim, allow_negative_indices=False)
        last = (size - piece.length) * self.stride + self.first
        below, above = max(0, -self.first), max(0, last - (whole - inside)) + width - inside
        if not below + above:
            return window
        ends = [(below, above, 0) if dim == self.dim else (0, 0, 0) for dim in range(x.ndim)]
        padded = lax.pad(window, jnp.asarray(fill, x.dtype), ends)
        return lax.dynamic_slice_in_dim(
            padded, below + start - within, width, self.dim, allow_negative_indices=False
        )


def _slice_windows(equation: JaxprEqn) -> Windows:
    starts, before = equation.params["start_indices"], shape_of(equation.invars[0])
    strides = equation.params["strides"] or (1,) * len(starts)
    return {
        dim: _Window(dim=dim, first=starts[dim], stride=strides[dim])
        for dim, size in enumerate(shape_of(equation.outvars[0]))
        if size != before[dim]
    }


def _sliced(equation: JaxprEqn, dim: int, operands: Sequence[Array], cut: Cut) -> list[Array]:
    window = cut(operands[0], 0)
    params = dict(equation.params)
    for name, bound in (("start_indices", 0), ("limit_indices", window.shape[dim])):
        params[name] = _with(params[name], dim, bound)
    return bind(equation, [window], params)


def _pad_windows(equation: JaxprEqn) -> Windows:
    """The dimensions that are padded at their ends alone."""
    return {
        dim: _Window(dim=dim, first=-low)
        for dim, (low, high, interior) in enumerate(equation.params["padding_config"])
        if (low or high) and not interior
    }


def _padded(equation: JaxprEqn, dim: int, operands: Sequence[Array], cut: Cut) -> list[Array]:
    x, fill = operands
    config = _with(equation.params["padding_config"], dim, (0, 0, 0))
    return bind(equation, [cut(x, fill), fill], {**equation.params, "padding_config": config})


def _convolution_windows(equation: JaxprEqn) -> Windows:
    """The spatial dimensions whose images are not dilated."""
    params = equation.params
    left, right, out = params["dimension_numbers"]
    if params.get("out_sharding") is not None:
        return {}
    spans = shape_of(equation.invars[1])
    return {
        out[2 + at]: _Window(
            dim=left[2 + at],
            first=-params["padding"][at][0],
            span=(spans[right[2 + at]] - 1) * params["rhs_dilation"][at] + 1,
            stride=params["window_strides"][at],
        )
        for at, dilation in enumerate(params["lhs_dilation"])
        if dilation == 1
    }


def _convolved(equation: JaxprEqn, dim: int, operands: Sequence[Array], cut: Cut) -> list[Array]:
    image, kernel = operands
    params = equation.params
    at = params["dimension_numbers"][2].index(dim) - 2
    padding = _with(params["padding"], at, (0, 0))
    return bind(equation, [cut(image, 0), kernel], {**params, "padding": padding})


def _reduction_windows(equation: JaxprEqn) -> Windows:
    params = equation.params
    spans, dilations = params["window_dimensions"], params["window_dilation"]
    return {
        dim: _Window(
            dim=dim,
            first=-params["padding"][dim][0],
            span=(span - 1) * dilations[dim] + 1,
            stride=params["window_strides"][dim],
        )
        for dim, span in enumerate(spans)
        if params["base_dilation"][dim] == 1 and not convolutions.is_apart(params, dim)
    }


def _reduced(merge: Monoid) -> Apply:
    def reduced(equation: JaxprEqn, dim: int, operands: Sequence[Array], cut: Cut) -> list[Array]:
        (x,) = operands
        padding = _with(equation.params["padding"], dim, (0, 0))
        window = cut(x, merge.neutral(x.dtype))
        return bind(equation, [window], {**equation.params, "padding": padding})

    return reduced


_KINDS: Mapping[str, tuple[Callable[[JaxprEqn], Windows], Apply]] = {
    "conv_general_dilated": (_convolution_windows, _convolved),
    "pad": (_pad_windows, _padded),
    "reduce_window_max": (_reduction_windows, _reduced(MAX)),
    "reduce_window_min": (_reduction_windows, _reduced(MIN)),
    "reduce_window_sum": (_reduction_windows, _reduced(SUM)),
    "slice": (_slice_windows, _sliced),
}


def _rule(name: str, others: Rule) -> Rule:
    """The rule `others` with the dimensions that have windows."""
    windows_of, on_window = _KINDS[name]

    def factors(equation: JaxprEqn) -> tuple[Factor, ...]:
        if equation.params.get("sharding") is not None:
            return ()
        windows = windows_of(equation)
        return (*others.factors(equation), *_whole_to(equation, windows))

    def apply(
        equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> list[Array]:
        (axis,) = factor.results
        if any(factor.operands) or axis is None or axis.dim not in windows_of(equation):
            return others.apply(equation, factor, operands, piece)
        window, size = windows_of(equation)[axis.dim], factor.size * axis.block
        elements = Piece(start=piece.start * axis.block, length=piece.length * axis.block)
        cut = partial(window.cut, piece=elements, size=size)
        return on_window(equation, axis.dim, operands, lambda x, fill: cut(x, fill=fill))

    return Rule(factors=factors, apply=apply)


def _whole_to(equation: JaxprEqn, dims: Iterable[int]) -> Iterator[Factor]:
    """The factors of dimensions of the only result, each piece of which needs all operands."""
    (result,) = equation.outvars
    for dim in dims:
        if shape_of(result)[dim] > 1:
            whole = (None,) * len(equation.invars)
            yield Factor(size=shape_of(result)[dim], operands=whole, results=(Axis(dim),))


def _join_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The dimension along which operands are joined, and the others."""
    others = shapes.RULES["concatenate"].factors(equation)
    if not 1 < len(equation.invars) <= _JOINED:
        return others
    return (*others, *_whole_to(equation, [equation.params["dimension"]]))


def _joined(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    """Of each operand the window that the piece spans, and of these the one it is in."""
    (axis,) = factor.results
    assert axis is not None
    if axis.dim != equation.params["dimension"]:
        return shapes.RULES["concatenate"].apply(equation, factor, operands, piece)
    size = factor.size * axis.block
    elements = Piece(start=piece.start * axis.block, length=piece.length * axis.block)
    found: Array | None = None
    begin = 0
    for x in operands:
        cut = _Window(dim=axis.dim, first=-begin).cut(x, elements, size)
        place = elements.start + lax.broadcasted_iota(jnp.int32, cut.shape, axis.dim)
        found = cut if found is None else jnp.where(place >= begin, cut, found)
        begin += x.shape[axis.dim]
    assert found is not None
    return [found]


def _with(values: Sequence[Any], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


RULES: Mapping[str, Rule] = MappingProxyType(
    {name: _rule(name, {**shapes.RULES, **convolutions.RULES}[name]) for name in _KINDS}
    | {"concatenate": Rule(factors=_join_factors, apply=_joined)}
)
"""In place of the rules of the same primitives that know no windows."""
