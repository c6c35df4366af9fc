"""Dimensions along which a result element depends on neighbouring elements of the operand.

A piece of the operand has a halo along them. The equation that reads the halo fills the elements
beyond the operand's ends with its padding. So one loop can compute a chain of stencils: each piece
of an operand has the halo that all its readers need. Elements in two pieces are computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import lax

from memsafe.factors import Axis, Factor, Rule
from memsafe.jax_internals import bind
from memsafe.merges import MAX, MIN, SUM, Monoid
from memsafe.programs import shape_of
from memsafe.rules import convolutions, shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

    Windows = Mapping[int, "_Window"]
    """Windows by dimension of the result."""

__all__ = ["RULES", "piece_of_operand"]

_JOINED = 8
"""Maximum number of operands of a concatenation that is split: a piece reads a window of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The operand elements that result index i depends on: `span` from i · stride + first.

    Attributes:
        dim: The dimension of the operand.
        dilation: Distance between neighbouring operand elements; above one, there are gaps
            between them. Either stride or dilation is 1.
    """

    dim: int
    first: int
    span: int = 1
    stride: int = 1
    dilation: int = 1

    def factor(self, equation: JaxprEqn, dim: int) -> Factor:
        """The factor of dimension `dim` of the only result; only the first operand carries it."""
        size = -(-shape_of(equation.outvars[0])[dim] // self.dilation)
        before = -self.first // self.dilation
        after = (self.first + self.span - 2) // self.dilation + 2 - self.stride
        axis = Axis(self.dim, self.stride, before, after)
        whole = (None,) * (len(equation.invars) - 1)
        return Factor(size=size, operands=(axis, *whole), results=(Axis(dim, self.dilation),))

    def ends(self, count: int, read: int) -> tuple[int, int]:
        """The padding below and above `read` operand elements that gives `count` results."""
        low = -self.first % self.dilation
        needed = (count - 1) * self.stride + self.span
        return low, needed - low - (read - 1) * self.dilation - 1


def _slice_windows(equation: JaxprEqn) -> Windows:
    starts, before = equation.params["start_indices"], shape_of(equation.invars[0])
    strides = equation.params["strides"] or (1,) * len(starts)
    return {
        dim: _Window(dim=dim, first=starts[dim], stride=strides[dim])
        for dim, size in enumerate(shape_of(equation.outvars[0]))
        if size != before[dim]
    }


def _sliced(equation: JaxprEqn, dim: int, x: Array, _: tuple[int, int]) -> dict[str, Any]:
    starts, limits = (equation.params[name] for name in ("start_indices", "limit_indices"))
    within = _with(limits, dim, x.shape[dim])
    return {"start_indices": _with(starts, dim, 0), "limit_indices": within}


def _pad_windows(equation: JaxprEqn) -> Windows:
    return {
        dim: _Window(dim=dim, first=-int(low), dilation=int(interior) + 1)
        for dim, (low, high, interior) in enumerate(equation.params["padding_config"])
        if low or high or interior
    }


def _padded(equation: JaxprEqn, dim: int, _: Array, ends: tuple[int, int]) -> dict[str, Any]:
    config = equation.params["padding_config"]
    return {"padding_config": _with(config, dim, (*ends, config[dim][2]))}


def _convolution_windows(equation: JaxprEqn) -> Windows:
    """The windows of spatial dimensions; a dimension with both stride and dilation has none."""
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
            dilation=params["lhs_dilation"][at],
        )
        for at in range(len(params["padding"]))
        if 1 in (params["window_strides"][at], params["lhs_dilation"][at])
    }


def _convolved(equation: JaxprEqn, dim: int, _: Array, ends: tuple[int, int]) -> dict[str, Any]:
    params = equation.params
    at = params["dimension_numbers"][2].index(dim) - 2
    return {"padding": _with(params["padding"], at, ends)}


def _reduction_windows(equation: JaxprEqn) -> Windows:
    params = equation.params
    spans, dilations = params["window_dimensions"], params["window_dilation"]
    strides, gaps = params["window_strides"], params["base_dilation"]
    return {
        dim: _Window(
            dim=dim,
            first=-params["padding"][dim][0],
            span=(span - 1) * dilations[dim] + 1,
            stride=strides[dim],
            dilation=gaps[dim],
        )
        for dim, span in enumerate(spans)
        if 1 in (strides[dim], gaps[dim]) and not convolutions.is_apart(params, dim)
    }


def _reduced(equation: JaxprEqn, dim: int, _: Array, ends: tuple[int, int]) -> dict[str, Any]:
    return {"padding": _with(equation.params["padding"], dim, ends)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A primitive whose first operand is read in windows.

    Attributes:
        windows: Returns the window of each result dimension that has one.
        params: Returns the parameters that differ on a piece of the operand, padded at its ends.
        fill: Returns the value beyond the operand's ends, given all operands. None if no window
            reads beyond the ends.
    """

    windows: Callable[[JaxprEqn], Windows]
    params: Callable[[JaxprEqn, int, Array, tuple[int, int]], dict[str, Any]]
    fill: Callable[[Sequence[Array]], Any] | None = None


def _neutral(merge: Monoid) -> Callable[[Sequence[Array]], Any]:
    return lambda operands: merge.neutral(operands[0].dtype)


_KINDS: Mapping[str, _Kind] = {
    "conv_general_dilated": _Kind(
        windows=_convolution_windows, params=_convolved, fill=_neutral(SUM)
    ),
    "pad": _Kind(windows=_pad_windows, params=_padded, fill=lambda operands: operands[1]),
    "reduce_window_max": _Kind(windows=_reduction_windows, params=_reduced, fill=_neutral(MAX)),
    "reduce_window_min": _Kind(windows=_reduction_windows, params=_reduced, fill=_neutral(MIN)),
    "reduce_window_sum": _Kind(windows=_reduction_windows, params=_reduced, fill=_neutral(SUM)),
    "slice": _Kind(windows=_slice_windows, params=_sliced),
}


def _rule(name: str, others: Rule) -> Rule:
    """The rule `others`, extended to the dimensions that have windows."""
    kind = _KINDS[name]

    def factors(equation: JaxprEqn) -> tuple[Factor, ...]:
        if equation.params.get("sharding") is not None:
            return ()
        windows = kind.windows(equation).items()
        windowed = (window.factor(equation, dim) for dim, window in windows)
        return (*others.factors(equation), *(each for each in windowed if each.size > 1))

    def apply(
        equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> list[Array]:
        (axis,) = factor.results
        window = kind.windows(equation).get(axis.dim) if axis is not None else None
        if axis is None or window is None:
            return others.apply(equation, factor, operands, piece)
        x, *rest = operands
        x, cut = piece_of_operand(x, 0, window.factor(equation, axis.dim), factor, piece)
        if kind.fill is not None:
            size = shape_of(equation.invars[0])[cut.dim]
            x = piece.filled(x, cut, size, kind.fill(operands))
        count = axis.width(piece.length)
        params = kind.params(equation, axis.dim, x, window.ends(count, x.shape[cut.dim]))
        return bind(equation, [x, *rest], {**equation.params, **params})

    return Rule(factors=factors, apply=apply)


def piece_of_operand(
    x: Array, at: int, finest: Factor, factor: Factor, piece: Piece
) -> tuple[Array, Axis]:
    """A piece of an operand and the axis that it covers; a whole operand is cut here."""
    cut = factor.operands[at]
    if cut is not None:
        return x, cut
    (result,) = factor.results
    assert result is not None
    carried = finest.carrying(0, result)
    assert carried is not None
    cut = carried.operands[at]
    assert cut is not None
    return replace(piece, size=factor.size).of(x, cut), cut


def _join_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The dimension along which operands are joined, and the others."""
    others = shapes.RULES["concatenate"].factors(equation)
    if not 1 < len(equation.invars) <= _JOINED:
        return others
    return (*others, *_joint(equation))


def _joint(equation: JaxprEqn) -> Iterator[Factor]:
    dim = equation.params["dimension"]
    ends = accumulate((shape_of(atom)[dim] for atom in equation.invars[:-1]), initial=0)
    size = shape_of(equation.outvars[0])[dim]
    if size > 1:
        operands = tuple(Axis(dim, 1, begin, -begin) for begin in ends)
        yield Factor(size=size, operands=operands, results=(Axis(dim),))


def _joined(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    """Cuts the piece's window from each operand, and takes each element from its own operand."""
    (axis,) = factor.results
    assert axis is not None
    if axis.dim != equation.params["dimension"]:
        return shapes.RULES["concatenate"].apply(equation, factor, operands, piece)
    (finest,) = _joint(equation)
    found: Array | None = None
    for at, x in enumerate(operands):
        cut, _ = piece_of_operand(x, at, finest, factor, piece)
        place = axis.first(piece) + lax.broadcasted_iota(jnp.int32, cut.shape, axis.dim)
        begin = finest.operands[at]
        assert begin is not None
        found = cut if found is None else jnp.where(place >= begin.before, cut, found)
    assert found is not None
    return [found]


def _scatter_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The dimensions that windows span, in steps of their stride; and the others."""
    others = convolutions.RULES["select_and_scatter_add"].factors(equation)
    sizes = enumerate(shape_of(equation.outvars[0]))
    found = (_scattered(equation, dim) for dim, _ in sizes)
    return (*others, *(each for each in found if each is not None and each.size > 1))


def _scattered(equation: JaxprEqn, dim: int) -> Factor | None:
    """The factor of a dimension that windows span; None for any other dimension.

    A piece depends on all windows that overlap it, and on all elements of those windows.
    """
    params = equation.params
    if convolutions.is_apart(params, dim):
        return None
    span, stride = params["window_dimensions"][dim], params["window_strides"][dim]
    (low, _), size = params["padding"][dim], shape_of(equation.outvars[0])[dim]
    before, after = (span - 1 - low) // stride, (stride - 1 + low) // stride
    source = Axis(dim, 1, before, after)
    operand = Axis(dim, stride, before * stride + low, (after - 1) * stride - low + span)
    count = -(-size // stride)
    return Factor(size=count, operands=(source, operand), results=(Axis(dim, stride),))


def _scatter(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    (axis,) = factor.results
    finest = None if axis is None else _scattered(equation, axis.dim)
    if axis is None or finest is None:
        return convolutions.RULES["select_and_scatter_add"].apply(equation, factor, operands, piece)
    params, filled = equation.params, []
    # Beyond its ends, the other operand holds the value that the selection takes last.
    least = (MAX if params["select_prim"] is lax.ge_p else MIN).neutral(operands[1].dtype)
    for at, fill in enumerate((0, least)):
        x, cut = piece_of_operand(operands[at], at, finest, factor, piece)
        size = shape_of(equation.invars[at])[axis.dim]
        filled.append(piece.filled(x, cut, size, fill))
    assert cut is not None
    params = {**params, "padding": _with(params["padding"], axis.dim, (0, 0))}
    (result,) = bind(equation, filled, params)
    below = axis.before - cut.before
    above = axis.width(piece.length) - result.shape[axis.dim] - below
    # Windows may leave gaps between them. Elements in a gap get zero.
    ends = _with(((0, 0, 0),) * result.ndim, axis.dim, (below, above, 0))
    return [lax.pad(result, jnp.zeros((), result.dtype), ends)]


def _with(values: Sequence[Any], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


RULES: Mapping[str, Rule] = MappingProxyType(
    {name: _rule(name, {**shapes.RULES, **convolutions.RULES}[name]) for name in _KINDS}
    | {
        "concatenate": Rule(factors=_join_factors, apply=_joined),
        "select_and_scatter_add": Rule(factors=_scatter_factors, apply=_scatter),
    }
)
"""Replaces the rules of these primitives in `shapes` and `convolutions`: they know no windows."""
