"""Which devices and compilers are present, what is missing, and the environment to compile in.

Standard library only.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from assay.model.target import Availability, Kind, TargetName, unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One known cause; `sign` is the part of an error's text that gives it away, if any does."""

    reason: str
    remedy: str
    sign: str | None = None

    @property
    def availability(self) -> Availability:
        """The fault as a target reports it."""
        return unavailable(self.reason, self.remedy)


NO_JAX = Fault(
    sign="No module named 'jax",
    reason="jax is not installed",
    remedy="pip install jax",
)
NO_LIBTPU = Fault(
    sign="JAX TPU support not installed",
    reason="the TPU compiler, libtpu, is not installed",
    remedy="pip install libtpu",
)
NO_GPU_PLUGIN = Fault(
    sign="topology not implemented for cuda",
    reason="jax's CUDA plugin is not installed",
    remedy="pip install jax-cuda13-plugin jax-cuda13-pjrt, in the version of jaxlib",
)
NO_PTX_ASSEMBLER = Fault(
    sign="No PTX compilation provider",
    reason="the GPU compiler finds no PTX assembler (ptxas)",
    remedy="pip install nvidia-cuda-nvcc nvidia-nvvm",
)
NO_LIBDEVICE = Fault(
    sign="libdevice not found",
    reason="the GPU compiler finds no libdevice",
    remedy="pip install nvidia-cuda-nvcc nvidia-nvvm",
)
NO_GPU_DEVICE = Fault(
    reason="this machine shows no NVIDIA GPU",
    remedy="run where /dev/nvidiactl exists, or take a compile-only target such as gpu-h100:8",
)
NO_TPU_DEVICE = Fault(
    reason="this machine shows no TPU",
    remedy="run on a TPU machine, or take a compile-only target such as tpu-v5e:2x4",
)
FAULTS = (
    NO_JAX,
    NO_LIBTPU,
    NO_GPU_PLUGIN,
    NO_PTX_ASSEMBLER,
    NO_LIBDEVICE,
    Fault(
        sign="Unknown backend",
        reason="jax was started without this platform",
        remedy="name it in JAX_PLATFORMS, or unset that, before jax starts",
    ),
    Fault(
        sign="multi-process lockfile",
        reason="another process holds libtpu's lock",
        remedy="set ALLOW_MULTIPLE_LIBTPU_LOAD=1 before jax starts (assay does, if it may)",
    ),
    Fault(
        sign="chips_per_host_bounds",
        reason="the TPU compiler cannot lay the topology out on hosts",
        remedy="ask for sizes that divide into hosts of 2x2, such as 2x4 or 2x2x2",
    ),
    Fault(
        sign="GpuTargetConfigProto",
        reason="this jaxlib cannot read the device model",
        remedy="remove the fields that it does not know from the model's [compiler.fields]",
    ),
)


def recognise(error: BaseException) -> Availability | None:
    """The availability that a known fault of the installation amounts to; None for any other."""
    text = str(error)
    for fault in FAULTS:
        if fault.sign is not None and fault.sign in text:
            return unavailable(f"{fault.reason} ({_first_line(text)})", fault.remedy)
    return None


def diagnose(error: BaseException) -> Availability:
    """The availability that `error` amounts to, with a remedy where the cause is known."""
    text = str(error) or type(error).__name__
    return recognise(error) or unavailable(
        f"{type(error).__name__}: {_first_line(text)}",
        "read the message; if the target itself is at fault, report it to Assay",
    )


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300]


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
    """`base` with the variables that the targets `names` need; `base` takes precedence.

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
