"""Forward passes of the four kinds of network that AutoChunk is measured on, as users write them.

Each takes one example in single precision. Its length is a number of tokens of a prompt, patches
of an image, residues, or rows of a latent image. The sizes are those of GPT-2, ViT-B/16,
AlphaFold 2 and Stable Diffusion 1, because the sizes in the paper were not available.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jax  # noqa: TID251 — what memsafe is given is written in JAX.
import jax.numpy as jnp  # noqa: TID251
from jax import Array  # noqa: TID251

from benchmarks.peers.diffusion import unet, unet_arguments
from benchmarks.peers.jax_networks import (
    causal,
    floats,
    in_heads,
    normalised,
    of_heads,
    transformer_layer,
)

LAYERS: Final = 12
WIDTH: Final = 768
HEADS: Final = 12
VOCABULARY: Final = 50_257
PATCH: Final = 16

BLOCKS: Final = 2
"""Number of blocks. AlphaFold has 48, which take the same memory one after another."""
ALIGNED: Final = 128
"""Number of sequences in the alignment."""
OF_ALIGNMENT: Final = 256
OF_PAIR: Final = 128
ALIGNMENT_HEADS: Final = 8
PAIR_HEADS: Final = 4
HEAD_WIDTH: Final = 32
OF_OUTER: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A forward pass, its arguments for each length, and the length at which bytes are compared.

    ``unit`` is the unit of a length.
    """

    run: Callable[..., Any]
    arguments: Callable[[int], tuple[Any, ...]]
    length: int
    unit: str


def _transformer() -> Any:
    layer = {
        "qkv": (WIDTH, 3 * WIDTH),
        "out": (WIDTH, WIDTH),
        "up": (WIDTH, 4 * WIDTH),
        "down": (4 * WIDTH, WIDTH),
    }
    return [layer] * LAYERS


def gpt(weights: Any, tokens: Array) -> Array:
    """The logits of the token after a prompt."""
    x = weights["embedding"][tokens] + weights["places"]
    for layer in weights["layers"]:
        x = transformer_layer(layer, x, HEADS, causal(len(tokens)))
    return normalised(x[-1]) @ weights["embedding"].T


def _gpt_arguments(length: int) -> tuple[Any, ...]:
    weights = {
        "embedding": (VOCABULARY, WIDTH),
        "places": (length, WIDTH),
        "layers": _transformer(),
    }
    return floats(weights), jax.ShapeDtypeStruct((length,), jnp.int32)


def vit(weights: Any, patches: Array) -> Array:
    """The scores of 1,000 classes, by the mean of all patches."""
    x = patches @ weights["patch"] + weights["places"]
    for layer in weights["layers"]:
        x = transformer_layer(layer, x, HEADS)
    return normalised(x).mean(0) @ weights["head"]


def _vit_arguments(length: int) -> tuple[Any, ...]:
    weights = {
        "patch": (3 * PATCH**2, WIDTH),
        "places": (length, WIDTH),
        "layers": _transformer(),
        "head": (WIDTH, 1_000),
    }
    return floats(weights), floats((length, 3 * PATCH**2))


def evoformer(weights: Any, alignment: Array, pairs: Array) -> tuple[Array, Array]:
    """Alignment ``[sequences, residues, …]`` and pairs ``[residues, residues, …]`` after blocks."""
    for block in weights:
        bias = jnp.moveaxis(normalised(pairs) @ block["bias"], -1, 0)
        alignment = alignment + _gated(block["rows"], alignment, ALIGNMENT_HEADS, bias)
        columns = alignment.swapaxes(0, 1)
        columns = columns + _gated(block["columns"], columns, ALIGNMENT_HEADS)
        alignment = columns.swapaxes(0, 1)
        alignment = alignment + _transition(block["alignment"], alignment)
        pairs = pairs + _outer_mean(block["outer"], alignment)
        for name, along in (("outgoing", "ikc,jkc->ijc"), ("incoming", "kic,kjc->ijc")):
            pairs = pairs + _triangle_product(block[name], pairs, along)
        pairs = pairs + _triangle_attention(block["start"], pairs)
        across = pairs.swapaxes(0, 1)
        pairs = (across + _triangle_attention(block["end"], across)).swapaxes(0, 1)
        pairs = pairs + _transition(block["pairs"], pairs)
    return alignment, pairs


def _gated(weights: Any, x: Array, heads: int, bias: Array | float = 0.0) -> Array:
    """Attention along the second dimension, with a gate."""
    x = normalised(x)
    query, key, value = (in_heads(x @ weights[name], heads) for name in ("query", "key", "value"))
    scores = query @ key.swapaxes(-1, -2) / HEAD_WIDTH**0.5 + bias
    made = of_heads(jax.nn.softmax(scores) @ value)
    return (jax.nn.sigmoid(x @ weights["gate"]) * made) @ weights["out"]


def _transition(weights: Any, x: Array) -> Array:
    return jax.nn.relu(normalised(x) @ weights["up"]) @ weights["down"]


def _outer_mean(weights: Any, alignment: Array) -> Array:
    x = normalised(alignment)
    outer = jnp.einsum("sic,sjd->ijcd", x @ weights["left"], x @ weights["right"])
    return outer.reshape(*outer.shape[:2], -1) @ weights["out"] / len(alignment)


def _triangle_product(weights: Any, pairs: Array, along: str) -> Array:
    x = normalised(pairs)
    left, right = (
        jax.nn.sigmoid(x @ weights[f"{side} gate"]) * (x @ weights[side])
        for side in ("left", "right")
    )
    made = normalised(jnp.einsum(along, left, right)) @ weights["out"]
    return jax.nn.sigmoid(x @ weights["gate"]) * made


def _triangle_attention(weights: Any, pairs: Array) -> Array:
    bias = jnp.moveaxis(normalised(pairs) @ weights["bias"], -1, 0)
    return _gated(weights, pairs, PAIR_HEADS, bias)


def _evoformer_block() -> Any:
    def attends(width: int, heads: int) -> dict[str, Any]:
        inner = heads * HEAD_WIDTH
        names = ("query", "key", "value", "gate")
        return dict.fromkeys(names, (width, inner)) | {"out": (inner, width)}

    def transition(width: int) -> dict[str, Any]:
        return {"up": (width, 4 * width), "down": (4 * width, width)}

    sides = ("left", "right", "left gate", "right gate", "gate", "out")
    triangle = attends(OF_PAIR, PAIR_HEADS) | {"bias": (OF_PAIR, PAIR_HEADS)}
    outer = dict.fromkeys(("left", "right"), (OF_ALIGNMENT, OF_OUTER))
    return {
        "bias": (OF_PAIR, ALIGNMENT_HEADS),
        "rows": attends(OF_ALIGNMENT, ALIGNMENT_HEADS),
        "columns": attends(OF_ALIGNMENT, ALIGNMENT_HEADS),
        "alignment": transition(OF_ALIGNMENT),
        "outer": outer | {"out": (OF_OUTER**2, OF_PAIR)},
        **dict.fromkeys(("outgoing", "incoming"), dict.fromkeys(sides, (OF_PAIR, OF_PAIR))),
        **dict.fromkeys(("start", "end"), triangle),
        "pairs": transition(OF_PAIR),
    }


def _evoformer_arguments(length: int) -> tuple[Any, ...]:
    weights = [_evoformer_block()] * BLOCKS
    shapes = (ALIGNED, length, OF_ALIGNMENT), (length, length, OF_PAIR)
    return floats(weights), *map(floats, shapes)


NETWORKS: Final = {
    "GPT": Network(run=gpt, arguments=_gpt_arguments, length=16_384, unit="tokens"),
    "ViT": Network(run=vit, arguments=_vit_arguments, length=16_384, unit="patches"),
    "evoformer": Network(
        run=evoformer, arguments=_evoformer_arguments, length=512, unit="residues"
    ),
    "U-Net": Network(run=unet, arguments=unet_arguments, length=128, unit="rows"),
}
