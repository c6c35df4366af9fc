"""The losses of the networks of ``sizes`` as functions in torch, as torch users write them."""

from collections.abc import Callable
from typing import Any, Final

import torch  # noqa: TID251 — it is compared with.
from torch.nn import functional  # noqa: TID251

from benchmarks.peers.sizes import HEADS


def mlp(weights: Any, x: Any) -> Any:
    """The mean square of the last layer's output."""
    for weight in weights["layers"]:
        x = functional.gelu(x @ weight, approximate="tanh")
    return (x**2).mean()


def _convolved(weights: Any, x: Any, stride: int = 1) -> Any:
    kernel = weights["kernel"]
    made = functional.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
    scale, shift = weights["scale"], weights["shift"]
    return functional.batch_norm(made, None, None, scale, shift, training=True)


def resnet(weights: Any, x: Any, labels: Any) -> Any:
    """The cross-entropy of ten classes."""
    x = functional.relu(_convolved(weights["stem"], x))
    for block in weights["blocks"]:
        stride = 2 if "shortcut" in block else 1
        made = functional.relu(_convolved(block["first"], x, stride))
        beside = _convolved(block["shortcut"], x, stride) if "shortcut" in block else x
        x = functional.relu(beside + _convolved(block["second"], made))
    return functional.cross_entropy(x.mean((2, 3)) @ weights["head"], labels)


def _normalised(x: Any) -> Any:
    return functional.layer_norm(x, x.shape[-1:])


def _attended(weights: Any, x: Any, seen: Any) -> Any:
    batch, length, width = x.shape
    heads = (x @ weights["qkv"]).reshape(batch, length, 3, HEADS, width // HEADS)
    query, key, value = heads.permute(2, 0, 3, 1, 4)
    scores = query @ key.transpose(-1, -2) / (width // HEADS) ** 0.5
    scores = torch.where(seen, scores, -1e9)
    made = torch.softmax(scores, -1) @ value
    return made.transpose(1, 2).reshape(x.shape) @ weights["out"]


def decoder(weights: Any, tokens: Any, labels: Any) -> Any:
    """The cross-entropy of the next tokens; attention keeps all scores."""
    x = weights["embedding"][tokens]
    place = torch.arange(tokens.shape[1])
    seen = place <= place[:, None]
    for layer in weights["layers"]:
        x = x + _attended(layer, _normalised(x), seen)
        hidden = functional.gelu(_normalised(x) @ layer["up"], approximate="tanh")
        x = x + hidden @ layer["down"]
    logits = _normalised(x) @ weights["head"]
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


LOSSES: Final[dict[str, Callable[..., Any]]] = {"MLP": mlp, "ResNet": resnet, "decoder": decoder}
