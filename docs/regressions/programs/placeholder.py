"""Tracing a layer for `scan` sends data to the device: https://github.com/pytorch/xla/issues/8612."""

import torch
import torch_xla
from torch_xla.debug import metrics
from torch_xla.experimental.scan import scan


def layer(carry, weight):
    return torch.sin(carry @ weight), carry


def f():
    device = torch_xla.device()
    carry = torch.zeros(64, 64, device=device, requires_grad=True)
    weights = torch.zeros(4, 64, 64, device=device, requires_grad=True)
    torch_xla.sync()
    metrics.clear_all()
    last, _ = scan(layer, carry, weights)
    last.sum().backward()
    tensors_sent = metrics.metric_data("IrValueTensorToXlaData")
    return float(tensors_sent[0]) if tensors_sent else 0.0
