"""What a placeholder must be able to stand for while a program is staged. Imports PyTorch."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch_xla
from torch_xla.core import xla_builder

from assay import Loop, Program, Steps

_EDGE = 1 << 19
"""A square of f32 with this edge is 1 TiB."""


def _meta(*shape: int) -> Any:
    return torch.empty(shape, device="meta")


def _difference(left: Any, right: Any) -> Any:
    return left - right


def _difference_with_itself(tensor: Any) -> Any:
    return tensor - tensor


def _gradient(weight: Any, x: Any) -> list[Any]:
    weight.requires_grad_()
    result = torch.tanh(x @ weight)
    loss = (result * result).sum()
    loss.backward()
    return [loss, weight.grad]


def _optimiser_step(weight: Any, x: Any) -> Any:
    optimiser = torch.optim.SGD([weight], lr=1.0)
    (x @ weight).sum().backward()
    optimiser.step()
    return weight


def _total(tensor: Any) -> Any:
    return tensor.sum()


_STAGED: Mapping[str, tuple[Any, ...]] = {
    "two-of-one-shape": (_difference, _meta(4), _meta(4)),
    "one-used-twice": (_difference_with_itself, _meta(4)),
    "gradient": (_gradient, _meta(3, 3), _meta(5, 3)),
    "optimiser-step": (_optimiser_step, torch.nn.Parameter(_meta(3, 3)), _meta(5, 3)),
    "one-tebibyte": (_total, _meta(_EDGE, _EDGE)),
}
"""A function of placeholders by name, and of what shapes they are."""


def stage(name: str) -> Program:
    """The staged program of that name."""
    function, *arguments = _STAGED[name]
    return Program(function=function, arguments=tuple(arguments))


def hash_of(pair: str) -> Program:
    """A step that gives the hash of a graph which it stages and drops again."""
    return Program(steps=Steps(count=1, build=partial(_hashing, _PAIRS[pair])))


def _hashing(pair: Callable[[], tuple[Any, Any]]) -> Loop:
    def step() -> Mapping[str, Any]:
        left, right = pair()
        # The key under which PyTorch/XLA caches what it compiled; no public name gives it.
        key = torch_xla._XLAC._get_graph_hash([left - right])  # noqa: SLF001
        return {"hash of the graph": torch.tensor(list(key), dtype=torch.uint8)}

    return Loop(step=step)


def _placeholder() -> Any:
    return xla_builder.create_placeholder_tensor((4,), torch.float32)


def _two_placeholders() -> tuple[Any, Any]:
    return _placeholder(), _placeholder()


def _one_placeholder_twice() -> tuple[Any, Any]:
    one = _placeholder()
    return one, one


def _two_of_data() -> tuple[Any, Any]:
    pair = torch.rand(4).to(torch_xla.device()), torch.rand(4).to(torch_xla.device())
    torch_xla.sync(wait=True)
    return pair


_PAIRS: Mapping[str, Callable[[], tuple[Any, Any]]] = {
    "placeholders": _two_placeholders,
    "one placeholder twice": _one_placeholder_twice,
    "data": _two_of_data,
}
