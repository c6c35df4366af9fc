"""The training loop of a model under SPMD: FSDPv2, or the same model with no array sharded."""

from collections.abc import Mapping

import numpy as np
import torch
import torch_xla
import torch_xla.runtime as xr
from torch import nn
from torch_xla.distributed import spmd
from torch_xla.experimental.spmd_fully_sharded_data_parallel import (
    SpmdFullyShardedDataParallel,
)

from assay import Loop
from suites.fsdp_accumulation.bert import Bert, masked_tokens, own_name
from suites.fsdp_accumulation.sizes import BertSizes, SpmdSharding, Training
from suites.fsdp_accumulation.stable_step import backward_on_this_thread

_AXIS = "fsdp"


def build(sizes: BertSizes, sharding: SpmdSharding, training: Training) -> Loop:
    """The loop on all virtual devices, its model with the same values whatever the sharding."""
    count = xr.global_runtime_device_count()
    mesh = spmd.Mesh(np.arange(count), (count,), (_AXIS,))
    spmd.set_global_mesh(mesh)
    torch.manual_seed(0)
    model: nn.Module = Bert(sizes).to(torch_xla.device())
    if sharding.shards:
        for number, layer in enumerate(model.layers):
            model.layers[number] = _wrapped(layer, mesh)
        model = _wrapped(model, mesh)
    else:
        _replicate(model, mesh)
    optimiser: torch.optim.Optimizer = (
        torch.optim.AdamW(model.parameters(), lr=training.rate)
        if training.adam
        else torch.optim.SGD(model.parameters(), lr=training.rate)
    )
    step = _Steps(sizes, model, optimiser, mesh, sharding)
    parameters = {own_name(name): each for name, each in model.named_parameters()}
    return Loop(step=step, parameters=parameters)


class _Steps:
    """One step at each call, on new tokens; the optimiser's own step where it is its turn."""

    def __init__(
        self,
        sizes: BertSizes,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        mesh: spmd.Mesh,
        sharding: SpmdSharding,
    ) -> None:
        self._sizes, self._model, self._optimiser = sizes, model, optimiser
        self._mesh, self._sharding = mesh, sharding
        self._done = 0

    def __call__(self) -> Mapping[str, torch.Tensor]:
        device = torch_xla.device()
        ids, labels = (each.to(device) for each in masked_tokens(self._sizes, self._done))
        if self._sharding.shards:
            for each in (ids, labels):
                spmd.mark_sharding(each, self._mesh, (_AXIS, None))
        loss = self._model(ids, labels)
        with backward_on_this_thread():
            loss.backward()
        self._done += 1
        if self._done % self._sharding.steps_an_update == 0:
            self._optimiser.step()
            self._optimiser.zero_grad(set_to_none=True)
        torch_xla.sync()
        return {"loss": loss}


def _replicate(model: nn.Module, mesh: spmd.Mesh) -> None:
    # Unsaid, the first step's results come back with it said, and are compiled for once more.
    for parameter in model.parameters():
        spmd.mark_sharding(parameter, mesh, (None,) * parameter.dim())


def _wrapped(module: nn.Module, mesh: spmd.Mesh) -> nn.Module:
    return SpmdFullyShardedDataParallel(module, mesh=mesh, shard_output=_shard_output)


def _shard_output(output: torch.Tensor, mesh: spmd.Mesh) -> None:
    # The loss has no axis to shard.
    if output.dim():
        spmd.mark_sharding(output, mesh, (_AXIS, *[None] * (output.dim() - 1)))
