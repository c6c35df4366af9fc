"""Sizes of networks that two frameworks train, and shapes of their weights. Imports neither.

Kernels are ``[made, given, height, width]``. Everything but tokens and labels is in single
precision.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Shape = tuple[int, ...]
Shapes = dict[str, Any]

LAYERS: Final = 8
"""Layers of the decoder."""
KERNEL: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A network to train: shapes of its weights and of its input.

    ``labels`` is the shape of the integers to predict, None if there are none.
    """

    weights: Shapes
    given: Shape
    is_of_tokens: bool = False
    labels: Shape | None = None


def mlp() -> Training:
    """16 square layers of 2,048 units, on 8,192 examples."""
    width, examples = 2_048, 8_192
    weights = {"layers": [(width, width)] * 16}
    return Training(weights=weights, given=(examples, width))


def resnet() -> Training:
    """ResNet-18 with batch norm for images of 32 × 32 (CIFAR-10), on 512 images."""
    stages, images = (64, 128, 256, 512), 512
    blocks = []
    given = stages[0]
    for made in stages:
        blocks += [_block(given, made), _block(made, made)]
        given = made
    weights = {"stem": _convolution(3, stages[0]), "blocks": blocks, "head": (given, 10)}
    return Training(weights=weights, given=(images, 3, 32, 32), labels=(images,))


def _block(given: int, made: int) -> Shapes:
    block = {"first": _convolution(given, made), "second": _convolution(made, made)}
    return block | ({} if given == made else {"shortcut": _convolution(given, made, 1)})


def _convolution(given: int, made: int, side: int = KERNEL) -> Shapes:
    return {"kernel": (made, given, side, side), "scale": (made,), "shift": (made,)}


def decoder() -> Training:
    """8 layers of width 1,024, 16 heads, on 8 sequences of 1,024 tokens (vocabulary of 32,768)."""
    width, tokens, vocabulary = 1_024, (8, 1_024), 32_768
    layer = {
        "qkv": (width, 3 * width),
        "out": (width, width),
        "up": (width, 4 * width),
        "down": (4 * width, width),
    }
    weights = {
        "embedding": (vocabulary, width),
        "layers": [layer] * LAYERS,
        "head": (width, vocabulary),
    }
    return Training(weights=weights, given=tokens, is_of_tokens=True, labels=tokens)


HEADS: Final = 16
"""Heads of the decoder's attention."""
NETWORKS: Final[dict[str, Callable[[], Training]]] = {
    "MLP": mlp,
    "ResNet": resnet,
    "decoder": decoder,
}
BUDGETS: Final = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)
"""Budgets in torch's own unit: shares of what the program keeps as written."""
