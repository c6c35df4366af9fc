"""A residual network with batch norm, whose statistics need the whole batch, not a slice."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax

from suites.tensor_splitting.problems import Problem, array, normal_values


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualSizes:
    """``blocks`` of two convolutions each, on ``batch`` square images of ``side``."""

    blocks: int
    batch: int
    side: int
    channels: int
    dtype: Any = np.float32


def residual_problem(sizes: ResidualSizes) -> Problem:
    """The network at these sizes; by hand, a scan over its blocks with ``jax.checkpoint``."""
    of = partial(array, dtype=sizes.dtype)
    arguments = (
        of(sizes.blocks, 2, 3, 3, sizes.channels, sizes.channels),
        of(sizes.blocks, 2, sizes.channels),
        of(sizes.batch, sizes.side, sizes.side, sizes.channels),
    )
    return Problem(
        plain=network,
        ways={"lax-map": network_in_blocks},
        arguments=arguments,
        values=partial(normal_values, arguments),
    )


def network(kernels: jax.Array, scales: jax.Array, images: jax.Array) -> jax.Array:
    """``[batch, side, side, channels]`` after all blocks."""
    for block in zip(kernels, scales, strict=True):
        images = _block(images, *block)
    return images


def network_in_blocks(kernels: jax.Array, scales: jax.Array, images: jax.Array) -> jax.Array:
    """`network` in segments of two blocks; segments and blocks are recomputed for the gradient."""

    @jax.checkpoint
    def block(x: jax.Array, of: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return _block(x, *of), None

    @jax.checkpoint
    def segment(x: jax.Array, of: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return lax.scan(block, x, of)

    pairs = [each.reshape(-1, 2, *each.shape[1:]) for each in (kernels, scales)]
    return lax.scan(segment, images, tuple(pairs))[0]


def _block(images: jax.Array, kernels: jax.Array, scales: jax.Array) -> jax.Array:
    inner = jax.nn.relu(_normalised(images, kernels[0], scales[0]))
    return jax.nn.relu(images + _normalised(inner, kernels[1], scales[1]))


def _normalised(images: jax.Array, kernel: jax.Array, scale: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    made = lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=numbers)
    mean, variance = made.mean((0, 1, 2)), made.var((0, 1, 2))
    return (made - mean) * lax.rsqrt(variance + 1e-5) * scale
