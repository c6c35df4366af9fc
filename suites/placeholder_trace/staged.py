"""Programs staged on placeholders: forward and backward of layers that no memory here holds."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from assay import Program
from suites.placeholder_trace.layers import WAYS, LlamaLayer, PlainLayer
from suites.placeholder_trace.loops import FAKES
from suites.placeholder_trace.sizes import StagedSizes

_LAYERS: Mapping[str, Callable[[StagedSizes], Any]] = {"plain": PlainLayer, "llama": LlamaLayer}


def staged_program(kind: str, way: str, sizes: StagedSizes, fakes: str) -> Program:
    """Loss and all gradients, of bf16 parameters and activations."""
    function = partial(_loss_and_gradients, kind, way, sizes, fakes)
    layers = [dict(_on_meta(kind, sizes).named_parameters()) for _ in range(sizes.layers)]
    shape = (sizes.batch, sizes.sequence, sizes.width)
    x = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    return Program(function=function, arguments=(layers, x))


def _on_meta(kind: str, sizes: StagedSizes) -> Any:
    with torch.device("meta"):
        return _LAYERS[kind](sizes).to(torch.bfloat16)


def _loss_and_gradients(
    kind: str,
    way: str,
    sizes: StagedSizes,
    fakes: str,
    parameters: Sequence[Mapping[str, Any]],
    x: Any,
) -> list[Any]:
    FAKES[fakes]()
    layers = [_on_meta(kind, sizes) for _ in parameters]
    for layer, own in zip(layers, parameters, strict=True):
        layer.load_state_dict(own, assign=True)
    result = WAYS[way](layers, x).float()
    # A sum, and a product: a mean or a power would send its number of elements or exponent.
    loss = (result * result).sum()
    loss.backward()
    return [loss, *(parameter.grad for layer in layers for parameter in layer.parameters())]
