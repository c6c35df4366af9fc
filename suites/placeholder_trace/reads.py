"""Every way to ask for the data of a tensor that has none, and uses that need none.

The table is there without PyTorch, which its functions import when they are called.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What is done to a placeholder of f32."""

    # Of tensors no more is known where PyTorch is not installed, hence Any.
    of: Callable[[Any], Any]
    shape: tuple[int, ...] = (4,)


def _saved(tensor: Any) -> None:
    import io

    import torch

    torch.save(tensor, io.BytesIO())


def _zeros(tensor: Any) -> Any:
    import torch

    return torch.zeros_like(tensor)


def _compared(tensor: Any) -> bool:
    import torch

    return bool(torch.equal(tensor, _zeros(tensor)))


def _run_beside(tensor: Any) -> None:
    import torch_xla

    lazy = tensor * 2
    torch_xla.sync(wait=True)
    del lazy


def _copied_over(tensor: Any) -> Any:
    import torch

    return tensor.copy_(torch.ones(4))


READS: Mapping[str, Read] = {
    "cpu": Read(of=lambda tensor: tensor.cpu()),
    "repr": Read(of=repr),
    "tolist": Read(of=lambda tensor: tensor.tolist()),
    "save": Read(of=_saved),
    "item": Read(of=lambda tensor: tensor.item(), shape=(1,)),
    "clone": Read(of=lambda tensor: tensor.clone().cpu()),
    "equal": Read(of=_compared),
    "nonzero": Read(of=lambda tensor: tensor.nonzero()),
    "sum-with-one": Read(of=lambda tensor: (tensor + 1).cpu()),
    "item-of-sum": Read(of=lambda tensor: (tensor + 1).sum().item()),
    "any-positive": Read(of=lambda tensor: bool((tensor > 0).any())),
    "masked-select": Read(of=lambda tensor: tensor.masked_select(tensor > 0)),
    "sync-beside-lazy-result": Read(of=_run_beside),
}
"""What needs the data. Each must be refused with an exception."""

USES: Mapping[str, Read] = {
    "zeros-like": Read(of=_zeros),
    "copy-over": Read(of=_copied_over),
    "fill": Read(of=lambda tensor: tensor.fill_(3)),
    "deepcopy": Read(of=copy.deepcopy),
}
"""What needs shape and type alone. None may be refused."""


def read_program(name: str) -> Program:
    """Read, and go on with the placeholder: a read that succeeds is not refused by what follows."""
    return _program(READS[name], partial(_after, READS[name].of))


def use_program(name: str) -> Program:
    """The use's own result."""
    return _program(USES[name], USES[name].of)


def _after(read: Callable[[Any], Any], tensor: Any) -> Any:
    read(tensor)
    return tensor


def _program(read: Read, function: Callable[[Any], Any]) -> Program:
    import torch

    return Program(function=function, arguments=(torch.empty(read.shape, device="meta"),))
