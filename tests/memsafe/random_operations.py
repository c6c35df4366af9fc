"""Operations on whatever values there are, well-conditioned: a result is off by rounding alone.

Decisions (comparisons, orders, largest elements) are made on values with a ramp added, so that no
two of them differ by rounding only; everything else is smooth and bounded.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from random import Random
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import Array, lax

LARGEST: Final = 40_000
"""Elements of the largest value that is made; the ramp repeats after 65,536."""

Operation = Callable[["Pool", Random], list[Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The values that a program has made, by kind."""

    reals: list[Array]
    indices: list[Array] = field(default_factory=list)
    masks: list[Array] = field(default_factory=list)

    def add(self, values: Sequence[Array]) -> None:
        """Takes in new values, or their sums where they are too large."""
        for value in values:
            if value.dtype == jnp.bool_:
                self.masks.append(value)
            elif jnp.issubdtype(value.dtype, jnp.integer):
                self.indices.append(value)
            else:
                self.reals.append(value)

    def real(self, rng: Random, rank: int = 1) -> Array:
        """A value of at least `rank` dimensions, likely one of the last."""
        fitting = [each for each in self.reals if each.ndim >= rank]
        if not fitting:
            one = self.real(rng, rank - 1) if rank > 1 else self.reals[0]
            return one[..., None] + jnp.sin(jnp.arange(5.0))
        return rng.choice(fitting[-3:] if rng.random() < 0.7 else fitting)

    def index(self, rng: Random) -> Array:
        """An array of integers."""
        if not self.indices or rng.random() < 0.3:
            self.add(_positions(self, rng))
        return rng.choice(self.indices)

    def mask(self, rng: Random) -> Array:
        """An array of truth values."""
        if not self.masks or rng.random() < 0.5:
            self.add(_compared(self, rng))
        return rng.choice(self.masks)


def ramp(shape: Sequence[int]) -> Array:
    """Numbers in (0, 0.3), all different, that depend on nothing."""
    position: Any = jnp.int32(0)
    for dim in range(len(shape)):
        position = position * shape[dim] + lax.broadcasted_iota(jnp.int32, tuple(shape), dim)
    return ((position * 40_503) % 65_536 + 1.0) * (0.3 / 65_537) + jnp.zeros(tuple(shape))


def bounded(x: Array) -> Array:
    """Smoothly within ±4."""
    return x * lax.rsqrt(1 + x * x / 16)


def shrunk(x: Array, largest: int, rng: Random) -> Array:
    """`x` with its dimensions reduced until it has at most `largest` elements."""
    while x.size > largest:
        by: Any = rng.choice((jnp.mean, jnp.max, _root_mean_square, jax.nn.logsumexp))
        x = by(x, axis=rng.choice([dim for dim in range(x.ndim) if x.shape[dim] > 1]))
    return x


def _root_mean_square(x: Array, axis: int) -> Array:
    return jnp.sqrt(jnp.mean(x * x, axis=axis) + 0.1)


def _axis(x: Array, rng: Random) -> int:
    return rng.randrange(x.ndim)


def _axes(x: Array, rng: Random) -> tuple[int, ...]:
    return tuple(rng.sample(range(x.ndim), rng.randint(1, x.ndim)))


def _decided(x: Array) -> Array:
    return x + ramp(x.shape)


def _pointwise(pool: Pool, rng: Random) -> list[Array]:
    choices: tuple[Callable[[Array], Array], ...] = (
        jnp.tanh,
        lambda x: jnp.exp(-x * x),
        lambda x: jnp.log1p(x * x),
        lambda x: jnp.sqrt(1 + x * x),
        jax.nn.sigmoid,
        jax.nn.gelu,
        jnp.sin,
        lambda x: lax.erf(x) / (1 + x * x),
        lambda x: jnp.where(_decided(x) > 0, x, 0.1 * x),
        lambda x: jnp.clip(x + ramp(x.shape), -1.0, 1.0),
        lambda x: jnp.maximum(_decided(x), -x),
        lambda x: bounded(x**3),
        lambda x: jnp.expm1(jnp.cos(x)),
    )
    return [rng.choice(choices)(pool.real(rng, 0))]


def _outer(pool: Pool, rng: Random) -> list[Array]:
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


def _matched(pool: Pool, rng: Random) -> list[Array]:
    """A value with one that broadcasts to it: its own reduction, or another of its shape."""
    x = pool.real(rng)
    same = [each for each in pool.reals if each.shape == x.shape]
    other = rng.choice([*same, x.mean(_axes(x, rng), keepdims=True)])
    return [rng.choice((bounded(x * other), bounded(x - other), jnp.hypot(x + 9, other)))]


def _contracted(pool: Pool, rng: Random) -> list[Array]:
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
        return _attended(pool, rng)
    numbers = tuple(tuple(zip(*part, strict=True)) or ((), ()) for part in (over, batch))
    return [bounded(lax.dot_general(x, y, numbers) / math.sqrt(summed))]


def _attended(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng, 2)
    x = x.reshape(-1, x.shape[-1])[: math.isqrt(LARGEST)]
    scores = x @ x.T / math.sqrt(x.shape[-1])
    if rng.random() < 0.5:
        seen = jnp.tril(jnp.ones(scores.shape, bool))
        scores = jnp.where(seen, scores, -1e9)
    return [jax.nn.softmax(scores, axis=-1) @ x]


def _reduced(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    axes, kept = _axes(x, rng), rng.random() < 0.3
    choices: tuple[Callable[..., Array], ...] = (
        jnp.mean,
        lambda x, **k: jnp.max(_decided(x), **k),
        lambda x, **k: jnp.min(_decided(x), **k),
        lambda x, **k: jnp.prod(1 + 0.01 * jnp.tanh(x), **k),
        jnp.var,
        jax.nn.logsumexp,
        lambda x, **k: bounded(jnp.sum(x, **k) / 8),
        lambda x, **k: jnp.sqrt(jnp.sum(x * x, **k) + 0.1) / 8,
    )
    return [rng.choice(choices)(x, axis=axes, keepdims=kept)]


def _normalised(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    axis = _axis(x, rng)
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


def _accumulated(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    axis, reverse = _axis(x, rng), rng.random() < 0.5
    cumulated: Any = rng.choice((lax.cumsum, lax.cummax, lax.cumlogsumexp, lax.cumprod))
    given = 1 + 0.01 * jnp.tanh(x) if cumulated is lax.cumprod else _decided(x)
    return [bounded(cumulated(given, axis=axis, reverse=reverse) / 4)]


def _ordered(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    if rng.random() < 0.5:
        many = rng.randint(1, min(5, x.shape[-1]))
        return list(lax.top_k(_decided(x), many))
    axis = _axis(x, rng)
    order = jnp.argsort(_decided(x), axis=axis)
    return [rng.choice((jnp.sort(_decided(x), axis=axis), jnp.take_along_axis(x, order, axis)))]


def _positions(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    axis = _axis(x, rng)
    found = rng.choice((jnp.argmax, jnp.argmin))(_decided(x), axis=axis)
    changed = rng.choice((found, found * 3 % 7, found ^ 5, jnp.cumsum(found.reshape(-1)) % 11))
    return [changed]


def _compared(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    rows = lax.broadcasted_iota(jnp.int32, x.shape, 0)
    columns = lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
    above = _decided(x) > 0.2
    return [
        rng.choice((above, rows >= columns, above & (rows % 3 > 0), above.any(0), above.all(-1)))
    ]


def _selected(pool: Pool, rng: Random) -> list[Array]:
    x, mask = pool.real(rng), pool.mask(rng)
    if mask.ndim > x.ndim or mask.shape != x.shape[x.ndim - mask.ndim :]:
        (mask,) = _compared(Pool(reals=[x]), rng)
        mask = mask if mask.shape == x.shape else jnp.cos(x) + ramp(x.shape) > 0.4
    return [rng.choice((jnp.where(mask, x, 0.5), x * mask, lax.select(mask & (x < 9), x, -x)))]


def _arranged(pool: Pool, rng: Random) -> list[Array]:
    x = pool.real(rng)
    axis = _axis(x, rng)
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
    axis = _axis(x, rng)
    fitting = [each for each in pool.reals if each.shape == x.shape]
    other = rng.choice([*fitting, jnp.flip(x, axis), jnp.tanh(x.mean(axis, keepdims=True))])
    return [jnp.concatenate([x, other], axis)] if x.size < LARGEST // 2 else [x + ramp(x.shape)]


def _gathered(pool: Pool, rng: Random) -> list[Array]:
    x, index = pool.real(rng), pool.index(rng).reshape(-1)[:60]
    axis = _axis(x, rng)
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
    (index,) = _positions(pool, rng)
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
    axis = _axis(x, rng)
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
    """Something run inside jit, remat, or a function with a derivative of its own."""
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
    """Something run by scan, fori_loop, or cond."""
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
    return [lax.cond(jnp.mean(_decided(x)) > 0.15, body, lambda x: jnp.tanh(inside(x)), x)]


def _some(pool: Pool, rng: Random) -> list[Array]:
    """One or two simple operations in a row."""
    for _ in range(rng.randint(1, 2)):
        pool.add(rng.choice(SIMPLE)(pool, rng))
    return pool.reals[1:] or pool.reals


SIMPLE: Final = (
    _pointwise,
    _outer,
    _matched,
    _contracted,
    _attended,
    _reduced,
    _normalised,
    _accumulated,
    _selected,
)

OPERATIONS: Final[Mapping[str, Operation]] = {
    "pointwise": _pointwise,
    "outer": _outer,
    "matched": _matched,
    "contracted": _contracted,
    "attended": _attended,
    "reduced": _reduced,
    "normalised": _normalised,
    "accumulated": _accumulated,
    "ordered": _ordered,
    "positions": _positions,
    "compared": _compared,
    "selected": _selected,
    "arranged": _arranged,
    "joined": _joined,
    "gathered": _gathered,
    "scattered": _scattered,
    "moved": _moved,
    "factored": _factored,
    "convolved": _convolved,
    "drawn": _drawn,
    "called": _called,
    "looped": _looped,
}
