"""What is installed and plugged in, seen without starting anything. Standard library only."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from assay.model.target import Kind
from assay.targets.remedies import (
    NO_GPU_DEVICE,
    NO_GPU_PLUGIN,
    NO_JAX,
    NO_LIBDEVICE,
    NO_LIBTPU,
    NO_PTX_ASSEMBLER,
    NO_TPU_DEVICE,
    Fault,
)

_GPU_PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
_DEVICE_NODES: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {"gpu": ("nvidiactl", "dxg"), "tpu": ("accel[0-9]*", "vfio/[0-9]*")}
)
_DEVICES = Path("/dev")
_TOOLKITS = (Path("/usr/local/cuda"), Path("/opt/cuda"))


def missing_compiler(kind: Kind) -> Fault | None:
    """What lacks to compile for `kind`; None if nothing seems to."""
    if not (_installed("jax") and _installed("jaxlib")):
        return NO_JAX
    if kind == "tpu":
        return None if _installed("libtpu") else NO_LIBTPU
    return _missing_for_gpu() if kind == "gpu" else None


def _missing_for_gpu() -> Fault | None:
    if not any(map(_installed, _GPU_PLUGINS)):
        return NO_GPU_PLUGIN
    if not (_in_cuda("bin/ptxas") or shutil.which("ptxas")):
        return NO_PTX_ASSEMBLER
    return None if _in_cuda("nvvm/libdevice/libdevice.10.bc") else NO_LIBDEVICE


def missing_device(kind: Kind) -> Fault | None:
    """The fault if no device of `kind` is plugged in; a CPU always is."""
    if any(path for node in _DEVICE_NODES.get(kind, ()) for path in _DEVICES.glob(node)):
        return None
    return {"gpu": NO_GPU_DEVICE, "tpu": NO_TPU_DEVICE}.get(kind)


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # the parent is missing, or half-imported
        return False


def _in_cuda(file: str) -> bool:
    """Whether `file` is where XLA looks: in NVIDIA's wheels for CUDA 13 and 12, in a toolkit."""
    nvidia = importlib.util.find_spec("nvidia")
    wheels = [Path(folder) for folder in (nvidia and nvidia.submodule_search_locations) or ()]
    roots = [folder / part for folder in wheels for part in ("cu13", "cuda_nvcc")]
    return any((root / file).exists() for root in (*roots, *_TOOLKITS))
