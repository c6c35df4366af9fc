"""A chain of matrix products whose order decides its memory: (A B) v, or A (B v)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from suites.tensor_splitting.problems import Problem, array, normal_values


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSizes:
    """A ``[rows, inner]``, B ``[inner, columns]``, v ``[columns, 1]``."""

    rows: int
    inner: int
    columns: int
    mapped_rows: int = 16
    dtype: Any = np.float32


def chain_problem(sizes: ChainSizes) -> Problem:
    """The chain at these sizes."""
    of = partial(array, dtype=sizes.dtype)
    arguments = (
        of(sizes.rows, sizes.inner),
        of(sizes.inner, sizes.columns),
        of(sizes.columns, 1),
    )
    return Problem(
        plain=in_order,
        ways={"lax-map": partial(mapped, sizes.mapped_rows), "reordered": reordered},
        arguments=arguments,
        values=partial(normal_values, arguments),
    )


def in_order(a: jax.Array, b: jax.Array, v: jax.Array) -> jax.Array:
    """tanh((A B) v), from left to right: the expensive order."""
    return jnp.tanh(a @ b @ v)


def reordered(a: jax.Array, b: jax.Array, v: jax.Array) -> jax.Array:
    """tanh(A (B v)): the cheap order."""
    return jnp.tanh(a @ (b @ v))


def mapped(rows: int, a: jax.Array, b: jax.Array, v: jax.Array) -> jax.Array:
    """The expensive order, ``rows`` rows of A at a time."""
    return lax.map(lambda row: jnp.tanh(row @ b @ v), a, batch_size=rows)
