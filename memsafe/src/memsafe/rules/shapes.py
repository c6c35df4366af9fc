"""Primitives that move elements and compute none, and `iota`."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax

from memsafe.factors import Axis, Factor, Rule
from memsafe.jax_internals import bind
from memsafe.programs import shape_of
from memsafe.rules.elementwise import apply_unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

    Factors = Callable[[JaxprEqn], tuple[Factor, ...]]
    Apply = Callable[[JaxprEqn, Factor, Sequence[Array], Piece], list[Array]]

__all__ = ["RULES"]


def _along(equation: JaxprEqn, pairs: Iterable[tuple[int | None, int]]) -> tuple[Factor, ...]:
    """One factor for each `(dimension of the operand, dimension of the result)`."""
    shape = shape_of(equation.outvars[0])
    return tuple(
        Factor(
            size=shape[result],
            operands=(None if operand is None else Axis(operand),),
            results=(Axis(result),),
        )
        for operand, result in pairs
        if shape[result] > 1
    )


def _along_all(equation: JaxprEqn, dims: Iterable[int]) -> tuple[Factor, ...]:
    """One factor for each of `dims`, carried by every array of the equation except scalars."""
    shape = shape_of(equation.outvars[0])
    return tuple(
        Factor(
            size=shape[dim],
            operands=tuple(Axis(dim) if shape_of(atom) else None for atom in equation.invars),
            results=(Axis(dim),) * len(equation.outvars),
        )
        for dim in dims
        if shape[dim] > 1
    )


def _broadcast_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Every dimension of the result; the operand carries those that it is not stretched along."""
    operand, shape = shape_of(equation.invars[0]), shape_of(equation.outvars[0])
    source = {to: dim for dim, to in enumerate(equation.params["broadcast_dimensions"])}
    whole = {to for to, dim in source.items() if operand[dim] == shape[to]}
    return _along(equation, ((source[to] if to in whole else None, to) for to in range(len(shape))))


def _reshape_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The leading index of each group of dimensions that becomes another group.

    A reshape of `[6, 4]` to `[3, 8]` has one factor of three indices: each covers two rows of the
    operand and one row of the result. Inner indices are not contiguous on both sides.
    """
    if equation.params["dimensions"] is not None:
        return ()
    before, after = shape_of(equation.invars[0]), shape_of(equation.outvars[0])
    factors = []
    for operand, result in _leading_dims(before, after):
        size = math.gcd(before[operand], after[result])
        axes = Axis(operand, before[operand] // size), Axis(result, after[result] // size)
        factors.append(Factor(size=size, operands=axes[:1], results=axes[1:]))
    return tuple(factor for factor in factors if factor.size > 1)


def _leading_dims(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """The first dimension of each smallest group of `before`, and of the group that it becomes."""
    if 0 in before:
        return
    ends = [
        {math.prod(shape[:dim]): dim for dim in range(len(shape)) if shape[dim] > 1}
        for shape in (before, after)
    ]
    # Where the outer dimensions of both shapes have equal products, a group starts in both.
    for outside in ends[0].keys() & ends[1].keys():
        yield ends[0][outside], ends[1][outside]


def _squeeze_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    removed = equation.params["dimensions"]
    kept = [dim for dim in range(len(shape_of(equation.invars[0]))) if dim not in removed]
    return _along(equation, ((dim, to) for to, dim in enumerate(kept)))


def _transpose_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    return _along(equation, ((dim, to) for to, dim in enumerate(equation.params["permutation"])))


def _iota_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Every dimension, but not the counted one of 8-bit floats: compilers differ past the last."""
    dtype, own = equation.params["dtype"], equation.params["dimension"]
    tiny = jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize == 1
    dims = range(len(shape_of(equation.outvars[0])))
    return _along_all(equation, (dim for dim in dims if dim != own or not tiny))


def _slice_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The dimensions that are left whole."""
    before, after = shape_of(equation.invars[0]), shape_of(equation.outvars[0])
    return _along(equation, ((dim, dim) for dim, size in enumerate(after) if size == before[dim]))


def _pad_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    config = equation.params["padding_config"]
    whole = [dim for dim, padding in enumerate(config) if not any(padding)]
    return _along_all(equation, whole)


def _tile_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    return _along(equation, ((dim, dim) for dim, n in enumerate(equation.params["reps"]) if n == 1))


def _stack_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The operands' dimensions; those from the new one on are one higher in the result."""
    own, shape = equation.params["axis"], shape_of(equation.invars[0])
    return tuple(
        Factor(
            size=size,
            operands=(Axis(dim),) * len(equation.invars),
            results=(Axis(dim + (dim >= own)),),
        )
        for dim, size in enumerate(shape)
        if size > 1
    )


def _unstack_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The results' dimensions; those from the removed one on are one higher in the operand."""
    own, shape = equation.params["axis"], shape_of(equation.outvars[0])
    return tuple(
        Factor(
            size=size,
            operands=(Axis(dim + (dim >= own)),),
            results=(Axis(dim),) * len(equation.outvars),
        )
        for dim, size in enumerate(shape)
        if size > 1
    )


def _other_than(param: str) -> Factors:
    """The dimensions that the parameter does not name."""

    def factors(equation: JaxprEqn) -> tuple[Factor, ...]:
        named = equation.params[param]
        named = set(named) if isinstance(named, tuple) else {int(named)}
        return _along_all(
            equation, (dim for dim in range(len(shape_of(equation.outvars[0]))) if dim not in named)
        )

    return factors


def _resized(param: str) -> Apply:
    """The equation with the piece's sizes in `param`, which holds one size for each dimension."""

    def apply(
        equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> list[Array]:
        sizes = equation.params[param]
        return bind(equation, operands, {**equation.params, param: _of(sizes, factor, piece)})

    return apply


def _of(sizes: Sequence[int], factor: Factor, piece: Piece) -> tuple[int, ...]:
    """The sizes of a piece of the only result."""
    (axis,) = factor.results
    assert axis is not None
    return (*sizes[: axis.dim], axis.width(piece.length), *sizes[axis.dim + 1 :])


def _iota_apply(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    """The piece's indices, counted as int32 and converted last: a narrow type rounds or wraps."""
    (axis,) = factor.results
    assert axis is not None
    params = equation.params
    shape = _of(params["shape"], factor, piece)
    if axis.dim != params["dimension"]:
        return bind(equation, operands, {**params, "shape": shape})
    (index,) = bind(equation, operands, {**params, "shape": shape, "dtype": jnp.dtype(jnp.int32)})
    return [lax.convert_element_type(index + axis.first(piece), params["dtype"])]


def _unplaced(factors: Factors) -> Factors:
    """The same factors, or none if the equation sets the sharding of its result."""

    def found(equation: JaxprEqn) -> tuple[Factor, ...]:
        return () if equation.params.get("sharding") is not None else factors(equation)

    return found


_KINDS: Mapping[str, tuple[Factors, Apply]] = {
    "broadcast_in_dim": (_broadcast_factors, _resized("shape")),
    "concatenate": (_other_than("dimension"), apply_unchanged),
    "iota": (_iota_factors, _iota_apply),
    "pad": (_pad_factors, apply_unchanged),
    "reshape": (_reshape_factors, _resized("new_sizes")),
    "rev": (_other_than("dimensions"), apply_unchanged),
    "slice": (_slice_factors, _resized("limit_indices")),
    "split": (_other_than("axis"), apply_unchanged),
    "stack": (_stack_factors, apply_unchanged),
    "squeeze": (_squeeze_factors, apply_unchanged),
    "tile": (_tile_factors, apply_unchanged),
    "transpose": (_transpose_factors, apply_unchanged),
    "unstack": (_unstack_factors, apply_unchanged),
}

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        name: Rule(factors=_unplaced(factors), apply=apply)
        for name, (factors, apply) in _KINDS.items()
    }
)
