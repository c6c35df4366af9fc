"""Attention of every query to every key, and the ways to write it without the matrix of scores.

Arguments and results are ``[batch, heads, sequence, head width]``, except in `cudnn_kernel`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from assay.frameworks.framework import Unsupported
from suites.tensor_splitting.problems import Problem, array, normal_values

Attend = Callable[..., jax.Array]
_HIDDEN = -1e9  # a masked score, whose softmax is 0; textbooks use this value


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSizes:
    """Dimensions of one attention; a loop by hand takes ``rows`` queries at a time."""

    sequence: int
    batch: int = 1
    heads: int = 8
    head_width: int = 64
    rows: int = 128
    causal: bool = False
    dtype: Any = np.float32


def attention_problem(sizes: AttentionSizes) -> Problem:
    """Attention at these sizes; its gradients are what training needs."""
    each = array(sizes.batch, sizes.heads, sizes.sequence, sizes.head_width, dtype=sizes.dtype)
    ways = ways_to_attend(sizes.rows)
    return Problem(
        plain=partial(attention, causal=sizes.causal),
        ways={name: partial(attend, causal=sizes.causal) for name, attend in ways.items()},
        arguments=(each, each, each),
        values=partial(normal_values, (each, each, each)),
    )


def cudnn_problem(sizes: AttentionSizes) -> Problem:
    """Attention by cuDNN alone, in the type and the order of axes that its kernel takes."""
    each = array(
        sizes.batch, sizes.sequence, sizes.heads, sizes.head_width, dtype=ml_dtypes.bfloat16
    )
    return Problem(
        plain=partial(cudnn_kernel, causal=sizes.causal),
        ways={},
        arguments=(each, each, each),
        values=partial(normal_values, (each, each, each)),
    )


def ways_to_attend(rows: int) -> Mapping[str, Attend]:
    """The other ways to write attention, by the name of the variant."""
    return {
        "lax-map": partial(mapped, rows),
        "dot-product-attention": dot_product_attention,
        "flash": flash,
        "cudnn": cudnn,
    }


def attention(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool) -> jax.Array:
    """softmax(q kᵀ / √d) v, as textbooks write it."""
    scores = q @ k.swapaxes(-1, -2) / sqrt(q.shape[-1])
    if causal:
        seen = jnp.tril(jnp.ones(scores.shape[-2:], dtype=bool))
        scores = jnp.where(seen, scores, _HIDDEN)
    return jax.nn.softmax(scores, axis=-1) @ v


def mapped(rows: int, q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool) -> jax.Array:
    """A loop that takes ``rows`` queries at a time and is recomputed in the backward pass."""
    positions = jnp.arange(q.shape[-2])

    @jax.checkpoint
    def of_one(at: tuple[jax.Array, jax.Array]) -> jax.Array:
        position, query = at
        scores = jnp.einsum("bhd,bhsd->bhs", query, k) / sqrt(q.shape[-1])
        if causal:
            scores = jnp.where(positions <= position, scores, _HIDDEN)
        return jnp.einsum("bhs,bhsd->bhd", jax.nn.softmax(scores, axis=-1), v)

    results = lax.map(of_one, (positions, jnp.moveaxis(q, -2, 0)), batch_size=rows)
    return jnp.moveaxis(results, 0, -2)


def dot_product_attention(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool) -> jax.Array:
    """`jax.nn.dot_product_attention`, which expects the sequence before the heads."""
    q, k, v = (each.swapaxes(1, 2) for each in (q, k, v))
    attended = jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="xla")
    return attended.swapaxes(1, 2)


def cudnn(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool) -> jax.Array:
    """Flash attention by cuDNN, in bf16 because cuDNN accepts no wider type."""
    narrow = (each.swapaxes(1, 2).astype(jnp.bfloat16) for each in (q, k, v))
    return cudnn_kernel(*narrow, causal=causal).swapaxes(1, 2).astype(q.dtype)


def cudnn_kernel(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool) -> jax.Array:
    """Flash attention by cuDNN of ``[batch, sequence, heads, head width]`` in bf16.

    Raises:
        Unsupported: cuDNN is not installed; jax asks for its version before it stages the call.
    """
    try:
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="cudnn")
    except RuntimeError as error:
        raise Unsupported(f"{error} pip install nvidia-cudnn-cu13") from error


def flash(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool) -> jax.Array:
    """JAX's flash attention for TPU, in Pallas."""
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

    return flash_attention(q, k, v, causal=causal, sm_scale=1 / sqrt(q.shape[-1]))
