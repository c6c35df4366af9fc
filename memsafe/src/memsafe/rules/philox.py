"""Random bits of `rbg` keys, as XLA draws them on CPUs and GPUs: by Philox, from a counter.

There XLA replaces a draw by its own Philox. Each value of a counter of 64 bits gives four elements,
or two elements of 64 bits, in the order in which they lie in memory. The second half of the state
is the counter of the first elements. So a piece is a smaller draw from a later counter. A TPU draws
in its hardware, by an unspecified method.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

from memsafe.factors import Axis, Factor, Rule
from memsafe.rules.counters import Wide, plus, times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

__all__ = ["PHILOX_BITS", "RULES", "philox_bits"]

PHILOX_BITS: Any = Primitive("philox_bits")
"""A state of four words → the bits of `rng_bit_generator`, of a `shape` and a `dtype`.

Valid only where XLA draws by Philox: only a rewrite that knows the platform makes this primitive.
"""


def philox_bits(state: Array, *, shape: tuple[int, ...], dtype: Any) -> Array:
    """The primitive's result by XLA's own operation."""
    drawn: list[Array] = lax.rng_bit_generator(state, shape, dtype=dtype)
    return drawn[1]


_lower = mlir.lower_fun(philox_bits, multiple_results=False)


def _lowered(*arguments: Any, **params: Any) -> Any:
    """The lowered equations. Types of 64 bits are switched on, because they may be off by now."""
    with jax.enable_x64(new_val=True):
        return _lower(*arguments, **params)


PHILOX_BITS.def_impl(philox_bits)
PHILOX_BITS.def_abstract_eval(lambda _, *, shape, dtype: ShapedArray(shape, dtype))
mlir.register_lowering(PHILOX_BITS, _lowered)


def _factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """The first dimension of more than one index; pieces along others are not contiguous."""
    sizes = enumerate(equation.params["shape"])
    found = next(((dim, size) for dim, size in sizes if size > 1), None)
    if found is None:
        return ()
    dim, size = found
    return (Factor(size=size, operands=(None,), results=(Axis(dim),)),)


def _of_piece(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    """A draw from the counter of the piece's first element, without elements before the piece."""
    (state,), (axis,) = operands, factor.results
    assert axis is not None
    whole, dtype = equation.params["shape"], equation.params["dtype"]
    shape = (*whole[: axis.dim], piece.length * axis.block, *whole[axis.dim + 1 :])
    together = 4 if dtype.itemsize < 8 else 2  # noqa: PLR2004 — bytes
    elements = math.prod(whole[axis.dim + 1 :]) * axis.block
    first = times(lax.convert_element_type(piece.start, jnp.uint32), elements)
    shift = together.bit_length() - 1
    low = first.low >> shift | first.high << (32 - shift)
    counter = plus(Wide(state[3], state[2]), Wide(first.high >> shift, low))
    later = jnp.stack([state[0], state[1], counter.low, counter.high])
    if elements % together == 0:
        return [PHILOX_BITS.bind(later, shape=shape, dtype=dtype)]
    count = math.prod(shape)
    flat = PHILOX_BITS.bind(later, shape=(count + together - 1,), dtype=dtype)
    before = lax.convert_element_type(first.low & (together - 1), jnp.int32)
    own: Array = lax.dynamic_slice(flat, (before,), (count,))
    return [own.reshape(shape)]


RULES: Mapping[str, Rule] = MappingProxyType(
    {PHILOX_BITS.name: Rule(factors=_factors, apply=_of_piece)}
)
