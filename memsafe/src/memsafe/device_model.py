"""Cost model of each kind of device: rates per second, and fixed costs in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jax import Device

__all__ = ["CPU", "DeviceModel", "model_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """Numbers of a kind of device; only ratios to the time of a whole program are used.

    Attributes:
        products: Operations of matrix products per second.
        memory: Bytes per second that kernels read and write; infinite: only elements count.
        host: Bytes per second to the host's memory, or back.
        kernel_s: Seconds that a kernel takes, whatever it does.
        step_s: Seconds to begin one step of a loop.
        cached: Time of an element of a slice, as a share of that of an element of a whole array.
        slice_bytes: Bytes of a slice that keep the device busy. Larger slices are not faster.
        multiple: Multiple to which the length of a slice is rounded.
        copies_transposed: Whether its compiler copies a whole argument that a loop reads
            transposed.
        has_libraries: Whether libraries compute parts of its programs, in memory of their own.
        fuses: Whether its compiler computes pointwise values inside what reads them.
    """

    products: float
    memory: float
    host: float
    kernel_s: float
    step_s: float
    cached: float
    slice_bytes: float
    multiple: int
    copies_transposed: bool = False
    has_libraries: bool = False
    fuses: bool = True

    @property
    def byte(self) -> float:
        """Operations in the time of one byte that a kernel reads or writes.

        A whole number, so that sums of costs are exact, and equal plans stay equal.
        """
        return float(round(self.products / self.memory))

    @property
    def host_byte(self) -> float:
        """Operations in the time of one byte that goes to the host's memory or comes back."""
        return self.products / self.host

    @property
    def kernel(self) -> float:
        """Operations in the time of a kernel that does nothing."""
        return self.kernel_s * self.products

    @property
    def step(self) -> float:
        """Operations in the time that it takes to begin a step."""
        return self.step_s * self.products


_LINK = 55.3e9
"""Bytes a second each way over PCIe 5.0 × 16, measured on an H200 (docs/device.md)."""

CPU = DeviceModel(
    products=1e12,
    memory=float("inf"),
    host=_LINK,
    kernel_s=0.0,
    step_s=5e-6,
    cached=0.5,
    slice_bytes=16e6,
    multiple=8,
    has_libraries=True,
)
"""A step takes 5 µs at 10¹² operations a second. Kernels do not count.

XLA makes one kernel of a small loop: 70,000 steps take 1.8 ms. With a GPT's products of 49 kB,
32,000 steps take 1.3 s. Slices stay in the caches: the gradient of t-SNE takes 0.2 times its time
as written with 2.3 times its operations, most of which read or write elements (3,000 points, slices
of 2 MB; 2 cores, jax 0.10.2, 2026-11-26).
"""

GPU = DeviceModel(
    products=240e12,
    memory=3.8e12,
    host=_LINK,
    kernel_s=4e-6,
    step_s=0.0,
    cached=1.0,
    slice_bytes=128e6,
    multiple=8,
    copies_transposed=True,
)
"""Measured on an H200 (jax 0.11.2, 2026-11-26, docs/device.md).

`products` is the rate of a step of suite scan_offload's program, `memory` that of copying kernels.
4 µs a kernel fit the times of 16 plans best. The mean error of their predicted times, over the
times of their programs, is 15 % (absolute logarithms; 45 % at worst, for a solve with a triangular
matrix in a loop). Without memory and kernels the error was 18 % (54 % at worst).

A recurrent network of 64 steps reads its inputs [4,096, 64, 128] transposed. Its gradient in 8
slices takes 339 MB, because the inputs are copied to another layout before the loop. It takes
205 MB if the slices keep the layout of the inputs (compiled for an H200, jax 0.10.2; jax 0.12.0.1
copies nothing). For a TPU both take 134.5 MB.
"""

TPU = DeviceModel(
    products=197e12,
    memory=819e9,
    host=_LINK,
    kernel_s=0.0,
    step_s=1e-6,
    cached=1.0,
    slice_bytes=128e6,
    multiple=128,
)
"""Products and memory by the data sheet of a TPU v5e. The rest is not measured."""

_BY_PLATFORM = {"cpu": CPU, "gpu": GPU, "tpu": TPU}


def model_of(device: Device) -> DeviceModel:
    """The model for the platform of `device`; that of a GPU for an unknown platform."""
    return _BY_PLATFORM.get(device.platform, GPU)
