"""Which devices and compilers are present, what is missing, and the environment to compile in.

Standard library only.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from assay.model.target import Kind, TargetName, Unavailable

NO_JAX: Final = Unavailable("jax is not installed", "pip install jax")
NO_LIBTPU: Final = Unavailable("the TPU compiler, libtpu, is not installed", "pip install libtpu")
NO_GPU_PLUGIN: Final = Unavailable(
    "jax's CUDA plugin is not installed",
    "pip install jax-cuda13-plugin jax-cuda13-pjrt, in the version of jaxlib",
)
GPU_PLUGIN_FAILED: Final = Unavailable(
    "jax's CUDA plugin is installed, but did not start",
    "set JAX_PLATFORMS=cpu before jax starts, which is enough to compile; to run on a GPU, read "
    "what jax prints about the plugin",
)
NO_PTX_ASSEMBLER: Final = Unavailable(
    "the GPU compiler finds no PTX assembler (ptxas)",
    "pip install nvidia-cuda-nvcc nvidia-nvvm",
)
NO_LIBDEVICE: Final = Unavailable(
    "the GPU compiler finds no libdevice", "pip install nvidia-cuda-nvcc nvidia-nvvm"
)
_NO_DEVICE: Final[Mapping[Kind, Unavailable]] = MappingProxyType(
    {
        "gpu": Unavailable(
            "this machine shows no NVIDIA GPU",
            "run where /dev/nvidiactl exists, or take a compile-only target such as gpu-h100:8",
        ),
        "tpu": Unavailable(
            "this machine shows no TPU",
            "run on a TPU machine, or take a compile-only target such as tpu-v5e:2x4",
        ),
    }
)
_KNOWN_ERRORS: Final[Mapping[str, Unavailable]] = MappingProxyType(
    {
        "No module named 'jax": NO_JAX,
        "JAX TPU support not installed": NO_LIBTPU,
        "topology not implemented for cuda": NO_GPU_PLUGIN,
        "No PTX compilation provider": NO_PTX_ASSEMBLER,
        "libdevice not found": NO_LIBDEVICE,
        "Unknown backend": Unavailable(
            "jax was started without this platform",
            "name it in JAX_PLATFORMS, or unset that, before jax starts",
        ),
        "multi-process lockfile": Unavailable(
            "another process holds libtpu's lock",
            "set ALLOW_MULTIPLE_LIBTPU_LOAD=1 before jax starts (assay does, if it may)",
        ),
        "chips_per_host_bounds": Unavailable(
            "the TPU compiler cannot lay the topology out on hosts",
            "ask for sizes that divide into hosts of 2x2, such as 2x4 or 2x2x2",
        ),
        "GpuTargetConfigProto": Unavailable(
            "this jaxlib cannot read the device model",
            "remove the fields that it does not know from the model's [compiler.fields]",
        ),
    }
)
"""Faults of an installation, by the part of an error's message that identifies them."""


def recognise(text: str) -> Unavailable | None:
    """The fault of the installation that an error's `text` shows; None for any other error."""
    found = next((fault for sign, fault in _KNOWN_ERRORS.items() if sign in text), None)
    if found is NO_GPU_PLUGIN and any(map(_installed, _GPU_PLUGINS)):
        found = GPU_PLUGIN_FAILED
    return found and Unavailable(f"{found.reason} ({_first_line(text)})", found.remedy)


def diagnose(error: BaseException) -> Unavailable:
    """Why a target that raised `error` is unavailable, with a remedy where the cause is known."""
    text = str(error) or type(error).__name__
    return recognise(str(error)) or Unavailable(
        f"{type(error).__name__}: {_first_line(text)}",
        "read the message; if the target itself is at fault, report it to Assay",
    )


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300]


_GPU_PLUGINS: Final = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
_DEVICE_NODES: Final[Mapping[Kind, tuple[str, ...]]] = MappingProxyType(
    {"gpu": ("nvidiactl", "dxg"), "tpu": ("accel[0-9]*", "vfio/[0-9]*")}
)
_DEVICES = Path("/dev")
_TOOLKITS: Final = (Path("/usr/local/cuda"), Path("/opt/cuda"))


def missing_compiler(kind: Kind) -> Unavailable | None:
    """What is missing to compile for `kind`; None if everything seems to be installed."""
    if not (_installed("jax") and _installed("jaxlib")):
        return NO_JAX
    if kind == "tpu" and not _installed("libtpu"):
        return NO_LIBTPU
    if kind != "gpu":
        return None
    if not any(map(_installed, _GPU_PLUGINS)):
        return NO_GPU_PLUGIN
    if not (_in_cuda("bin/ptxas") or shutil.which("ptxas")):
        return NO_PTX_ASSEMBLER
    return None if _in_cuda("nvvm/libdevice/libdevice.10.bc") else NO_LIBDEVICE


def missing_device(kind: Kind) -> Unavailable | None:
    """Why no device of `kind` is there; None if one is plugged in, and for a CPU."""
    nodes = (path for node in _DEVICE_NODES.get(kind, ()) for path in _DEVICES.glob(node))
    return None if any(nodes) else _NO_DEVICE.get(kind)


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


PLATFORM: Final[Mapping[Kind, str]] = MappingProxyType({"gpu": "cuda", "tpu": "tpu", "cpu": "cpu"})
"""Jax's word for each kind, in the order of JAX_PLATFORMS: the first is jax's default."""
_DEFAULT_CPU_DEVICES: Final = 8
# libtpu without a TPU: no metadata server, no lock, and a type, for it complains without one.
_LIBTPU_ALONE: Final = MappingProxyType(
    {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
)


def environment(names: Iterable[TargetName], base: Mapping[str, str]) -> dict[str, str]:
    """`base` with the variables that the targets `names` need; `base` takes precedence.

    An empty JAX_PLATFORMS counts as unset, as it does for jax.
    Names an accelerator's platform only where a device is plugged in: if jax cannot start one
    platform, it does not start the CPU either.
    """
    models = {"cpu", *(name.model for name in names)}
    live = {
        kind: word for kind, word in PLATFORM.items() if kind in models and not missing_device(kind)
    }
    wanted = {"JAX_PLATFORMS": ",".join(live.values()), "TF_CPP_MIN_LOG_LEVEL": "2"}
    if "tpu" not in live:
        wanted |= _LIBTPU_ALONE
    return wanted | {key: value for key, value in base.items() if value or key != "JAX_PLATFORMS"}


def missing_platform(platforms: str) -> Unavailable | None:
    """Why jax starts no platform: JAX_PLATFORMS names one without a device; None for other causes.

    jax (0.10 to 0.12) then raises an AssertionError without a message, or names a library.
    """
    words = [word.strip() for word in platforms.split(",")]
    for kind, word in PLATFORM.items():
        if missing_device(kind) and not {word, kind}.isdisjoint(words):
            return Unavailable(
                f"JAX_PLATFORMS={platforms} names {word}, and this machine shows no such device",
                "unset JAX_PLATFORMS, or name only platforms of this machine, such as cpu",
            )
    return None


def cpu_device_count(names: Iterable[TargetName]) -> int:
    """The virtual CPU devices that `names` need: the most that one asks for, at least 8."""
    sizes = (size for name in names if name.model == "cpu" for size in name.topology)
    return max([_DEFAULT_CPU_DEVICES, *sizes])
