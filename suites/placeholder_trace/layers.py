"""The models: decoder layers, and the ways to apply one after the other. Imports PyTorch."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch_xla.experimental.scan import scan
from torch_xla.experimental.scan_layers import scan_layers

from suites.placeholder_trace.sizes import StagedSizes

# ``Any`` is a tensor or a module of PyTorch's, of which no type checker here knows more.


class DecoderLayer(nn.Module):
    """One head of attention and a perceptron of four times the width, each after a LayerNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.projection = nn.Linear(width, width), nn.Linear(width, width)
        self.before_perceptron = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """The layer's result, as large as ``x``."""
        y = self.before_attention(x)
        query, key, value = self.query(y), self.key(y), self.value(y)
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        x = x + self.projection(torch.softmax(scores, -1) @ value)
        return x + self.down(nn.functional.gelu(self.up(self.before_perceptron(x))))


class PlainLayer(nn.Module):
    """The same without biases and norms; the scores' scale is folded into the query's weights.

    A factor other than 0 and 1 is data to PyTorch/XLA: 4 B that staging would send.
    """

    def __init__(self, sizes: StagedSizes) -> None:
        super().__init__()
        width, hidden = sizes.width, sizes.hidden
        self.query, self.key = _matrix(width, width), _matrix(width, width)
        self.value, self.projection = _matrix(width, width), _matrix(width, width)
        self.up, self.down = _matrix(width, hidden), _matrix(hidden, width)

    def forward(self, x: Any) -> Any:
        """The layer's result, as large as ``x``."""
        query, key, value = self.query(x), self.key(x), self.value(x)
        x = x + self.projection(torch.softmax(query @ key.transpose(-1, -2), -1) @ value)
        return x + self.down(nn.functional.gelu(self.up(x)))


class LlamaLayer(nn.Module):
    """Grouped-query attention and a gated perceptron, as Llama 3; without rotary embedding.

    The scores' scale is in the query's weights here too, and √width in the norms': the mean of the
    squares, and its derivative, would send their factors.
    """

    def __init__(self, sizes: StagedSizes) -> None:
        super().__init__()
        width, hidden = sizes.width, sizes.hidden
        self.heads, self.key_value_heads = sizes.heads, sizes.key_value_heads
        of_keys = width // sizes.heads * sizes.key_value_heads
        self.before_attention = nn.Parameter(torch.empty(width))
        self.query, self.projection = _matrix(width, width), _matrix(width, width)
        self.key, self.value = _matrix(width, of_keys), _matrix(width, of_keys)
        self.before_perceptron = nn.Parameter(torch.empty(width))
        self.gate, self.up = _matrix(width, hidden), _matrix(width, hidden)
        self.down = _matrix(hidden, width)

    def forward(self, x: Any) -> Any:
        """The layer's result, as large as ``x``."""
        x = x + self._attention(_normalised(x) * self.before_attention)
        y = _normalised(x) * self.before_perceptron
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))

    def _attention(self, x: Any) -> Any:
        batch, sequence, width = x.shape
        group, of_head = self.heads // self.key_value_heads, width // self.heads
        # [batch, key_value_heads, group × sequence, of_head]: a group's queries share its keys.
        query = self.query(x).view(batch, sequence, self.key_value_heads, group, of_head)
        query = query.permute(0, 2, 3, 1, 4).reshape(batch, self.key_value_heads, -1, of_head)
        key, value = (
            matrix(x).view(batch, sequence, self.key_value_heads, of_head).transpose(1, 2)
            for matrix in (self.key, self.value)
        )
        seen = torch.softmax(query @ key.transpose(-1, -2), -1) @ value
        seen = seen.view(batch, self.key_value_heads, group, sequence, of_head)
        return self.projection(seen.permute(0, 3, 1, 2, 4).reshape(batch, sequence, width))


def _matrix(rows: int, columns: int) -> Any:
    return nn.Linear(rows, columns, bias=False)


def _normalised(x: Any) -> Any:
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def in_a_loop(layers: Sequence[Any], x: Any) -> Any:
    """Each layer by itself; the graph grows with them."""
    for layer in layers:
        x = layer(x)
    return x


def scanned(layers: Sequence[Any], x: Any) -> Any:
    """``scan`` over the layers' parameters, stacked by hand."""
    first = layers[0]

    def one(carry: Any, parameters: Mapping[str, Any]) -> tuple[Any, None]:
        return torch.func.functional_call(first, parameters, (carry,)), None

    each = [dict(layer.named_parameters()) for layer in layers]
    stacks = {name: torch.stack([own[name] for own in each]) for name in each[0]}
    return scan(one, x, stacks)[0]


def layers_scanned(layers: Sequence[Any], x: Any) -> Any:
    """``scan_layers``, which stacks them itself."""
    return scan_layers(layers, x)


def pure_layers_scanned(layers: Sequence[Any], x: Any) -> Any:
    """``scan_layers`` that may keep what it traced; plainly where it knows no such promise."""
    if "is_layer_pure" not in inspect.signature(scan_layers).parameters:
        return scan_layers(layers, x)
    return scan_layers(layers, x, is_layer_pure=True)


def layers_scanned_in_three(layers: Sequence[Any], x: Any) -> Any:
    """Three times ``scan_layers``, each of which traces a layer."""
    for part in range(3):
        x = scan_layers(layers[part::3], x)
    return x


WAYS: Mapping[str, Callable[[Sequence[Any], Any], Any]] = {
    "loop": in_a_loop,
    "scan": scanned,
    "scan-layers": layers_scanned,
    "scan-layers-pure": pure_layers_scanned,
    "scan-in-three": layers_scanned_in_three,
}
"""The ways to apply layers one after the other, by the names of the variants."""
