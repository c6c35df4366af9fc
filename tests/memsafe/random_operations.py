"""Random operations on the values of a pool: arithmetic, moves of elements, calls and loops."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from random import Random
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import Array, lax

from tests.memsafe.random_arithmetic import (
    SIMPLE,
    accumulated,
    attended,
    contracted,
    matched,
    normalised,
    outer,
    pointwise,
    reduced,
    selected,
)
from tests.memsafe.random_stencils import stenciled
from tests.memsafe.random_values import (
    LARGEST,
    Pool,
    bounded,
    compared,
    decided,
    positions,
    ramp,
    some_axis,
)

Operation = Callable[[Pool, Random], list[Array]]


def _ordered(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    if rng.random() < 0.5:
        many = rng.randint(1, min(5, x.shape[-1]))
        return list(lax.top_k(decided(x), many))
    axis = some_axis(x, rng)
    order = jnp.argsort(decided(x), axis=axis)
    return [rng.choice((jnp.sort(decided(x), axis=axis), jnp.take_along_axis(x, order, axis)))]


def _ranked(pool: Pool, rng: Random) -> list[Array]:
    """A value minus a quantile of all its elements, or minus elements of some ranks."""
    x = pool.real(rng, 2)
    order = decided(x).ravel()
    share = rng.random()
    chosen = (
        jnp.quantile(order, share),
        jnp.median(order),
        jnp.mean(jnp.sort(order)[-min(3, order.size) :]),
        jnp.sort(order)[int(share * order.size)],
    )
    return [jnp.tanh(x - rng.choice(chosen))]


def _extremes(pool: Pool, rng: Random) -> list[Array]:
    """Extremes of a value along two dimensions; their derivatives compare the value with both."""
    x = decided(pool.real(rng, 2))
    one, other = rng.sample(range(x.ndim), 2)
    first, second = rng.choices((jnp.min, jnp.max), k=2)
    return [first(x, axis=one) + jnp.mean(jnp.tanh(second(x, axis=other)))]


def _arranged(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    axis = some_axis(x, rng)
    order = rng.sample(range(x.ndim), x.ndim)
    size = x.shape[axis]
    part = rng.choice([n for n in range(1, size + 1) if size % n == 0])
    divided = (*x.shape[:axis], part, size // part, *x.shape[axis + 1 :])
    joined = (*x.shape[: max(axis - 1, 0)], -1, *x.shape[axis + 1 :])
    edges = [(0, 0, 0)] * x.ndim
    edges[axis] = (rng.randint(-1 if size > 3 else 0, 2), rng.randint(0, 2), rng.randint(0, 1))
    begin, step = rng.randrange(size), rng.randint(1, 2)
    return [
        rng.choice(
            (
                jnp.transpose(x, order),
                x.reshape(divided),
                x.reshape(joined) if axis else x.reshape(-1),
                jnp.flip(x, axis),
                lax.pad(x, 0.5, edges) if x.size < LARGEST // 3 else x,
                lax.slice_in_dim(x, begin, size, step, axis),
                jnp.roll(x, begin, axis),
            )
        )
    ]


def _joined(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    axis = some_axis(x, rng)
    fitting = [each for each in pool.reals if each.shape == x.shape]
    other = rng.choice([*fitting, jnp.flip(x, axis), jnp.tanh(x.mean(axis, keepdims=True))])
    return [jnp.concatenate([x, other], axis)] if x.size < LARGEST // 2 else [x + ramp(x.shape)]


def _quartered(pool: Pool, rng: Random) -> list[Array]:
    """Corners of a matrix, a matrix of four blocks, or a padded one: cuts along two dimensions."""
    x = pool.real(rng, 2)
    rows, columns = x.shape[-2:]
    chosen = rng.random()
    if chosen < 0.4 and min(rows, columns) > 1:
        r, c = rng.randrange(1, rows), rng.randrange(1, columns)
        corners = [x[..., :r, :c], x[..., r:, c:], x[..., :r, c:]]
        return rng.sample(corners, k=2)
    if chosen < 0.7 and x.size < LARGEST // 4:
        return [jnp.block([[x, jnp.cos(x)], [jnp.sin(x), jnp.tanh(x)]])]
    r, c = rng.randint(1, 3), rng.randint(0, 3)
    edges = [*[(0, 0)] * (x.ndim - 2), (r, c), (c, r)]
    return [jnp.pad(x, edges) if x.size < LARGEST // 2 else jnp.cos(x)]


def _gathered(pool: Pool, rng: Random) -> list[Array]:
    x, index = pool.real(rng), pool.index(rng).reshape(-1)[:60]
    axis = some_axis(x, rng)
    if x.size // x.shape[axis] * index.size > LARGEST:
        index = index[:3]
    index = index % x.shape[axis]
    rows = jnp.expand_dims(index, tuple(range(1, x.ndim)))
    chosen = rng.random()
    if chosen < 0.4:
        return [jnp.take(x, index, axis)]
    if chosen < 0.7:
        return [jnp.take_along_axis(jnp.moveaxis(x, axis, 0), rows, 0)]
    return [x.at[(slice(None),) * axis + (index,)].get(mode="fill", fill_value=0.5)]


def _scattered(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    (index,) = positions(pool, rng)
    index = jnp.resize(index.reshape(-1), (x.shape[0],)) % 9
    total = jnp.zeros((9, *x.shape[1:])).at[index].add(x)
    chosen = rng.random()
    if chosen < 0.4:
        return [bounded(total)]
    if chosen < 0.7:
        return [bounded(jax.ops.segment_sum(x, index, 9))]
    counted = jax.nn.one_hot(index, 9, dtype=x.dtype)
    return [bounded(jnp.tensordot(counted, x, (0, 0)) / 4)]


def _moved(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    start = pool.index(rng).reshape(-1)[0]
    axis = some_axis(x, rng)
    part = lax.dynamic_slice_in_dim(x, start, max(1, x.shape[axis] // 2), axis)
    return [rng.choice((part, lax.dynamic_update_slice_in_dim(x, jnp.cos(part), start, axis)))]


def _factored(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng, 2)
    n = min(x.shape[-2], 6)
    some = jnp.tanh(x[..., :n, :])
    positive = some @ jnp.swapaxes(some, -1, -2) / x.shape[-1] + 2 * jnp.eye(n)
    side = jnp.swapaxes(x, -1, -2) @ jnp.ones((x.shape[-2], n)) / x.shape[-2]
    side = jnp.swapaxes(side, -1, -2)
    low = jnp.linalg.cholesky(positive)
    choices: tuple[Callable[[], Array], ...] = (
        lambda: low,
        lambda: jax.scipy.linalg.solve_triangular(low, side, lower=True),
        lambda: jnp.linalg.solve(positive, side),
        lambda: jnp.linalg.slogdet(positive)[1],
        lambda: jnp.linalg.inv(positive),
        lambda: jnp.linalg.norm(some, axis=-1) + 0.0 * some[..., 0] if x.shape[-1] > 1 else low,
    )
    return [rng.choice(choices[:5] if x.shape[-1] < 2 else choices)()]


def _convolved(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    x = x.reshape(-1, x.shape[-1])
    signal, features = jnp.stack([x, jnp.cos(x)], 1), rng.randint(1, 4)
    taps = rng.randint(1, min(3, x.shape[-1]))
    kernel = jnp.sin(jnp.arange(1.0, features * 2 * taps + 1)).reshape(features, 2, taps)
    stride, padding = rng.randint(1, 2), rng.choice(("SAME", "VALID"))
    return [bounded(lax.conv(signal, kernel, (stride,), padding))]


def _drawn(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    key = jax.random.key(rng.randrange(100))
    drawn: Any = rng.choice((jax.random.uniform, jax.random.normal))
    kept = jax.random.bernoulli(key, 0.7, x.shape)
    return [rng.choice((x + drawn(key, x.shape), jnp.where(kept, x / 0.7, 0)))]


def _like(x: Array, values: Sequence[Array]) -> Array:
    """A value of the shape of `x` that depends on it and on all `values`."""
    return bounded(reduce(jnp.add, [jnp.mean(jnp.cos(value)) for value in values], x))


def _called(pool: Pool, rng: Random) -> list[Array]:
    """Operations inside jit, remat, or a function with a derivative of its own."""
    x, seed = pool.real(rng), rng.random()

    def inside(x: Array) -> Array:
        return _like(x, _some(Pool(reals=[x]), Random(seed)))

    @jax.custom_vjp
    def own(x: Array) -> Array:
        return inside(x)

    own.defvjp(lambda x: (own(x), x), lambda x, g: (g * jnp.cos(x),))

    @jax.custom_jvp
    def tangent(x: Array) -> Array:
        return inside(x)

    tangent.defjvp(lambda primals, tangents: (tangent(*primals), 0.5 * tangents[0]))
    return [rng.choice((jax.jit(inside), jax.checkpoint(inside), own, tangent))(x)]


def _looped(pool: Pool, rng: Random) -> list[Array]:
    """Operations inside scan, fori_loop, or cond."""
    x, seed = pool.real(rng, 2), rng.random()
    remat = rng.random() < 0.4

    def inside(x: Array) -> Array:
        return _like(x, _some(Pool(reals=[x]), Random(seed)))

    body = jax.checkpoint(inside) if remat else inside
    chosen = rng.random()
    if chosen < 0.3:
        rows = x[:4]
        last, stacked = lax.scan(
            lambda carry, row: ((carry := body(carry + row.mean())), carry.mean(-1)),
            x.mean(0, keepdims=True) + jnp.sin(jnp.arange(12.0)).reshape(12, *(1,) * (x.ndim - 1)),
            rows,
            reverse=rng.random() < 0.5,
        )
        return [last, stacked]
    if chosen < 0.7:
        return [lax.fori_loop(0, 3, lambda turn, x: body(x * (1 + 0.1 * turn)), x)]
    return [lax.cond(jnp.mean(decided(x)) > 0.15, body, lambda x: jnp.tanh(inside(x)), x)]


def _stepped(pool: Pool, rng: Random) -> list[Array]:
    """A state after many steps; its gradient keeps values that checkpoints can compute again."""
    x, seed = pool.real(rng, 2), rng.random()
    many, last = rng.choice((12, 25, 36)), rng.random() < 0.5
    state = bounded(x.reshape(-1, x.shape[-1]))[: max(1, LARGEST // (8 * x.shape[-1]))]

    def step(state: Array, turn: Array) -> tuple[Array, Array]:
        moved = 0.9 * state + 0.1 * jnp.sin(turn)
        after = _like(moved, _some(Pool(reals=[moved]), Random(seed)))
        return after, after.mean(0) if last else after[0]

    return list(lax.scan(step, state, jnp.arange(float(many)), reverse=rng.random() < 0.5))


def _recurred(pool: Pool, rng: Random) -> list[Array]:
    """A state that takes in one column of a value, often of an argument, in each step."""
    x = pool.reals[0] if rng.random() < 0.7 else pool.real(rng, 2)
    last, dim = rng.random() < 0.5, rng.randrange(1, x.ndim)

    def step(state: Array, row: Array) -> tuple[Array, Array]:
        after = jnp.tanh(0.7 * state + row)
        return after, after.mean() if last else after

    start = jnp.zeros_like(x.take(0, dim))
    return list(lax.scan(step, start, jnp.moveaxis(x, dim, 0), reverse=rng.random() < 0.5))


def _some(pool: Pool, rng: Random) -> list[Array]:
    """One or two simple operations in a row."""
    for _ in range(rng.randint(1, 2)):
        pool.add(rng.choice(SIMPLE)(pool, rng))
    return pool.reals[1:] or pool.reals


OPERATIONS: Final[Mapping[str, Operation]] = {
    "pointwise": pointwise,
    "outer": outer,
    "matched": matched,
    "contracted": contracted,
    "attended": attended,
    "reduced": reduced,
    "normalised": normalised,
    "accumulated": accumulated,
    "ordered": _ordered,
    "ranked": _ranked,
    "extremes": _extremes,
    "positions": positions,
    "compared": compared,
    "selected": selected,
    "arranged": _arranged,
    "joined": _joined,
    "quartered": _quartered,
    "gathered": _gathered,
    "scattered": _scattered,
    "moved": _moved,
    "factored": _factored,
    "convolved": _convolved,
    "drawn": _drawn,
    "called": _called,
    "looped": _looped,
    "stenciled": stenciled,
    "stepped": _stepped,
    "recurred": _recurred,
}
