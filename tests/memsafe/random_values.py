"""Well-conditioned values of a random program: no decision depends on rounding.

Decisions (comparisons, orders, largest elements) are made on values with a ramp added, so that no
two of them differ by rounding only; everything else is smooth and bounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import Array, lax

LARGEST: Final = 40_000
"""Number of elements of the largest values; the ramp repeats after 65,536."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The values that a program has computed, by kind."""

    reals: list[Array]
    indices: list[Array] = field(default_factory=list)
    masks: list[Array] = field(default_factory=list)

    def add(self, values: Sequence[Array]) -> None:
        """Adds each value to the list of its kind."""
        for value in values:
            if value.dtype == jnp.bool_:
                self.masks.append(value)
            elif jnp.issubdtype(value.dtype, jnp.integer):
                self.indices.append(value)
            else:
                self.reals.append(value)

    def real(self, rng: Random, rank: int = 1) -> Array:
        """A float array of at least `rank` dimensions, often one of the last three."""
        fitting = [each for each in self.reals if each.ndim >= rank]
        if not fitting:
            one = self.real(rng, rank - 1) if rank > 1 else self.reals[0]
            return one[..., None] + jnp.sin(jnp.arange(5.0))
        return rng.choice(fitting[-3:] if rng.random() < 0.7 else fitting)

    def index(self, rng: Random) -> Array:
        """An array of integers."""
        if not self.indices or rng.random() < 0.3:
            self.add(positions(self, rng))
        return rng.choice(self.indices)

    def mask(self, rng: Random) -> Array:
        """An array of truth values."""
        if not self.masks or rng.random() < 0.5:
            self.add(compared(self, rng))
        return rng.choice(self.masks)


def ramp(shape: Sequence[int]) -> Array:
    """Different numbers in (0, 0.3) that depend only on the shape."""
    position: Any = jnp.int32(0)
    for dim in range(len(shape)):
        position = position * shape[dim] + lax.broadcasted_iota(jnp.int32, tuple(shape), dim)
    return ((position * 40_503) % 65_536 + 1.0) * (0.3 / 65_537) + jnp.zeros(tuple(shape))


def bounded(x: Array) -> Array:
    """`x` mapped smoothly into ±4."""
    return x * lax.rsqrt(1 + x * x / 16)


def shrunk(x: Array, largest: int, rng: Random) -> Array:
    """`x` with its dimensions reduced until it has at most `largest` elements."""
    while x.size > largest:
        by: Any = rng.choice((jnp.mean, jnp.max, _root_mean_square, jax.nn.logsumexp))
        x = by(x, axis=rng.choice([dim for dim in range(x.ndim) if x.shape[dim] > 1]))
    return x


def _root_mean_square(x: Array, axis: int) -> Array:
    return jnp.sqrt(jnp.mean(x * x, axis=axis) + 0.1)


def decided(x: Array) -> Array:
    return x + ramp(x.shape)


def some_axis(x: Array, rng: Random) -> int:
    return rng.randrange(x.ndim)


def some_axes(x: Array, rng: Random) -> tuple[int, ...]:
    return tuple(rng.sample(range(x.ndim), rng.randint(1, x.ndim)))


def positions(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    axis = some_axis(x, rng)
    found = rng.choice((jnp.argmax, jnp.argmin))(decided(x), axis=axis)
    changed = rng.choice((found, found * 3 % 7, found ^ 5, jnp.cumsum(found.reshape(-1)) % 11))
    return [changed]


def compared(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    rows = lax.broadcasted_iota(jnp.int32, x.shape, 0)
    columns = lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
    above = decided(x) > 0.2
    return [
        rng.choice((above, rows >= columns, above & (rows % 3 > 0), above.any(0), above.all(-1)))
    ]
