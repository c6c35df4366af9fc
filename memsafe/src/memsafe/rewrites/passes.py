"""Elements of given ranks, found from their highest bits down: some bits in each pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from memsafe.rules.counting import COUNT_BELOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

__all__ = ["bits_of", "digits_of", "image_of", "number_of", "of_ranks", "shifts_of"]

_AT_ONCE = 32
"""Maximum pivots in one pass: 32 take 2 ns for each element, 16 take 1 (see `rules.counting`)."""


def bits_of(kind: Any) -> int:
    """The bits of an element of a type."""
    return 8 * int(jnp.dtype(kind).itemsize)


def digits_of(count: int) -> int | None:
    """The bits that one pass finds of each of `count` elements; None for too many elements."""
    return next((bits for bits in (4, 2, 1) if count * (2**bits - 1) <= _AT_ONCE), None)


def shifts_of(bits: int, count: int) -> list[int]:
    """The positions of the digits in a number of `bits` bits, the highest first."""
    step = digits_of(count)
    assert step is not None
    return list(range(-(-bits // step) * step - step, -1, -step))


def of_ranks(
    image: Callable[[], Array], ranks: Array, sizes: tuple[int, int]
) -> tuple[Array, Array]:
    """The elements of `ranks` as images, and their places, which are 0 if they have no bits.

    `sizes` are the bits of an element and of a place. One loop finds both, so that all of its
    passes see the same elements to the last bit.
    """
    count = ranks.shape[0]
    step = digits_of(count)
    assert step is not None
    of_keys, of_places = (shifts_of(bits, count) if bits else [] for bits in sizes)
    kind = jnp.dtype(jnp.uint64 if sizes[0] > 32 else jnp.uint32)  # noqa: PLR2004 — bits
    digits = np.arange(1, 2**step, dtype=kind)

    def counted(pivots: Array, keys: Array, in_keys: Array) -> Array:
        """Number of elements below each pivot, or of places below it of elements equal to a key."""
        elements = lax.convert_element_type(image(), kind)
        if not of_places:
            below: Array = COUNT_BELOW.bind(elements, pivots.ravel())
            return below.reshape(pivots.shape)
        place, none = lax.iota(kind, elements.shape[0]), kind.type(np.iinfo(kind).max)
        each = [
            jnp.where(in_keys, elements, jnp.where(elements == key, place, none)) for key in keys
        ]
        return jnp.stack([COUNT_BELOW.bind(*pair) for pair in zip(each, pivots, strict=True)])

    def refined(carry: Any, turn: Any) -> Any:
        keys, places, before = carry
        shift, in_keys = turn
        found = jnp.where(in_keys, keys, places)
        pivots = found[:, None] + (digits << shift)
        below = counted(pivots, keys, in_keys)
        left = ranks - jnp.where(in_keys, 0, before).astype(jnp.uint32)
        digit = jnp.sum(below <= left[:, None], axis=1, dtype=jnp.uint32)
        padded = jnp.concatenate([before[:, None], below], axis=1)
        reached = jnp.take_along_axis(padded, digit[:, None], axis=1, mode="clip")[:, 0]
        found = found + (digit.astype(kind) << shift)
        return (
            jnp.where(in_keys, found, keys),
            jnp.where(in_keys, places, found),
            jnp.where(in_keys, reached, before),
        ), None

    turns = (
        np.array([*of_keys, *of_places], kind),
        np.array([True] * len(of_keys) + [False] * len(of_places)),
    )
    zeros = jnp.zeros(count, kind)
    (keys, places, _), _ = lax.scan(refined, (zeros, zeros, jnp.zeros(count, jnp.uint32)), turns)
    return keys, places


def image_of(values: Array, *, ties: bool) -> Array:
    """Unsigned integers in the order of `values`. With `ties`, both zeros have the same image."""
    kind = _unsigned(values.dtype)
    sign = kind.type(1 << (bits_of(kind) - 1))
    if jnp.issubdtype(values.dtype, jnp.unsignedinteger):
        return values
    if jnp.issubdtype(values.dtype, jnp.integer):
        whole: Array = lax.bitcast_convert_type(values, kind) ^ sign
        return whole
    values = jnp.where(jnp.isnan(values), jnp.asarray(jnp.nan, values.dtype), values)
    if ties:
        values = jnp.where(values == 0, jnp.zeros((), values.dtype), values)
    bits = lax.bitcast_convert_type(values, kind)
    return jnp.where(bits >= sign, ~bits, bits | sign)


def number_of(keys: Array, dtype: Any) -> Array:
    """The values whose images are `keys`."""
    kind = _unsigned(dtype)
    sign = kind.type(1 << (bits_of(kind) - 1))
    keys = keys.astype(kind)
    if jnp.issubdtype(dtype, jnp.unsignedinteger):
        return keys
    if jnp.issubdtype(dtype, jnp.integer):
        return lax.bitcast_convert_type(keys ^ sign, dtype)
    return lax.bitcast_convert_type(jnp.where(keys >= sign, keys ^ sign, ~keys), dtype)


def _unsigned(dtype: Any) -> Any:
    return np.dtype(f"uint{bits_of(dtype)}")
