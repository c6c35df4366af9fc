"""Training steps on real tensors: forward, backward, and nothing that would change a weight."""

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

import torch
import torch_xla

from assay import Loop
from suites.placeholder_trace import tracing
from suites.placeholder_trace.layers import WAYS, DecoderLayer
from suites.placeholder_trace.sizes import LayerSizes

FAKES: Mapping[str, Callable[[], None]] = {
    "": lambda: None,
    "old": tracing.as_in_2_6,
    "empty": tracing.empty_on_the_device,
}
"""What ``scan`` traces on, by name; empty for what the installed PyTorch/XLA does."""


def build(way: str, sizes: LayerSizes, fakes: str) -> Loop:
    """The loop: every step gives its loss, and for each layer all gradients in one array."""
    FAKES[fakes]()
    device = torch_xla.device()
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([DecoderLayer(sizes.width) for _ in range(sizes.layers)])
    layers = layers.to(device)
    inputs = {
        batch: torch.randn(batch, sizes.sequence, sizes.width).to(device)
        for batch in sorted(set(sizes.batches))
    }
    batches = cycle(sizes.batches)

    def step() -> Mapping[str, Any]:
        layers.zero_grad(set_to_none=True)
        result = WAYS[way](layers, inputs[next(batches)])
        loss = (result * result).mean()
        loss.backward()
        torch_xla.sync()
        return {"loss": loss, **_gradients(layers)}

    return Loop(step=step, parameters=dict(layers.named_parameters()))


def _gradients(layers: Any) -> Mapping[str, Any]:
    """One array a layer: some of its gradients are zero but for rounding, and have no own scale."""
    return {
        f"gradients of layer {number}": torch.cat(
            [parameter.grad.cpu().flatten() for parameter in layer.parameters()]
        )
        for number, layer in enumerate(layers)
    }
