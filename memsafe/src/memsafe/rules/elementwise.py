"""Primitives that compute each element of their results from the same element of their operands."""

from __future__ import annotations

import math
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from jax.sharding import NamedSharding

from memsafe import storing
from memsafe.factors import Axis, Factor, Rule
from memsafe.jax_internals import bind
from memsafe.placement import mesh_axes
from memsafe.programs import shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

__all__ = ["NAMES", "RULES", "apply_unchanged"]

_NAMES = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e
    cbrt ceil clamp clz complex conj convert_element_type copy cos cosh
    digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a igammac
    imag integer_pow is_finite le le_to lgamma log log1p log2 logistic lt lt_to max min mul mulhi
    name ne neg nextafter not one_minus_square or polygamma population_count pow real
    reduce_precision regularized_incomplete_beta rem round rsqrt select_n shift_left
    shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan tanh
    threefry2x32 xor zeta
"""

NAMES = frozenset(_NAMES.split())
"""Most elementwise primitives of every tested jax; some stretch dimensions of size 1."""

_OVER_DEVICES = ("pmax", "pmin", "psum", "psum_invariant")
"""Elementwise reductions over the devices in `shard_map`, which all take the same slices."""


def apply_unchanged(
    equation: JaxprEqn, _factor: Factor, operands: Sequence[Array], _piece: Piece
) -> list[Array]:
    """The equation as it is written, for primitives whose parameters contain no shape."""
    return bind(equation, operands)


def _factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Every dimension of the results; operands that are stretched along it are carried whole."""
    return () if equation.params.get("sharding") is not None else _factors_of_shape(equation)


def _factors_of_shape(equation: JaxprEqn) -> tuple[Factor, ...]:
    operands = [shape_of(atom) for atom in equation.invars]
    shape = shape_of(equation.outvars[0])
    if any(shape_of(result) != shape for result in equation.outvars):
        return ()
    if not all(_stretches(operand, shape) for operand in operands):
        return ()
    return _along_each_dimension(tuple(operands), shape, len(equation.outvars))


@lru_cache(maxsize=1024)
def _along_each_dimension(
    operands: tuple[tuple[int, ...], ...], shape: tuple[int, ...], results: int
) -> tuple[Factor, ...]:
    """Cached, because most equations are elementwise and their shapes repeat."""
    return tuple(
        Factor(
            size=size,
            operands=tuple(
                Axis(dim) if operand and operand[dim] == size else None for operand in operands
            ),
            results=(Axis(dim),) * results,
        )
        for dim, size in enumerate(shape)
        if size > 1
    )


def _stretches(operand: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an operand is a scalar or has `shape`, but for dimensions of size 1."""
    return not operand or (
        len(operand) == len(shape)
        and all(own in {1, size} for own, size in zip(operand, shape, strict=True))
    )


def _bitcast_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Every dimension if the types are equally wide: else shapes differ, even those of scalars."""
    same = shape_of(equation.invars[0]) == shape_of(equation.outvars[0])
    return _factors(equation) if same else ()


def _factors_of_one(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Every dimension if there is only one operand: several operands may differ in shape."""
    return _factors(equation) if len(equation.invars) == 1 else ()


def _placed_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Every dimension; a slice is sharded like the array, with an equal share on each device."""
    sharding = equation.params["sharding"]
    if not isinstance(sharding, NamedSharding):
        return ()
    found = []
    for factor in _factors_of_shape(equation):
        (axis,) = factor.results
        assert axis is not None
        devices = math.prod(sharding.mesh.shape[name] for name in mesh_axes(sharding, axis.dim))
        if factor.size % devices == 0 and factor.size > devices:
            found.append(factor.over(devices, None))
    return tuple(found)


RULES: Mapping[str, Rule] = MappingProxyType(
    {name: Rule(factors=_factors, apply=apply_unchanged) for name in NAMES}
    | {
        "bitcast_convert_type": Rule(factors=_bitcast_factors, apply=apply_unchanged),
        "pvary": Rule(factors=_factors, apply=apply_unchanged),
        "optimization_barrier": Rule(factors=_factors_of_one, apply=apply_unchanged),
        **{name: Rule(factors=_factors_of_one, apply=apply_unchanged) for name in _OVER_DEVICES},
        storing.NAME: Rule(factors=_factors, apply=apply_unchanged),
        "sharding_constraint": Rule(factors=_placed_factors, apply=apply_unchanged),
    }
)
