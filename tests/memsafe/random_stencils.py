"""Chains of stencils: convolutions, pools, rolls, shifted slices and pads of one large image."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

import jax.numpy as jnp
from jax import Array, lax

from tests.memsafe.random_values import LARGEST, Pool, bounded, decided

_FEWEST: Final = 6
"""Minimum number of rows and of columns that a stencil may leave."""


def stenciled(pool: Pool, rng: Random) -> list[Array]:
    """A value as an image of a few channels, after one to four stencils."""
    x = pool.real(rng, 2)
    image = bounded(x.reshape(-1, x.shape[-1])[: LARGEST // (2 * x.shape[-1]), :, None])
    image = jnp.concatenate([image, jnp.cos(image)], -1)
    for _ in range(rng.randint(1, 4)):
        after = bounded(rng.choice(_STENCILS)(image, rng))
        if min(after.shape[:2]) >= _FEWEST and after.size <= LARGEST:
            image = after + 0.5 * image if after.shape == image.shape else after
    return [image]


def _convolved(image: Array, rng: Random) -> Array:
    strides = [rng.choice((1, 1, 2, 3)) for _ in range(2)]
    gaps = [rng.choice((1, 1, 2)) if stride == 1 else 1 for stride in strides]
    spans = [rng.randint(1, min(4, size)) for size in image.shape[:2]]
    kernel = jnp.sin(jnp.arange(1.0, 4 * spans[0] * spans[1] + 1)).reshape(*spans, 2, 2)
    cut = [-1 if size > 1 else 0 for size in image.shape[:2]]  # Crops no more than there is.
    ends = [(rng.randint(most, 3), rng.randint(most, 3)) for most in cut]
    padding: Any = rng.choice(("SAME", "VALID", ends)) if max(gaps) == 1 else ends
    steps = [rng.randint(1, 2) for _ in range(2)]
    numbers = ("NHWC", "HWIO", "NHWC")
    (found,) = lax.conv_general_dilated(
        image[None], kernel, strides, padding, gaps, steps, dimension_numbers=numbers
    )
    return found


def _pooled(image: Array, rng: Random) -> Array:
    spans = [*(rng.randint(1, min(3, size)) for size in image.shape[:2]), 1]
    strides = [rng.randint(1, 2), rng.randint(1, 2), 1]
    padding = rng.choice(("SAME", "VALID"))
    if rng.random() < 0.5:
        return lax.reduce_window(decided(image), -jnp.inf, lax.max, spans, strides, padding)
    return lax.reduce_window(image, 0.0, lax.add, spans, strides, padding) / 4


def _rolled(image: Array, rng: Random) -> Array:
    axis = rng.randrange(2)
    return jnp.tanh(jnp.roll(image, rng.randint(1, 3), axis) - jnp.roll(image, -1, axis) * image)


def _shifted(image: Array, rng: Random) -> Array:
    """Differences of neighbours, bare or padded (zero, edge, wrap), or every second line."""
    axis = rng.randrange(2)
    size = image.shape[axis]
    if size <= _FEWEST:
        return image
    low, middle, high = (lax.slice_in_dim(image, at, size - 2 + at, axis=axis) for at in range(3))
    inner = middle + 0.1 * jnp.tanh(low + high - 2 * middle)
    ends = [(1, 1) if dim == axis else (0, 0) for dim in range(3)]
    around: tuple[Callable[[], Array], ...] = (
        lambda: inner,
        lambda: jnp.pad(inner, ends),
        lambda: jnp.pad(inner, ends, mode="edge"),
        lambda: jnp.pad(inner, ends, mode="wrap"),
        lambda: image[::2] if axis == 0 else image[:, 1:-1:2],
    )
    return rng.choice(around)()


def _gapped(image: Array, rng: Random) -> Array:
    drawn = [(rng.randint(-1, 2), rng.randint(-1, 2), rng.randint(0, 1)) for _ in range(2)]
    cut = [-1 if size > 1 else 0 for size in image.shape[:2]]  # Crops no more than there is.
    ends = [
        (max(low, most), max(high, most), within)
        for (low, high, within), most in zip(drawn, cut, strict=True)
    ]
    return lax.pad(image, jnp.asarray(0.5, image.dtype), [*ends, (0, 0, 0)])


_STENCILS: Final = (_convolved, _convolved, _pooled, _rolled, _shifted, _gapped)
