"""Programs whose gradient keeps values of each step of a loop, or of a branch.

The programs use ``lax.scan`` and ``lax.switch`` without ``jax.checkpoint``.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from suites.tensor_splitting.problems import Function, Problem, array, normal_values


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSizes:
    """Steps or layers on ``batch`` rows of ``width``; a loop by hand takes ``rows`` at a time."""

    steps: int
    batch: int
    width: int
    rows: int = 64
    dtype: Any = np.float64


def layers_problem(sizes: LoopSizes) -> Problem:
    """A perceptron as a scan over its layers."""
    of = partial(array, dtype=sizes.dtype)
    weights, x = of(sizes.steps, sizes.width, sizes.width), of(sizes.batch, sizes.width)
    return _problem(layers, sizes.rows, weights, x)


def recurrent_problem(sizes: LoopSizes) -> Problem:
    """A recurrent network over a batch of sequences, ``[batch, steps, width]``."""
    of = partial(array, dtype=sizes.dtype)
    weight, x = of(sizes.width, sizes.width), of(sizes.batch, sizes.steps, sizes.width)
    return _problem(recurrent, sizes.rows, weight, x)


def branches_problem(sizes: LoopSizes) -> Problem:
    """Layers of two kinds; a branch chooses the kind of each layer."""
    of = partial(array, dtype=sizes.dtype)
    weights, x = of(sizes.steps, sizes.width, sizes.width), of(sizes.batch, sizes.width)
    return _problem(branches, sizes.rows, weights, x)


def _problem(plain: Function, rows: int, *arguments: Any) -> Problem:
    return Problem(
        plain=plain,
        ways={"lax-map": partial(_mapped, plain, rows)},
        arguments=arguments,
        values=partial(normal_values, arguments),
    )


def layers(weights: jax.Array, x: jax.Array) -> jax.Array:
    """``[batch, width]`` after all layers."""
    return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]


def recurrent(weight: jax.Array, x: jax.Array) -> jax.Array:
    """The last state of each sequence."""
    start = jnp.zeros((x.shape[0], x.shape[2]), x.dtype)
    step = lambda state, row: (jnp.tanh(state @ weight + row), None)  # noqa: E731 - a step
    return lax.scan(step, start, jnp.swapaxes(x, 0, 1))[0]


def branches(weights: jax.Array, x: jax.Array) -> jax.Array:
    """``[batch, width]``; the sign of each layer's first weight chooses the kind of the layer."""
    for weight in weights:
        kinds = [lambda x, w: jnp.tanh(x @ w), lambda x, w: x + jnp.sin(jnp.cos(x @ w) @ w)]
        x = lax.switch((weight[0, 0] > 0).astype(jnp.int32), kinds, x, weight)
    return x


def _mapped(plain: Function, rows: int, weights: jax.Array, x: jax.Array) -> jax.Array:
    """``plain`` on ``rows`` rows of the batch at a time, recomputed in the backward pass."""
    blocks = x.reshape(-1, rows, *x.shape[1:])
    made = lax.map(jax.checkpoint(partial(plain, weights)), blocks)
    return made.reshape(-1, *made.shape[2:])
