"""Programs over all pairs of points, or over rows of a large matrix of features."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax  # noqa: TID251 — what is measured here is JAX itself.
import jax.numpy as jnp  # noqa: TID251
import numpy as np
from jax import lax  # noqa: TID251
from jax.scipy.special import logsumexp  # noqa: TID251

from benchmarks.experts.by_hand import in_blocks, summed
from suites.tensor_splitting.problems import Function, Problem, array, normal_values

BY_HAND = "blocks"


def problem(plain: Function, by_hand: Function, *arguments: Any) -> Problem:
    """A program on normal values; its only way is the program in blocks."""
    return Problem(
        plain=plain,
        ways={BY_HAND: by_hand},
        arguments=arguments,
        values=partial(normal_values, arguments),
    )


def squared_distances(x: jax.Array, y: jax.Array) -> jax.Array:
    """Squared distances of all pairs: [N, D], [M, D] → [N, M]."""
    return jnp.sum(x**2, -1)[:, None] + jnp.sum(y**2, -1)[None, :] - 2 * x @ y.T


def info_nce(pairs: int, width: int, rows: int) -> Problem:
    """The gradients of a contrastive loss between two sets of embeddings (CLIP)."""

    def loss(x: jax.Array, y: jax.Array) -> jax.Array:
        scores = _unit(x) @ _unit(y).T / 0.07
        right = jnp.diagonal(scores)
        return jnp.mean(logsumexp(scores, 0) - right) + jnp.mean(logsumexp(scores, 1) - right)

    def in_rows(x: jax.Array, y: jax.Array) -> Any:
        x, y = _unit(x), _unit(y)
        right = jnp.sum(x * y, -1) / 0.07

        def lost(some: jax.Array, others: jax.Array, right: jax.Array) -> jax.Array:
            return jnp.sum(logsumexp(some @ others.T / 0.07, 1) - right)

        of_x = summed(lambda some, right: lost(some, y, right), rows, x, right)
        of_y = summed(lambda some, right: lost(some, x, right), rows, y, right)
        return (of_x + of_y) / len(x)

    each = array(pairs, width)
    return problem(jax.grad(loss, (0, 1)), jax.grad(in_rows, (0, 1)), each, each)


def _unit(x: jax.Array) -> Any:
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def t_sne(points: int, width: int, rows: int) -> Problem:
    """The gradient of t-SNE's divergence by the embedding, with Gaussian affinities.

    By hand in blocks, the normalising sums move out of the logarithm. So one pass over the pairs
    gives all sums. By hand in two passes, they stay in the logarithm, and the second pass reads
    them.
    """

    def divergence(y: jax.Array, x: jax.Array) -> jax.Array:
        others = 1 - jnp.eye(len(x), dtype=x.dtype)
        p = others * jnp.exp(-squared_distances(x, x) / width)
        q = others / (1 + squared_distances(y, y))
        p, q = p / jnp.sum(p), q / jnp.sum(q)
        return jnp.sum(jnp.where(p > 0, p * (jnp.log(p + 1e-30) - jnp.log(q + 1e-30)), 0))

    def in_rows(y: jax.Array, x: jax.Array) -> Any:
        place = jnp.arange(len(x))

        def sums(y_some: jax.Array, x_some: jax.Array, at: jax.Array) -> tuple[jax.Array, ...]:
            others = (at[:, None] != place).astype(x.dtype)
            log_p, w = -squared_distances(x_some, x) / width, 1 + squared_distances(y_some, y)
            p, q = others * jnp.exp(log_p), others / w
            return jnp.sum(p), jnp.sum(q), jnp.sum(p * (log_p + jnp.log(w)))

        of_p, of_q, both = summed(sums, rows, y, x, place)
        return both / of_p - jnp.log(of_p) + jnp.log(of_q)

    def in_two_passes(y: jax.Array, x: jax.Array) -> Any:
        place = jnp.arange(len(x))

        def affinities(y_some: jax.Array, x_some: jax.Array, at: jax.Array) -> Any:
            others = (at[:, None] != place).astype(x.dtype)
            p = others * jnp.exp(-squared_distances(x_some, x) / width)
            return p, others / (1 + squared_distances(y_some, y))

        of_p, of_q = summed(
            lambda *some: jax.tree.map(jnp.sum, affinities(*some)), rows, y, x, place
        )

        def diverging(*some: jax.Array) -> jax.Array:
            p, q = affinities(*some)
            p, q = p / of_p, q / of_q
            return jnp.sum(jnp.where(p > 0, p * (jnp.log(p + 1e-30) - jnp.log(q + 1e-30)), 0))

        return summed(diverging, rows, y, x, place)

    blocks = problem(
        jax.grad(divergence), jax.grad(in_rows), array(points, 2), array(points, width)
    )
    return replace(blocks, ways={**blocks.ways, "two-passes": jax.grad(in_two_passes)})


def sinkhorn(points: int, rounds: int, rows: int) -> Problem:
    """The dual value of entropic transport between two clouds after ``rounds`` Sinkhorn rounds."""
    epsilon = 0.5

    def soft(x: jax.Array, y: jax.Array, potential: jax.Array) -> jax.Array:
        return -epsilon * logsumexp((potential - squared_distances(x, y)) / epsilon, 1)

    def value(update: Function, x: jax.Array, y: jax.Array) -> jax.Array:
        def one(state: Any, _: None) -> tuple[Any, None]:
            f = update(x, y, state[1])
            return (f, update(y, x, f)), None

        start = jnp.zeros(len(x), x.dtype), jnp.zeros(len(y), y.dtype)
        f, g = lax.scan(one, start, None, length=rounds)[0]
        return jnp.mean(f) + jnp.mean(g)

    def in_rows(x: jax.Array, y: jax.Array, potential: jax.Array) -> Any:
        return in_blocks(lambda some: soft(some, y, potential), rows, x)

    each = array(points, 3)
    return problem(partial(value, soft), partial(value, in_rows), each, each)


def k_means(points: int, clusters: int, width: int, rows: int) -> Problem:
    """One step of Lloyd's algorithm: the nearest center of each point, and the new centers."""

    def counted(x: jax.Array, centers: jax.Array) -> tuple[jax.Array, jax.Array]:
        nearest = jax.nn.one_hot(jnp.argmin(squared_distances(x, centers), 1), clusters)
        return nearest.T @ x, jnp.sum(nearest, 0)

    def step(count: Function, x: jax.Array, centers: jax.Array) -> jax.Array:
        sums, sizes = count(x, centers)
        return jnp.where(sizes[:, None] > 0, sums / jnp.maximum(sizes, 1)[:, None], centers)

    def in_rows(x: jax.Array, centers: jax.Array) -> Any:
        return summed(lambda some: counted(some, centers), rows, x)

    arguments = array(points, width), array(clusters, width)
    return problem(partial(step, counted), partial(step, in_rows), *arguments)


def chamfer(points: int, rows: int) -> Problem:
    """The gradients of the Chamfer distance between two clouds of points."""

    def distance(x: jax.Array, y: jax.Array) -> jax.Array:
        found = jnp.sum((x[:, None] - y) ** 2, -1)
        return jnp.mean(jnp.min(found, 0)) + jnp.mean(jnp.min(found, 1))

    def in_rows(x: jax.Array, y: jax.Array) -> Any:
        def to(others: jax.Array, some: jax.Array) -> jax.Array:
            return jnp.sum(jnp.min(jnp.sum((some[:, None] - others) ** 2, -1), 1))

        of_x, of_y = summed(partial(to, y), rows, x), summed(partial(to, x), rows, y)
        return (of_x + of_y) / len(x)

    each = array(points, 3)
    return problem(jax.grad(distance, (0, 1)), jax.grad(in_rows, (0, 1)), each, each)


def features(points: int, width: int, frequencies: int, rows: int) -> Problem:
    """Regression on random Fourier features: a solve with the Gram matrix of all rows."""

    def sums(w: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        made = jnp.cos(x @ w) / frequencies**0.5
        return made.T @ made, made.T @ y

    def solve(total: Function, w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        gram, right = total(w, x, y)
        regular = gram + 0.1 * jnp.eye(frequencies, dtype=x.dtype)
        return jax.scipy.linalg.solve(regular, right, assume_a="pos")

    def in_rows(w: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        return summed(partial(sums, w), rows, x, y)

    arguments = array(width, frequencies), array(points, width), array(points)
    return problem(partial(solve, sums), partial(solve, in_rows), *arguments)


def attention_edges(nodes: int, edges: int, heads: int, width: int) -> Problem:
    """The gradients of a graph attention layer (GAT) with a message per edge; by hand: by heads."""
    generator = np.random.default_rng(0)
    ends = generator.integers(0, nodes, (2, edges), dtype=np.int32)

    def head(x: jax.Array, w: jax.Array, a: jax.Array, ends: jax.Array) -> jax.Array:
        h = x @ w
        source, target = ends
        score = jax.nn.leaky_relu((h @ a[0])[source] + (h @ a[1])[target], 0.2)
        most = jax.ops.segment_max(score, target, nodes)
        weight = jnp.exp(score - lax.stop_gradient(most)[target])
        total = jax.ops.segment_sum(weight, target, nodes)
        message = h[source] * (weight / total[target])[:, None]
        return jnp.sum(jnp.tanh(jax.ops.segment_sum(message, target, nodes)) ** 2)

    def layer(w: jax.Array, a: jax.Array, x: jax.Array, ends: jax.Array) -> jax.Array:
        return jnp.sum(jax.vmap(head, (None, 0, 0, None))(x, w, a, ends))

    def by_heads(w: jax.Array, a: jax.Array, x: jax.Array, ends: jax.Array) -> Any:
        one = lambda w, a: head(x, w[0], a[0], ends)  # noqa: E731 - a block of one head
        return summed(one, 1, w, a)

    floats = array(heads, width, width), array(heads, 2, width), array(nodes, width)
    return Problem(
        plain=jax.grad(layer, (0, 1)),
        ways={BY_HAND: jax.grad(by_heads, (0, 1))},
        arguments=(*floats, array(2, edges, dtype=np.int32)),
        values=lambda: (*_scaled(floats), ends),
    )


def _scaled(shapes: Any) -> Any:
    return jax.tree.map(lambda each: each / 4, normal_values(shapes))
