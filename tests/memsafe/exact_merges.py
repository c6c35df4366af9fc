"""The law of merges without arithmetic: pieces of any length give the whole, bit for bit."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from memsafe.factors import Factor, Piece
from memsafe.rules import factors_of
from tests.memsafe.pieces import Seen, last_equation


def assert_merges_to_the_bit(
    function: Callable[..., Any],
    *arguments: Any,
    primitive: str | None = None,
    merges: int,
    times: int = 1,
) -> None:
    """Asserts that the equation in `function` has `merges` merged factors, and that all are exact.

    Each factor is coarsened: `times` indices are taken as one.
    """
    seen = last_equation(function, *arguments, primitive=primitive)
    finest = [factor for factor in factors_of(seen.equation) if factor.merge is not None]
    merged = [factor.coarser(times) for factor in finest]
    assert len(merged) == merges
    for factor in merged:
        for length in range(factor.least, factor.size):
            for got, wanted in zip(_merged(factor, seen, length), seen.results, strict=True):
                assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
                same = np.asarray(got).tobytes() == np.asarray(wanted).tobytes()
                assert same, f"{factor}, {length}: got {got}, wanted {wanted}"


def _merged(factor: Factor, seen: Seen, length: int) -> list[Array]:
    """The results from pieces of `length` indices; the last one is moved back to stay in bounds."""
    merge = factor.merge
    assert merge is not None
    state = merge.start(seen.equation)
    for begin in range(0, factor.size, length):
        start = min(begin, factor.size - length)
        counted = jnp.int32(begin - start) if factor.size % length else None
        piece = Piece(start=jnp.int32(start), length=length, counted=counted)
        sliced = [
            value
            if axis is None
            else lax.slice_in_dim(
                value, start * axis.block, (start + length) * axis.block, axis=axis.dim
            )
            for value, axis in zip(seen.operands, factor.operands, strict=True)
        ]
        part = merge.part(seen.equation, factor, sliced, piece)
        state = merge.combine(state, part, first=jnp.asarray(begin == 0))
    whole = [
        value if axis is None else None
        for value, axis in zip(seen.operands, factor.operands, strict=True)
    ]
    return merge.finish(seen.equation, state, whole)
