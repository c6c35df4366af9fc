"""Programs over one large image or volume, where each element is computed from its neighbours.

No dimension is a batch, so slices of rows overlap in their halos.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from suites.tensor_splitting.problems import Function, Problem, array, normal_values

_Fields = tuple[jax.Array, jax.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class StencilSizes:
    """Steps or layers on ``side`` rows.

    By hand, ``rows`` rows at a time, a divisor of ``side``; of the wave, ``rows`` steps, a divisor
    of ``steps``.
    """

    steps: int
    side: int
    rows: int
    channels: int = 4
    dtype: Any = np.float64


def network_problem(sizes: StencilSizes) -> Problem:
    """Convolutions of one square image, and a tanh after each."""
    of = partial(array, dtype=sizes.dtype)
    kernels = of(sizes.steps, 3, 3, sizes.channels, sizes.channels)
    image = of(sizes.side, sizes.side, sizes.channels)
    return _problem(network, partial(network_in_tiles, sizes.rows), kernels, image)


def heat_problem(sizes: StencilSizes) -> Problem:
    """Explicit steps of a nonlinear heat equation on a periodic cube."""
    of = partial(array, dtype=sizes.dtype)
    by_hand = partial(heat_in_tiles, sizes.rows)
    return _problem(heat, by_hand, of(sizes.steps), of(sizes.side, sizes.side, sizes.side))


def wave_problem(sizes: StencilSizes) -> Problem:
    """A damped wave on a periodic cube: a scan over the steps; by hand in segments of ``rows``."""
    cube = array(sizes.side, sizes.side, sizes.side, dtype=sizes.dtype)
    arguments = (cube, cube, cube)
    return Problem(
        plain=partial(wave, sizes.steps),
        ways={"checkpoint": partial(wave_in_segments, sizes.steps, sizes.rows)},
        arguments=arguments,
        values=partial(normal_values, arguments),
    )


def _problem(plain: Function, by_hand: Function, *arguments: Any) -> Problem:
    return Problem(
        plain=plain,
        ways={"lax-map": by_hand},
        arguments=arguments,
        values=partial(normal_values, arguments),
    )


def network(kernels: jax.Array, image: jax.Array) -> jax.Array:
    """``[rows, columns, channels]`` after all layers."""
    for kernel in kernels:
        image = _layer(image, kernel)
    return image


def heat(rates: jax.Array, field: jax.Array) -> jax.Array:
    """The field after one step at each rate."""
    for rate in rates:
        field = _step(field, rate)
    return field


def wave(steps: int, speeds: jax.Array, friction: jax.Array, field: jax.Array) -> jax.Array:
    """The field after ``steps`` steps, starting at rest."""
    step = partial(_wave_step, speeds, friction)
    return lax.scan(step, (field, field), length=steps)[0][0]


def wave_in_segments(
    steps: int, most: int, speeds: jax.Array, friction: jax.Array, field: jax.Array
) -> jax.Array:
    """`wave` in segments of ``most`` steps; segments and steps are recomputed for the gradient."""
    step = jax.checkpoint(partial(_wave_step, speeds, friction))

    @jax.checkpoint
    def segment(fields: _Fields, _: None) -> tuple[_Fields, None]:
        return lax.scan(step, fields, length=most)

    return lax.scan(segment, (field, field), length=steps // most)[0][0]


def network_in_tiles(rows: int, kernels: jax.Array, image: jax.Array) -> jax.Array:
    """`network` in tiles of rows: a halo row for each layer, and zeros beyond the image's ends."""
    halo, size = len(kernels), len(image)

    @jax.checkpoint
    def tile(start: jax.Array) -> jax.Array:
        part = lax.dynamic_slice_in_dim(padded, start, rows + 2 * halo)
        place = start - halo + jnp.arange(rows + 2 * halo)
        inside = ((place >= 0) & (place < size))[:, None, None]
        for kernel in kernels:
            part = jnp.where(inside, _layer(part, kernel), 0)
        return part[halo:-halo]

    padded = jnp.pad(image, ((halo, halo), (0, 0), (0, 0)))
    return lax.map(tile, jnp.arange(0, size, rows)).reshape(image.shape)


def heat_in_tiles(rows: int, rates: jax.Array, field: jax.Array) -> jax.Array:
    """`heat` in tiles of rows: a halo row for each step, which wraps around at the ends."""
    halo = len(rates)

    @jax.checkpoint
    def tile(start: jax.Array) -> jax.Array:
        return heat(rates, lax.dynamic_slice_in_dim(padded, start, rows + 2 * halo))[halo:-halo]

    padded = jnp.pad(field, ((halo, halo), (0, 0), (0, 0)), mode="wrap")
    return lax.map(tile, jnp.arange(0, len(field), rows)).reshape(field.shape)


def _layer(image: jax.Array, kernel: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    (made,) = lax.conv_general_dilated(
        image[None], kernel / 4, (1, 1), "SAME", dimension_numbers=numbers
    )
    return jnp.tanh(made)


def _wave_step(
    speeds: jax.Array, friction: jax.Array, fields: _Fields, _: None
) -> tuple[_Fields, None]:
    now, before = fields
    force = speeds**2 * (_neighbours(now) - 6 * now) - jnp.sin(now) - friction * (now - before)
    return (2 * now - before + 0.01 * force, now), None


def _step(field: jax.Array, rate: jax.Array) -> jax.Array:
    return field + 0.1 * rate * jnp.tanh(_neighbours(field) - 6 * field)


def _neighbours(field: jax.Array) -> jax.Array:
    """The sum of the six neighbours of each element."""
    moved = (jnp.roll(field, shift, axis) for axis in range(3) for shift in (1, -1))
    return sum(moved, start=jnp.zeros_like(field))
