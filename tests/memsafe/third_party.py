"""Programs as others write them: a flax model that optax trains, a GPJax bound, a Sinkhorn loop."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import Array

VOCABULARY = 256


class Block(nnx.Module):
    """Attention and a feed-forward network, each after a layer norm and with a residual sum."""

    def __init__(self, width: int, heads: int, rngs: nnx.Rngs) -> None:
        self.before_attention = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.before_feeding = nnx.LayerNorm(width, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x: Array, mask: Array) -> Array:
        x = x + self.attention(self.before_attention(x), mask=mask)
        return x + self.down(nnx.gelu(self.up(self.before_feeding(x))))


class Decoder(nnx.Module):
    """A causal Transformer with tied embeddings: a list of layers, or a scan with remat."""

    def __init__(self, *, layers: int, width: int, heads: int, scanned: bool) -> None:
        rngs = nnx.Rngs(0)
        self.embedding = nnx.Embed(VOCABULARY, width, rngs=rngs)
        self.scanned = scanned
        if scanned:
            stacked = nnx.vmap(lambda rngs: Block(width, heads, rngs), in_axes=0, out_axes=0)
            self.blocks = nnx.split_rngs(splits=layers)(stacked)(rngs)
        else:
            self.blocks = nnx.List([Block(width, heads, rngs) for _ in range(layers)])

    def __call__(self, tokens: Array) -> Array:
        x, mask = self.embedding(tokens), nnx.make_causal_mask(tokens)
        if self.scanned:
            step = nnx.remat(lambda x, block: block(x, mask))
            x = nnx.scan(step, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.blocks)
        else:
            for block in self.blocks:
                x = block(x, mask)
        return self.embedding.attend(x)


def training_step(
    *, sequence: int, layers: int, batch: int = 2, scanned: bool = False
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One step of AdamW on a `Decoder`, and its arguments: state, optimiser state, tokens."""
    graph, state = nnx.split(Decoder(layers=layers, width=32, heads=4, scanned=scanned))
    # The first step of Adam divides a gradient by its own size. A large `eps` keeps a gradient
    # that is only rounding (a key's bias) from becoming ±1.
    optimiser = optax.adamw(1e-3, eps=1e-2)

    def step(state: Any, moments: Any, tokens: Array) -> tuple[Array, Any, Any]:
        def loss(state: Any) -> Array:
            logits = nnx.merge(graph, state)(tokens[:, :-1])
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
            return losses.mean()

        value, gradients = jax.value_and_grad(loss)(state)
        updates, moments = optimiser.update(gradients, moments, state)
        return value, optax.apply_updates(state, updates), moments

    tokens = jax.random.randint(jax.random.key(1), (batch, sequence + 1), 0, VOCABULARY)
    return step, (state, optimiser.init(state), tokens)


def loss_by_index(hidden: Array, embedding: Array, labels: Array) -> Array:
    """The mean of −log p of the labels, taken out of the logarithms of all probabilities."""
    log_p = jax.nn.log_softmax(hidden @ embedding)
    return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], axis=-1))


def loss_by_optax(hidden: Array, embedding: Array, labels: Array) -> Array:
    """The loss of `loss_by_index`, by optax."""
    losses = optax.softmax_cross_entropy_with_integer_labels(hidden @ embedding, labels)
    return losses.mean()


def labelled(*, tokens: int, vocabulary: int, width: int, dtype: Any) -> tuple[Array, ...]:
    """Hidden values, an embedding of a vocabulary, and labels."""
    keys = jax.random.split(jax.random.key(0), 3)
    hidden = jax.random.normal(keys[0], (tokens, width), dtype)
    embedding = 0.1 * jax.random.normal(keys[1], (width, vocabulary), dtype)
    return hidden, embedding, jax.random.randint(keys[2], (tokens,), 0, vocabulary)


def sparse_regression(*, data: int, inducing: int) -> tuple[Callable[..., Array], tuple[Any, ...]]:
    """GPJax's bound of sparse Gaussian process regression, and its family and data."""
    import gpjax

    inputs = jax.random.normal(jax.random.key(0), (data, 3))
    outputs = jnp.sin(inputs.sum(axis=1, keepdims=True))
    prior = gpjax.gps.Prior(
        mean_function=gpjax.mean_functions.Constant(), kernel=gpjax.kernels.RBF(n_dims=3)
    )
    family = gpjax.variational_families.CollapsedVariationalGaussian(
        model=prior * gpjax.likelihoods.Gaussian(), inducing_inputs=inputs[:inducing]
    )

    def negative_bound(family: Any, dataset: Any) -> Array:
        return -gpjax.objectives.collapsed_elbo(family, dataset)

    return negative_bound, (family, gpjax.Dataset(X=inputs, y=outputs))


def transported(x: Array, y: Array, *, costs_once: bool) -> Array:
    """The cost of the entropic transport plan between two clouds, by Sinkhorn in logarithms.

    As ott-jax does it: its `PointCloud` keeps the costs, or computes them in each iteration
    (`batch_size`).
    """
    smoothing = 0.5

    def costs() -> Array:
        return jnp.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)

    kept = costs()

    def softmin(f: Array, g: Array, axis: int) -> Array:
        cost = kept if costs_once else costs()
        excess = (f[:, None] + g[None, :] - cost) / smoothing
        return -smoothing * jax.nn.logsumexp(excess, axis=axis)

    def iterate(_: int, potentials: tuple[Array, Array]) -> tuple[Array, Array]:
        f, g = potentials
        f = f + softmin(f, g, 1) - smoothing * jnp.log(len(x))
        return f, g + softmin(f, g, 0) - smoothing * jnp.log(len(y))

    f, g = jax.lax.fori_loop(0, 10, iterate, (jnp.zeros_like(x[:, 0]), jnp.zeros_like(y[:, 0])))
    return jnp.sum(jnp.exp((f[:, None] + g[None, :] - kept) / smoothing) * kept)
