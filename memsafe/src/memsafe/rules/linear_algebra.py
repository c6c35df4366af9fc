"""Decompositions, solves and Fourier transforms of stacks: each problem stands alone."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from memsafe.factors import Axis, Factor, Rule
from memsafe.programs import shape_of
from memsafe.rules.elementwise import apply_unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jax.extend.core import JaxprEqn

__all__ = ["RULES"]

_CORE_DIMS = {
    "cholesky": 2,
    "eig": 2,
    "eigh": 2,
    "geqrf": 2,
    "hessenberg": 2,
    "householder_product": 2,
    "lu": 2,
    "lu_pivots_to_permutation": 1,
    "qr": 2,
    "schur": 2,
    "svd": 2,
    "symmetric_product": 2,
    "triangular_solve": 2,
    "tridiagonal": 2,
    "tridiagonal_solve": 1,
}
"""Number of last dimensions of the first operand that are one problem; the rest are the stack."""


def _stack_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """One factor for each dimension of the stack, which every operand and result begins with."""
    shapes: list[tuple[int, ...]] = [
        shape_of(atom) for atom in (*equation.invars, *equation.outvars)
    ]
    stack = shapes[0][: len(shapes[0]) - _core_dims(equation)]
    assert all(shape[: len(stack)] == stack for shape in shapes)
    return tuple(
        Factor(
            size=size,
            operands=(Axis(dim),) * len(equation.invars),
            results=(Axis(dim),) * len(equation.outvars),
        )
        for dim, size in enumerate(stack)
        if size > 1
    )


def _core_dims(equation: JaxprEqn) -> int:
    own = _CORE_DIMS.get(equation.primitive.name)
    return len(equation.params["fft_lengths"]) if own is None else own


def _triangular_solve_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The stack, and the right-hand sides: columns, or rows if the matrix is on the right."""
    shape = shape_of(equation.invars[1])
    dim = len(shape) - (1 if equation.params["left_side"] else 2)
    sides = Factor(size=shape[dim], operands=(None, Axis(dim)), results=(Axis(dim),))
    return (*_stack_factors(equation), *((sides,) if shape[dim] > 1 else ()))


_FACTORS: dict[str, Callable[[JaxprEqn], tuple[Factor, ...]]] = {
    **dict.fromkeys(_CORE_DIMS, _stack_factors),
    "fft": _stack_factors,
    "triangular_solve": _triangular_solve_factors,
}

RULES: Mapping[str, Rule] = MappingProxyType(
    {name: Rule(factors=factors, apply=apply_unchanged) for name, factors in _FACTORS.items()}
)
