"""The training loop of a model under XlaFullyShardedDataParallel, world size 1."""

from collections.abc import Mapping
from functools import partial

import torch
import torch_xla
from torch import nn
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel
from torch_xla.distributed.fsdp.utils import BucketizedReduceScatter

from assay import Loop
from suites.fsdp_accumulation.bert import Around, Bert, masked_tokens, own_name
from suites.fsdp_accumulation.sizes import BertSizes, Nesting, Sharding, Training
from suites.fsdp_accumulation.stable_step import backward_on_this_thread


class WithoutTail(BucketizedReduceScatter):
    """The injected defect: a bucket that is not full is never flushed."""

    def flush(self) -> None:
        """Flush only what is above the limit."""
        if self.bucket_watermark > self.bucket_size_bytes:
            super().flush()


def build(sizes: BertSizes, sharding: Sharding, training: Training) -> Loop:
    """The loop, its model on the device with the same values whatever the sharding."""
    torch.manual_seed(0)
    model = _wrapped(sizes, sharding)
    if not sharding.flushes_tail:
        _leave_tails(model, sharding)
    optimiser = _optimiser(model, training)
    return Loop(
        step=_Steps(sizes, model, optimiser, training),
        parameters={own_name(name): each for name, each in model.named_parameters()},
    )


class _Steps:
    """One step at each call, on new tokens."""

    def __init__(
        self,
        sizes: BertSizes,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        training: Training,
    ) -> None:
        self._sizes, self._model, self._optimiser = sizes, model, optimiser
        self._zeroes = training.zeroes
        self._done = 0

    def __call__(self) -> Mapping[str, torch.Tensor]:
        device = torch_xla.device()
        ids, labels = (each.to(device) for each in masked_tokens(self._sizes, self._done))
        self._done += 1
        self._optimiser.zero_grad(set_to_none=not self._zeroes)
        loss = self._model(ids, labels)
        with backward_on_this_thread():
            loss.backward()
        self._optimiser.step()
        torch_xla.sync()
        return {"loss": loss}


def _optimiser(model: nn.Module, training: Training) -> torch.optim.Optimizer:
    if training.adam:
        return torch.optim.AdamW(model.parameters(), lr=training.rate)
    return torch.optim.SGD(model.parameters(), lr=training.rate)


def _wrapped(sizes: BertSizes, sharding: Sharding) -> nn.Module:
    model: nn.Module = Bert(sizes)
    outer: nn.Module = Around(model) if sharding.nesting is Nesting.TWICE else model
    outer = outer.to(torch_xla.device())
    if sharding.nesting is Nesting.NONE:
        return outer
    wrap = partial(
        XlaFullyShardedDataParallel,
        reshard_after_forward=sharding.reshard,
        flatten_parameters=sharding.flatten,
        reduce_scatter_bucket_size_mb=sharding.bucket_mb,
        coalesce_all_gather_ops=sharding.coalesce,
        # Without it there is nothing that could be gathered together.
        shard_param_on_dim_0=sharding.coalesce,
        pin_layout_in_collective_ops=False,
    )
    if sharding.nesting is not Nesting.OUTER:
        for number, layer in enumerate(model.layers):
            model.layers[number] = wrap(layer)
    if isinstance(outer, Around):
        outer.model = wrap(model)
    return wrap(outer)


def _leave_tails(model: nn.Module, sharding: Sharding) -> None:
    for module in model.modules():
        if isinstance(module, XlaFullyShardedDataParallel):
            flushing = module.reduce_scatter_op
            module.reduce_scatter_op = WithoutTail(
                sharding.bucket_mb,
                shard_count=flushing.shard_count,
                groups=flushing.groups,
                pin_layout=flushing.pin_layout,
            )
