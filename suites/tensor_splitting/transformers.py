"""Transformers: the encoder of the paper's experiment, and a decoder as LLM code is written.

The encoder is a Python list of layers, normalised after each part, with no remat. The decoder scans
over stacked layers with remat, and ends in a softmax over a vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from suites.tensor_splitting.attention import Attend, attention, ways_to_attend
from suites.tensor_splitting.problems import Function, Problem, array, normal

Weights = dict[str, Any]
Layer = Callable[[Weights, jax.Array], jax.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerSizes:
    """Dimensions; a loop by hand takes ``rows`` queries at a time."""

    batch: int
    sequence: int
    layers: int = 4
    width: int = 128
    heads: int = 8
    hidden: int = 512
    vocabulary: int = 1024
    rows: int = 128
    dtype: Any = np.float32

    @property
    def tokens(self) -> tuple[int, int]:
        """Dimensions of a batch of tokens."""
        return self.batch, self.sequence

    def layer(self, *stacked: int) -> Weights:
        """Shapes of one layer's weights, or of several stacked."""
        of = partial(array, *stacked, dtype=self.dtype)
        square = of(self.width, self.width)
        return {
            **dict.fromkeys(("query", "key", "value", "out"), square),
            **dict.fromkeys(("gain1", "bias1", "gain2", "bias2", "down_bias"), of(self.width)),
            "up": of(self.width, self.hidden),
            "up_bias": of(self.hidden),
            "down": of(self.hidden, self.width),
        }


def encoder_problem(sizes: TransformerSizes) -> Problem:
    """The encoder's forward pass: weights and ``[batch, sequence, width]`` → the same."""
    arguments = (
        [sizes.layer()] * sizes.layers,
        array(*sizes.tokens, sizes.width, dtype=sizes.dtype),
    )
    return Problem(
        plain=partial(encoder, encoder_layer(sizes, attention)),
        ways={
            "checkpoint": partial(encoder, jax.checkpoint(encoder_layer(sizes, attention))),
            **_by_attention(sizes, lambda attend: partial(encoder, encoder_layer(sizes, attend))),
        },
        arguments=arguments,
        values=partial(_encoder_values, arguments),
    )


def decoder_problem(sizes: TransformerSizes) -> Problem:
    """The decoder's loss: weights, tokens and the tokens to predict → scalar."""
    tokens = array(*sizes.tokens, dtype=np.int32)
    embedding = array(sizes.vocabulary, sizes.width, dtype=sizes.dtype)
    weights = {"embedding": embedding, "layers": sizes.layer(sizes.layers)}
    return Problem(
        plain=partial(decoder_loss, decoder_layer(sizes, attention)),
        ways=_by_attention(
            sizes, lambda attend: partial(decoder_loss, decoder_layer(sizes, attend))
        ),
        arguments=(weights, tokens, tokens),
        values=partial(_decoder_values, sizes.vocabulary, weights, tokens),
    )


def encoder(layer: Layer, layers: list[Weights], x: jax.Array) -> jax.Array:
    """The layers, one after the other."""
    for weights in layers:
        x = layer(weights, x)
    return x


def encoder_layer(sizes: TransformerSizes, attend: Attend) -> Layer:
    """Attention, then a feed-forward part; each is added to its input, and the sum normalised."""

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        attended = _attended(sizes, attend, weights, x)
        x = _normalised(x + attended, weights["gain1"], weights["bias1"])
        return _normalised(x + _fed_forward(weights, x), weights["gain2"], weights["bias2"])

    return layer


def decoder_loss(
    layer: Layer, weights: Weights, tokens: jax.Array, following: jax.Array
) -> jax.Array:
    """The mean of −log p of the following tokens."""
    step = jax.checkpoint(lambda x, weights: (layer(weights, x), None), prevent_cse=False)
    x, _ = lax.scan(step, weights["embedding"][tokens], weights["layers"])
    log_p = jax.nn.log_softmax(x @ weights["embedding"].T, axis=-1)
    return -jnp.mean(jnp.take_along_axis(log_p, following[..., None], axis=-1))


def decoder_layer(sizes: TransformerSizes, attend: Attend) -> Layer:
    """Attention, then a feed-forward part; each takes its input normalised and is added to it."""

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        before = _normalised(x, weights["gain1"], weights["bias1"])
        x = x + _attended(sizes, attend, weights, before)
        return x + _fed_forward(weights, _normalised(x, weights["gain2"], weights["bias2"]))

    return layer


def _attended(sizes: TransformerSizes, attend: Attend, weights: Weights, x: jax.Array) -> jax.Array:
    def heads(weight: jax.Array) -> jax.Array:
        return (x @ weight).reshape(*sizes.tokens, sizes.heads, -1).swapaxes(1, 2)

    q, k, v = (heads(weights[name]) for name in ("query", "key", "value"))
    attended = attend(q, k, v, causal=True).swapaxes(1, 2)
    return attended.reshape(x.shape) @ weights["out"]


def _fed_forward(weights: Weights, x: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(x @ weights["up"] + weights["up_bias"])
    return hidden @ weights["down"] + weights["down_bias"]


def _normalised(x: jax.Array, gain: jax.Array, bias: jax.Array) -> jax.Array:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-6) * (1 + gain) + bias


def _by_attention(
    sizes: TransformerSizes, model: Callable[[Attend], Function]
) -> dict[str, Function]:
    return {name: model(attend) for name, attend in ways_to_attend(sizes.rows).items()}


def _encoder_values(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    generator = np.random.default_rng(0)
    weights, x = arguments
    return normal(generator, weights, scale=0.1), normal(generator, x)


def _decoder_values(vocabulary: int, weights: Weights, tokens: Any) -> tuple[Any, ...]:
    generator = np.random.default_rng(0)
    drawn = generator.integers(0, vocabulary, (2, *tokens.shape), dtype=np.int32)
    return normal(generator, weights, scale=0.1), drawn[0], drawn[1]
