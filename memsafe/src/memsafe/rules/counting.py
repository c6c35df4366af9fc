"""The number of elements below each of a few pivots, in one pass over an array.

With a comparison and a sum for each pivot, a compiler computes the array again for each pivot. In
one reduction of several arrays, it computes each element once. Then 32 pivots take 2 ns for each
element, and 40 ns with separate sums (2 cores, jax 0.10.2, 2026-11-25).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from memsafe.factors import Axis, Factor, Rule
from memsafe.merges import masked
from memsafe.rules.elementwise import apply_unchanged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

__all__ = ["COUNT_BELOW", "RULES", "count_below"]

COUNT_BELOW: Any = Primitive("count_below")
"""Unsigned `values` of any shape, and `pivots` → the number of values below each pivot."""


def count_below(values: Array, pivots: Array) -> Array:
    """The primitive's result, computed by equivalent equations."""
    count = pivots.shape[0]
    less = tuple(_as_count(values < pivots[each]) for each in range(count))
    zeros = (np.uint32(0),) * count
    found = lax.reduce(less, zeros, _added, tuple(range(values.ndim)))
    return jnp.stack(found)


def _as_count(is_less: Array) -> Array:
    return lax.convert_element_type(is_less, jnp.uint32)


def _added(left: Sequence[Array], right: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(lax.add(*pair) for pair in zip(left, right, strict=True))


_lower = mlir.lower_fun(count_below, multiple_results=False)


def _lowered(*arguments: Any, **params: Any) -> Any:
    """The lowered equations. Doubles are switched on, because they may be off by now."""
    with jax.enable_x64(new_val=True):
        return _lower(*arguments, **params)


def _batched(arguments: Sequence[Array], dims: Sequence[int]) -> tuple[Array, int]:
    return jax.vmap(count_below, in_axes=tuple(dims))(*arguments), 0


COUNT_BELOW.def_impl(count_below)
COUNT_BELOW.def_abstract_eval(lambda _, pivots: ShapedArray(pivots.shape, jnp.dtype(jnp.uint32)))
mlir.register_lowering(COUNT_BELOW, _lowered)
batching.primitive_batchers[COUNT_BELOW] = _batched


@dataclass(frozen=True, slots=True)
class _Counts:
    """The sum of the counts of pieces."""

    def start(self, equation: JaxprEqn) -> tuple[Array, ...]:
        return tuple(jnp.zeros(aval.shape, aval.dtype) for aval in self.state_avals(equation))

    def part(
        self, equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> tuple[Array, ...]:
        """Binds the primitive again, so that a piece that is too large can itself be split.

        Values that are already counted become the largest number, which is below no pivot.
        """
        values, pivots = operands
        axis = factor.operands[0]
        assert axis is not None
        largest = np.iinfo(values.dtype).max
        return (COUNT_BELOW.bind(masked(values, axis, piece, largest), pivots),)

    def combine(
        self, state: tuple[Array, ...], part: tuple[Array, ...], *, first: Array
    ) -> tuple[Array, ...]:
        return (state[0] + part[0],)

    def finish(
        self, equation: JaxprEqn, state: tuple[Array, ...], operands: Sequence[Array | None]
    ) -> list[Array]:
        return list(state)

    def state_avals(self, equation: JaxprEqn) -> tuple[ShapedArray, ...]:
        counts: Any = equation.outvars[0].aval
        return (ShapedArray(counts.shape, counts.dtype),)


def _factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Every dimension of the values, which are merged."""
    values: Any = equation.invars[0].aval
    return tuple(
        Factor(size=size, operands=(Axis(dim), None), results=(None,), merge=_Counts())
        for dim, size in enumerate(values.shape)
        if size > 1
    )


RULES: Mapping[str, Rule] = MappingProxyType(
    {COUNT_BELOW.name: Rule(factors=_factors, apply=apply_unchanged)}
)
