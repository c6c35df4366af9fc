"""Which devices and compilers are present, and the environment of a process that compiles.

Standard library only.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from assay.model.target import Kind, TargetName
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


_PLATFORM: Mapping[Kind, str] = MappingProxyType({"gpu": "cuda", "tpu": "tpu"})
_DEFAULT_CPU_DEVICES = 8
_QUIET = MappingProxyType({"TF_CPP_MIN_LOG_LEVEL": "2"})
# libtpu without a TPU: no metadata server, no lock, and a type so that it does not complain.
_LIBTPU_ALONE = MappingProxyType(
    {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
)


def environment(names: Iterable[TargetName], base: Mapping[str, str]) -> dict[str, str]:
    """`base` and what the targets `names` need besides; what `base` sets, stays.

    Live platforms are asked of jax only where a device is plugged in: one that jax cannot
    start would take the CPU down with it.
    """
    live = live_kinds(names)
    wanted = {"JAX_PLATFORMS": ",".join([*(_PLATFORM[kind] for kind in live), "cpu"]), **_QUIET}
    if "tpu" not in live:
        wanted |= _LIBTPU_ALONE
    return wanted | dict(base)


def live_kinds(names: Iterable[TargetName]) -> tuple[Kind, ...]:
    """The accelerators among `names` that are live and plugged in."""
    asked = {name.model for name in names}
    return tuple(kind for kind in _PLATFORM if kind in asked and missing_device(kind) is None)


def cpu_device_count(names: Iterable[TargetName]) -> int:
    """The virtual CPU devices that `names` need: the most that one asks for, at least 8."""
    asked = [size for name in names if name.model == "cpu" for size in name.topology]
    return max(_DEFAULT_CPU_DEVICES, *asked) if asked else _DEFAULT_CPU_DEVICES
