"""Random elementwise operations, contractions and reductions of the values of a pool."""

import math
from collections.abc import Callable
from random import Random
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import Array, lax

from tests.memsafe.random_values import (
    LARGEST,
    Pool,
    bounded,
    compared,
    decided,
    ramp,
    shrunk,
    some_axes,
    some_axis,
)


def pointwise(pool: Pool, rng: Random) -> list[Array]:
    choices: tuple[Callable[[Array], Array], ...] = (
        jnp.tanh,
        lambda x: jnp.exp(-x * x),
        lambda x: jnp.log1p(x * x),
        lambda x: jnp.sqrt(1 + x * x),
        jax.nn.sigmoid,
        jax.nn.gelu,
        jnp.sin,
        lambda x: lax.erf(x) / (1 + x * x),
        lambda x: jnp.where(decided(x) > 0, x, 0.1 * x),
        lambda x: jnp.clip(x + ramp(x.shape), -1.0, 1.0),
        lambda x: jnp.maximum(decided(x), -x),
        lambda x: bounded(x**3),
        lambda x: jnp.expm1(jnp.cos(x)),
    )
    return [rng.choice(choices)(pool.real(rng, 0))]


def outer(pool: Pool, rng: Random) -> list[Array]:
    x, y = pool.real(rng), pool.real(rng)
    shared = x.ndim > 1 and y.ndim > 1 and x.shape[-1] == y.shape[-1] and rng.random() < 0.7
    left = x.reshape(*x.shape[:-1], *(1,) * (y.ndim - 1), x.shape[-1]) if shared else x
    left = left if shared else x.reshape(*x.shape, *(1,) * y.ndim)
    if jnp.broadcast_shapes(left.shape, y.shape) and left.size * y.size > LARGEST * left.shape[-1]:
        return [bounded(shrunk(x, 300, rng)[..., None] + jnp.ravel(y)[:60])]
    if len(jnp.broadcast_shapes(left.shape, y.shape)) > 5:
        return [bounded(x + jnp.mean(y))]
    choices: tuple[Callable[[Array, Array], Array], ...] = (
        lambda a, b: jnp.exp(-((a - b) ** 2)),
        lambda a, b: bounded(a * b),
        lambda a, b: a / (1 + b * b),
        lambda a, b: bounded(jnp.where(a + ramp(a.shape) > b, a, b)),
        lambda a, b: jnp.cos(a + b),
    )
    whole = rng.choice(choices)(left, y)
    return [whole if rng.random() < 0.5 or whole.ndim < 2 else whole.sum(-1) / whole.shape[-1]]


def matched(pool: Pool, rng: Random) -> list[Array]:
    """A value combined with its own mean over some axes, or with another value of its shape."""
    x = pool.real(rng)
    same = [each for each in pool.reals if each.shape == x.shape]
    other = rng.choice([*same, x.mean(some_axes(x, rng), keepdims=True)])
    return [rng.choice((bounded(x * other), bounded(x - other), jnp.hypot(x + 9, other)))]


def contracted(pool: Pool, rng: Random) -> list[Array]:
    x, y = pool.real(rng), pool.real(rng)
    pairs = [(i, j) for i in range(x.ndim) for j in range(y.ndim) if x.shape[i] == y.shape[j]]
    rng.shuffle(pairs)
    chosen: list[tuple[int, int]] = []
    for i, j in pairs:
        if all(i != a and j != b for a, b in chosen) and len(chosen) < 3:
            chosen.append((i, j))
    over = chosen[: rng.randint(1, 2)]
    batch = chosen[len(over) :] if rng.random() < 0.6 else []
    shared = math.prod(x.shape[i] for i, _ in chosen[: len(over) + len(batch)])
    summed = math.prod(x.shape[i] for i, _ in over)
    size = x.size * y.size // max(shared * summed, 1)
    if not over or size > LARGEST or x.ndim + y.ndim - 2 * len(over) - len(batch) > 5:
        return attended(pool, rng)
    numbers = tuple(tuple(zip(*part, strict=True)) or ((), ()) for part in (over, batch))
    return [bounded(lax.dot_general(x, y, numbers) / math.sqrt(summed))]


def attended(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng, 2)
    x = x.reshape(-1, x.shape[-1])[: math.isqrt(LARGEST)]
    scores = x @ x.T / math.sqrt(x.shape[-1])
    if rng.random() < 0.5:
        seen = jnp.tril(jnp.ones(scores.shape, bool))
        scores = jnp.where(seen, scores, -1e9)
    return [jax.nn.softmax(scores, axis=-1) @ x]


def reduced(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    axes, kept = some_axes(x, rng), rng.random() < 0.3
    choices: tuple[Callable[..., Array], ...] = (
        jnp.mean,
        lambda x, **k: jnp.max(decided(x), **k),
        lambda x, **k: jnp.min(decided(x), **k),
        lambda x, **k: jnp.prod(1 + 0.01 * jnp.tanh(x), **k),
        jnp.var,
        jax.nn.logsumexp,
        lambda x, **k: bounded(jnp.sum(x, **k) / 8),
        lambda x, **k: jnp.sqrt(jnp.sum(x * x, **k) + 0.1) / 8,
    )
    return [rng.choice(choices)(x, axis=axes, keepdims=kept)]


def normalised(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    axis = some_axis(x, rng)
    centred = x - x.mean(axis, keepdims=True)
    return [
        rng.choice(
            (
                jax.nn.softmax(x, axis=axis),
                jax.nn.log_softmax(x, axis=axis) / 4,
                centred * lax.rsqrt(x.var(axis, keepdims=True) + 0.1),
            )
        )
    ]


def accumulated(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    axis, reverse = some_axis(x, rng), rng.random() < 0.5
    cumulated: Any = rng.choice((lax.cumsum, lax.cummax, lax.cumlogsumexp, lax.cumprod))
    given = 1 + 0.01 * jnp.tanh(x) if cumulated is lax.cumprod else decided(x)
    return [bounded(cumulated(given, axis=axis, reverse=reverse) / 4)]


def selected(pool: Pool, rng: Random) -> list[Array]:
    x, mask = pool.real(rng), pool.mask(rng)
    if mask.ndim > x.ndim or mask.shape != x.shape[x.ndim - mask.ndim :]:
        (mask,) = compared(Pool(reals=[x]), rng)
        mask = mask if mask.shape == x.shape else jnp.cos(x) + ramp(x.shape) > 0.4
    return [rng.choice((jnp.where(mask, x, 0.5), x * mask, lax.select(mask & (x < 9), x, -x)))]


SIMPLE: Final = (
    pointwise,
    outer,
    matched,
    contracted,
    attended,
    reduced,
    normalised,
    accumulated,
    selected,
)
