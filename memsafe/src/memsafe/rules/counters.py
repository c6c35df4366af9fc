"""The counters of partitionable threefry: each element's place in the whole array, in 64 bits."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from memsafe.factors import Axis, Factor, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.factors import Piece

__all__ = ["RULES", "Wide", "plus", "times"]

_WORD = 1 << 32
_HALF = 16


class Wide(NamedTuple):
    """A 64-bit unsigned number, as two words of 32 bits."""

    high: Array
    low: Array


def _iota_factors(equation: JaxprEqn) -> tuple[Factor, ...]:
    """Every dimension, of both words."""
    return tuple(
        Factor(size=size, operands=(), results=(Axis(dim), Axis(dim)))
        for dim, size in enumerate(equation.params["shape"])
        if size > 1
    )


def _iota_of_piece(
    equation: JaxprEqn, factor: Factor, _: Sequence[Array], piece: Piece
) -> list[Array]:
    """The sum over dimensions of each element's index times the dimension's stride."""
    axis = factor.results[0]
    assert axis is not None
    whole: tuple[int, ...] = equation.params["shape"]
    shape = list(whole)
    shape[axis.dim] = piece.length * axis.block
    start = lax.convert_element_type(piece.start, jnp.uint32) * jnp.uint32(axis.block)
    total = Wide(jnp.zeros((), jnp.uint32), jnp.zeros((), jnp.uint32))
    for dim, size in enumerate(shape):
        index = lax.iota(jnp.uint32, size) + (start if dim == axis.dim else jnp.uint32(0))
        term = times(index, math.prod(whole[dim + 1 :]))
        along = [size if other == dim else 1 for other in range(len(shape))]
        total = plus(total, Wide(term.high.reshape(along), term.low.reshape(along)))
    # If 32 bits can count all elements, the upper word is a constant that needs no memory.
    high = total.high if math.prod(whole) > _WORD else jnp.uint32(0)
    return [jnp.broadcast_to(word, shape) for word in (high, total.low)]


def times(index: Array, stride: int) -> Wide:
    """The product of an index and a stride of 64 bits, modulo 2**64."""
    low, high = jnp.uint32(stride % _WORD), jnp.uint32(stride // _WORD)
    return Wide(_upper_word(index, stride % _WORD) + index * high, index * low)


def _upper_word(left: Array, right: int) -> Array:
    """The upper word of a product of two words, from products of their halves."""
    half = (1 << _HALF) - 1
    upper, lower = left >> _HALF, left & half
    right_upper, right_lower = jnp.uint32(right >> _HALF), jnp.uint32(right & half)
    middle = upper * right_lower + (lower * right_lower >> _HALF)
    other = lower * right_upper + (middle & half)
    found: Array = upper * right_upper + (middle >> _HALF) + (other >> _HALF)
    return found


def plus(left: Wide, right: Wide) -> Wide:
    """The sum modulo 2**64."""
    low = left.low + right.low
    carry: Any = low < right.low
    return Wide(left.high + right.high + carry.astype(jnp.uint32), low)


RULES: Mapping[str, Rule] = MappingProxyType(
    {"iota_2x32_shape": Rule(factors=_iota_factors, apply=_iota_of_piece)}
)
