"""The losses of the networks of ``sizes`` in JAX, as JAX users write them."""

from collections.abc import Callable
from typing import Any, Final

import jax  # noqa: TID251 — what memsafe is given is written in JAX.
import jax.numpy as jnp  # noqa: TID251
from jax import Array, lax  # noqa: TID251

from benchmarks.peers.sizes import HEADS, Training


def mlp(weights: Any, x: Array) -> Array:
    """The mean square of the last layer's output."""
    for weight in weights["layers"]:
        x = jax.nn.gelu(x @ weight)
    return jnp.mean(x**2)


def _convolved(weights: Any, x: Array, stride: int = 1) -> Array:
    kernel = weights["kernel"]
    side = kernel.shape[-1] // 2
    numbers = ("NHWC", "OIHW", "NHWC")
    made = lax.conv_general_dilated(
        x, kernel, (stride, stride), [(side, side)] * 2, dimension_numbers=numbers
    )
    mean, variance = made.mean((0, 1, 2)), made.var((0, 1, 2))
    scaled: Array = (made - mean) * lax.rsqrt(variance + 1e-5) * weights["scale"]
    return scaled + weights["shift"]


def resnet(weights: Any, x: Array, labels: Array) -> Array:
    """The cross-entropy of ten classes."""
    x = jax.nn.relu(_convolved(weights["stem"], jnp.moveaxis(x, 1, -1)))
    for block in weights["blocks"]:
        stride = 2 if "shortcut" in block else 1
        made = jax.nn.relu(_convolved(block["first"], x, stride))
        beside = _convolved(block["shortcut"], x, stride) if "shortcut" in block else x
        x = jax.nn.relu(beside + _convolved(block["second"], made))
    return _cross_entropy(x.mean((1, 2)) @ weights["head"], labels)


def _cross_entropy(logits: Array, labels: Array) -> Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -jnp.mean(chosen)


def normalised(x: Array) -> Array:
    """Layer norm without weights."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5)


def in_heads(x: Array, heads: int) -> Array:
    """``[…, length, width]`` as ``[…, heads, length, width of one]``."""
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


def of_heads(x: Array) -> Array:
    """The inverse of `in_heads`."""
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], -1)


def attention(query: Array, key: Array, value: Array, seen: Array | None = None) -> Array:
    """Softmax of the scores of each head times the values; only ``seen`` scores count."""
    scores = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
    scores = scores if seen is None else jnp.where(seen, scores, -1e9)
    return jax.nn.softmax(scores) @ value


def causal(length: int) -> Array:
    """A mask in which each position sees itself and the positions before."""
    place = jnp.arange(length)
    return place <= place[:, None]


def transformer_layer(weights: Any, x: Array, heads: int, seen: Array | None = None) -> Array:
    """Attention and a feed-forward part, each with a layer norm before and a residual sum after."""
    parts = jnp.split(normalised(x) @ weights["qkv"], 3, -1)
    query, key, value = (in_heads(part, heads) for part in parts)
    x = x + of_heads(attention(query, key, value, seen)) @ weights["out"]
    fed: Array = jax.nn.gelu(normalised(x) @ weights["up"]) @ weights["down"]
    return x + fed


def decoder(weights: Any, tokens: Array, labels: Array) -> Array:
    """The cross-entropy of the next tokens; attention keeps all scores."""
    x = weights["embedding"][tokens]
    seen = causal(tokens.shape[1])
    for layer in weights["layers"]:
        x = transformer_layer(layer, x, HEADS, seen)
    return _cross_entropy(normalised(x) @ weights["head"], labels)


LOSSES: Final[dict[str, Callable[..., Array]]] = {"MLP": mlp, "ResNet": resnet, "decoder": decoder}


def floats(shapes: Any) -> Any:
    """A tree of shapes as single-precision `jax.ShapeDtypeStruct`s."""
    return jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32),
        shapes,
        is_leaf=lambda node: isinstance(node, tuple),
    )


def arguments(training: Training) -> tuple[Any, ...]:
    """The arguments of a network's loss, as `jax.ShapeDtypeStruct`s."""
    given = jax.ShapeDtypeStruct(training.given, "int32" if training.is_of_tokens else "float32")
    found = floats(training.weights), given
    if training.labels is None:
        return found
    return *found, jax.ShapeDtypeStruct(training.labels, jnp.int32)
