"""A U-Net like that of Stable Diffusion 1, with one block where the original has two or three."""

from typing import Any, Final

import jax  # noqa: TID251 — what memsafe is given is written in JAX.
import jax.numpy as jnp  # noqa: TID251
from jax import Array, lax  # noqa: TID251

from benchmarks.peers.jax_networks import attention, floats, in_heads, normalised, of_heads

CHANNELS: Final = (320, 640, 1_280, 1_280)
"""Channels by level. Each level halves the rows of the level before; the last has no attention."""
LATENT: Final = 4
HEADS: Final = 8
GROUPS: Final = 32
OF_TIME: Final = 1_280
TEXT: Final = (77, 768)


def _convolved(x: Array, kernel: Array, stride: int = 1) -> Array:
    side = kernel.shape[0] // 2
    made: Array = lax.conv_general_dilated(
        x[None],
        kernel,
        (stride, stride),
        [(side, side)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )[0]
    return made


def _grouped(x: Array) -> Array:
    """Group norm of an image ``[rows, columns, channels]``."""
    groups = x.reshape(*x.shape[:2], GROUPS, -1)
    mean = groups.mean((0, 1, 3), keepdims=True)
    variance = groups.var((0, 1, 3), keepdims=True)
    return ((groups - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)


def _residual(weights: Any, x: Array, time: Array) -> Array:
    made = _convolved(jax.nn.silu(_grouped(x)), weights["first"])
    made = made + jax.nn.silu(time) @ weights["time"]
    made = _convolved(jax.nn.silu(_grouped(made)), weights["second"])
    return made + (x @ weights["shortcut"] if "shortcut" in weights else x)


def _attended(weights: Any, x: Array, other: Array) -> Array:
    """Attention of each row of ``x`` to the rows of ``other``."""
    query = in_heads(x @ weights["query"], HEADS)
    key, value = (in_heads(other @ weights[name], HEADS) for name in ("key", "value"))
    return of_heads(attention(query, key, value)) @ weights["out"]


def _transformer(weights: Any, image: Array, text: Array) -> Array:
    x = (_grouped(image) @ weights["in"]).reshape(-1, image.shape[-1])
    normed = normalised(x)
    x = x + _attended(weights["self"], normed, normed)
    x = x + _attended(weights["cross"], normalised(x), text)
    hidden, gate = jnp.split(normalised(x) @ weights["up"], 2, -1)
    x = x + (hidden * jax.nn.gelu(gate)) @ weights["down"]
    return image + x.reshape(image.shape) @ weights["end"]


def _level(weights: Any, x: Array, time: Array, text: Array) -> Array:
    x = _residual(weights["residual"], x, time)
    return _transformer(weights["transformer"], x, text) if "transformer" in weights else x


def unet(weights: Any, latent: Array, time: Array, text: Array) -> Array:
    """The noise in a latent image ``[rows, columns, channels]``."""
    x = _convolved(latent, weights["in"])
    kept = [x]
    for level in weights["down"]:
        x = _level(level, x, time, text)
        kept.append(x)
        if "smaller" in level:
            x = _convolved(x, level["smaller"], 2)
    x = _level(weights["middle"], x, time, text)
    x = _residual(weights["after"], x, time)
    for level in weights["up"]:
        x = _level(level, jnp.concatenate([x, kept.pop()], -1), time, text)
        if "larger" in level:
            x = _convolved(jnp.repeat(jnp.repeat(x, 2, 0), 2, 1), level["larger"])
    x = jnp.concatenate([x, kept.pop()], -1)
    return _convolved(jax.nn.silu(_grouped(x)), weights["out"])


def _kernel(given: int, made: int) -> tuple[int, ...]:
    return (3, 3, given, made)


def _residual_weights(given: int, made: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "first": _kernel(given, made),
        "second": _kernel(made, made),
        "time": (OF_TIME, made),
    }
    return found | ({} if given == made else {"shortcut": (given, made)})


def _transformer_weights(width: int) -> dict[str, Any]:
    square, of_text = (width, width), (TEXT[1], width)
    return {
        "in": square,
        "self": dict.fromkeys(("query", "key", "value", "out"), square),
        "cross": {"query": square, "key": of_text, "value": of_text, "out": square},
        "up": (width, 8 * width),
        "down": (4 * width, width),
        "end": square,
    }


def _level_weights(given: int, made: int, *, attends: bool) -> dict[str, Any]:
    found = {"residual": _residual_weights(given, made)}
    return found | ({"transformer": _transformer_weights(made)} if attends else {})


def unet_arguments(rows: int) -> tuple[Any, ...]:
    """The arguments for a square latent image; the image itself has eight times as many rows."""
    last, deepest = len(CHANNELS) - 1, CHANNELS[-1]
    down, up = [], []
    for at, made in enumerate(CHANNELS):
        given = CHANNELS[max(at - 1, 0)]
        smaller = {} if at == last else {"smaller": _kernel(made, made)}
        down.append(_level_weights(given, made, attends=at < last) | smaller)
        above = CHANNELS[min(at + 1, last)]
        larger = {} if at == 0 else {"larger": _kernel(made, made)}
        up.append(_level_weights(above + made, made, attends=at < last) | larger)
    weights = {
        "in": _kernel(LATENT, CHANNELS[0]),
        "down": down,
        "middle": _level_weights(deepest, deepest, attends=True),
        "after": _residual_weights(deepest, deepest),
        "up": up[::-1],
        "out": _kernel(2 * CHANNELS[0], LATENT),
    }
    return floats(weights), *map(floats, ((rows, rows, LATENT), (OF_TIME,), TEXT))
