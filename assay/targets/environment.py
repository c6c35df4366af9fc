"""The environment of a process that compiles for given targets. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from assay.model.target import Kind, TargetName
from assay.targets.presence import missing_device

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
