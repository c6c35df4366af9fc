"""Small staged programs, each of which must fail a claim. Imports PyTorch."""

from typing import Any

import torch
from torch_xla.experimental.scan import scan
from torch_xla.experimental.stablehlo_custom_call import place_to_device, place_to_host

from assay import Program


def many_rows(rows: int, width: int) -> Program:
    """Asks for all rows of a product before it gives the first number, and gives few."""

    def columns(x: Any, weight: Any) -> Any:
        return torch.softmax(x @ weight, 0).sum(1)

    shapes = ((rows, width), (width, width))
    arguments = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes)
    return Program(function=columns, arguments=tuple(arguments))


def by_the_host() -> Program:
    """Takes its input to the host's memory and back; a GPU's compiler finds that this is no use."""

    def there_and_back(x: Any) -> Any:
        return place_to_device(place_to_host(torch.sin(x))) + 1

    return Program(function=there_and_back, arguments=(torch.empty(1024, 1024, device="meta"),))


def by_the_host_in_loops() -> Program:
    """Keeps what each iteration is given in the host's memory, for a second loop to fetch."""

    def keep(carry: Any, weight: Any) -> tuple[Any, Any]:
        return torch.sin(carry @ weight), place_to_host(carry)

    def fetch(carry: Any, kept: Any) -> tuple[Any, None]:
        return torch.sin(carry + place_to_device(kept)), None

    def there_and_back(x: Any, weights: Any) -> Any:
        carry, stack = scan(keep, x, weights)
        return scan(fetch, carry, stack)[0]

    shapes = ((1024, 1024), (4, 1024, 1024))
    arguments = (torch.empty(shape, device="meta") for shape in shapes)
    return Program(function=there_and_back, arguments=tuple(arguments))


def factor() -> Program:
    """A factor of 0.3, which is data to PyTorch/XLA: it is sent."""

    def scaled(x: Any) -> Any:
        return x * 0.3

    return Program(function=scaled, arguments=(torch.empty(1024, device="meta"),))


def mismatched() -> Program:
    """A program whose shapes do not fit together."""

    def added(x: Any) -> Any:
        return x + x.new_zeros(x.shape[0] + 1)

    return Program(function=added, arguments=(torch.empty(8, device="meta"),))
