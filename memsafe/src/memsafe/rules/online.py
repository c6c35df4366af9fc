"""A maximum and the sum of exponentials relative to it, in one pass: `softmax`, `logsumexp`.

As separate equations, the sum waits for the maximum, and its terms must be kept or computed twice.
Here each slice sums exponentials relative to its own maximum. If a later slice has a larger
maximum, the sum so far is scaled down (Milakov and Gimelshein, arXiv 1805.02867).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from memsafe.factors import Axis, Factor, Rule
from memsafe.jax_internals import bind
from memsafe.merges import masked
from memsafe.programs import evaluate
from memsafe.rules.elementwise import apply_unchanged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.factors import Piece

__all__ = ["MAX_AND_SUMEXP", "RULES", "max_and_sumexp"]

MAX_AND_SUMEXP: Any = Primitive("max_and_sumexp")
"""`x` → its maximum m, and the sum of exp(x - shift(m)).

Parameters: the reduced `axes`; `shift`, a program of elementwise equations from one number to
another; `within`, the type of the subtraction; and `summed`, the type of the sum. No parameter
contains a shape.
"""


def max_and_sumexp(
    x: Array, *, axes: tuple[int, ...], shift: ClosedJaxpr, within: Any, summed: Any
) -> list[Array]:
    """The primitive's results, computed by equivalent equations."""
    largest = lax.reduce_max(x, axes)
    (under,) = evaluate(shift, [largest], calls=_for_each)
    powers = lax.exp(_as(x, within) - lax.expand_dims(under, axes))
    return [largest, lax.reduce_sum(_as(powers, summed), axes)]


def _for_each(equation: JaxprEqn, operands: Sequence[Any]) -> list[Array]:
    """An equation on scalars, computed for each element of arrays."""
    shape = jnp.broadcast_shapes(*map(jnp.shape, operands))
    avals: list[Any] = [atom.aval for atom in equation.invars]
    many = [
        one if jnp.shape(one) == shape else lax.full(shape, one, aval.dtype)
        for one, aval in zip(operands, avals, strict=True)
    ]
    return bind(equation, many)


def _as(values: Array, kind: Any) -> Array:
    return lax.convert_element_type(values, kind)


def _abstract(x: ShapedArray, **params: Any) -> list[ShapedArray]:
    return list(jax.make_jaxpr(partial(max_and_sumexp, **params))(x).out_avals)


def _batched(
    arguments: Sequence[Array], dims: Sequence[int], *, axes: tuple[int, ...], **params: Any
) -> tuple[list[Array], list[int]]:
    (x,), (dim,) = arguments, dims
    moved = tuple(axis + (axis >= dim) for axis in axes)
    kept = dim - sum(axis < dim for axis in moved)
    return MAX_AND_SUMEXP.bind(x, axes=moved, **params), [kept, kept]


_lower = mlir.lower_fun(max_and_sumexp, multiple_results=True)


def _lowered(*arguments: Any, **params: Any) -> Any:
    """The lowered equations. Doubles are switched on, because they may be off by now."""
    with jax.enable_x64(new_val=True):
        return _lower(*arguments, **params)


MAX_AND_SUMEXP.multiple_results = True
MAX_AND_SUMEXP.def_impl(max_and_sumexp)
MAX_AND_SUMEXP.def_abstract_eval(_abstract)
mlir.register_lowering(MAX_AND_SUMEXP, _lowered)
batching.primitive_batchers[MAX_AND_SUMEXP] = _batched


@dataclass(frozen=True, slots=True)
class _Rescaled:
    """The maximum so far and the sum of exponentials relative to it, or to 0 if it is not finite.

    `finish` applies the equation's own shift. Then values that are all -inf, or hold an infinity
    or a NaN, give the same result as in one piece.
    """

    def start(self, equation: JaxprEqn) -> tuple[Array, ...]:
        largest, total = self.state_avals(equation)
        return jnp.full(largest.shape, -jnp.inf, largest.dtype), jnp.zeros(total.shape, total.dtype)

    def part(
        self, equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
    ) -> tuple[Array, ...]:
        """Binds the primitive again, so that a piece that is too large can itself be split."""
        (x,), (axis,), held = operands, factor.operands, _held(equation)
        assert axis is not None
        uncounted = masked(x, axis, piece, jnp.asarray(-jnp.inf, x.dtype))
        shift = _finite_shift(x.dtype, held)
        axes = equation.params["axes"]
        largest, total = MAX_AND_SUMEXP.bind(
            uncounted, axes=axes, shift=shift, within=held, summed=held
        )
        return largest, total

    def combine(
        self, state: tuple[Array, ...], part: tuple[Array, ...], *, first: Array
    ) -> tuple[Array, ...]:
        (before, total), (own, more) = state, part
        largest = lax.max(before, own)
        return largest, _rescaled(total, before, largest) + _rescaled(more, own, largest)

    def finish(
        self, equation: JaxprEqn, state: tuple[Array, ...], operands: Sequence[Array | None]
    ) -> list[Array]:
        largest, total = state
        (under,) = evaluate(equation.params["shift"], [largest], calls=_for_each)
        rest = _finite(largest, total.dtype) - _as(under, total.dtype)
        return [largest, _as(total * lax.exp(rest), equation.params["summed"])]

    def state_avals(self, equation: JaxprEqn) -> tuple[ShapedArray, ...]:
        avals: list[Any] = [variable.aval for variable in equation.outvars]
        kinds = (avals[0].dtype, _held(equation))
        return tuple(ShapedArray(aval.shape, kind) for aval, kind in zip(avals, kinds, strict=True))


def _held(equation: JaxprEqn) -> Any:
    """The type of sums between pieces: sums in 16 bits would stop growing."""
    within, summed = equation.params["within"], equation.params["summed"]
    return jnp.promote_types(jnp.promote_types(within, summed), jnp.float32)


def _finite(largest: Array, kind: Any) -> Array:
    """`largest` where it is finite, else 0, because inf - inf is NaN."""
    return _as(lax.select(lax.is_finite(largest), largest, lax.full_like(largest, 0)), kind)


@cache
def _finite_shift(kind: Any, held: Any) -> ClosedJaxpr:
    return jax.make_jaxpr(partial(_finite, kind=held))(jax.ShapeDtypeStruct((), kind))


def _rescaled(total: Array, before: Array, largest: Array) -> Array:
    """Converts a sum relative to `before` to a sum relative to `largest`.

    If `before` is -inf, the sum is 0, or NaN where a maximum dropped a NaN. Scaling changes
    neither, except that 0 × inf is NaN, so such a sum is left as it is.
    """
    down = lax.exp(_finite(before, total.dtype) - _finite(largest, total.dtype))
    return total * lax.select(lax.is_finite(before), down, lax.full_like(down, 1))


def _factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Kept dimensions, and reduced ones, which are merged."""
    operand: Any = equation.invars[0].aval
    axes = equation.params["axes"]
    kept = [dim for dim in range(operand.ndim) if dim not in axes]
    return tuple(
        Factor(
            size=size,
            operands=(Axis(dim),),
            results=(Axis(kept.index(dim)) if dim in kept else None,) * 2,
            merge=None if dim in kept else _Rescaled(),
        )
        for dim, size in enumerate(operand.shape)
        if size > 1
    )


RULES: Mapping[str, Rule] = MappingProxyType(
    {MAX_AND_SUMEXP.name: Rule(factors=_factors, apply=apply_unchanged)}
)
