"""How ``scan`` makes the tensors that it traces its function on, and how it once did.

``scan`` looks ``create_placeholder_tensor`` up at each call, so another function can stand in.
"""

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
import torch_xla
from torch_xla.core import xla_builder


def as_in_2_6() -> None:
    """Uninitialised tensors of the host, copied to the device: PyTorch/XLA 2.6.0's own words."""

    def sent(shape: Sequence[int], dtype: Any) -> Any:
        return torch.empty(tuple(shape), dtype=dtype).to(torch_xla.device())

    xla_builder.create_placeholder_tensor = sent


def empty_on_the_device() -> None:
    """The fix that suggests itself: it sends nothing, and computes something else.

    ``torch.empty`` on the device is no data but an operation, so the function that ``scan`` traces
    has fewer parameters than it is given.
    """

    def unsent(shape: Sequence[int], dtype: Any) -> Any:
        return torch.empty(tuple(shape), dtype=dtype, device=torch_xla.device())

    if hasattr(xla_builder, "create_placeholder_tensor"):
        xla_builder.create_placeholder_tensor = unsent
        return
    # Before there was such a function, ``scan`` called ``torch.empty`` itself, and alone may not.
    own = ModuleType("torch")
    vars(own).update(vars(torch) | {"empty": unsent})
    import_module("torch_xla.experimental.scan").torch = own  # type: ignore[attr-defined] # 2.6's
