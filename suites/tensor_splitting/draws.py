"""A product with a matrix of pairs, half of which random bits of an `rbg` key set to zero.

XLA's operation draws all bits at once. Its Philox, on CPUs and GPUs, counts 16 bytes at a time.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from suites.tensor_splitting.problems import Problem, array, normal_values

_HALF = np.uint32(1 << 31)
_WORDS_FOR_EACH_COUNT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawSizes:
    """Number of points, a multiple of four, and the dtype of their values."""

    points: int
    dtype: Any = np.float64


def draws_problem(sizes: DrawSizes) -> Problem:
    """The product at these sizes; a wrong bit changes its gradients."""
    values = (array(sizes.points, dtype=sizes.dtype), array(sizes.points, dtype=sizes.dtype))
    return Problem(
        plain=dropped,
        ways={"lax-map": dropped_by_rows},
        arguments=(*values, array(4, dtype=np.uint32)),
        values=lambda: (*normal_values(values), np.array([3, 5, 2**32 - 7, 11], np.uint32)),
    )


def dropped(x: jax.Array, v: jax.Array, state: jax.Array) -> jax.Array:
    """tanh(x xᵀ) times v; the highest bit of a random word keeps an element or sets it to zero."""
    key = jax.random.wrap_key_data(state, impl="rbg")
    kept = jax.random.bits(key, (len(x), len(x)), np.uint32) < _HALF
    return jnp.where(kept, jnp.tanh(x[:, None] * x), 0) @ v


def dropped_by_rows(x: jax.Array, v: jax.Array, state: jax.Array) -> jax.Array:
    """`dropped` in a loop over rows; each row draws its bits from the counter where it begins."""
    step = len(x) // _WORDS_FOR_EACH_COUNT

    @jax.checkpoint
    def row(at: jax.Array) -> jax.Array:
        low = state[2] + lax.convert_element_type(at * step, np.uint32)
        high = state[3] + (low < state[2]).astype(np.uint32)
        later = jnp.stack([state[0], state[1], low, high])
        kept = lax.rng_bit_generator(later, (len(x),))[1] < _HALF
        return jnp.where(kept, jnp.tanh(x[at] * x), 0) @ v

    return lax.map(row, jnp.arange(len(x), dtype=np.int32))
