"""Versions of the installed packages that decide what is compiled; imports no framework."""

import importlib.metadata
import os
import platform
from pathlib import Path

from assay.model.evidence import Toolchain

_FRAMEWORK_PACKAGES = {
    "jax": ("jax", "jaxlib"),
    "hlo": ("jax", "jaxlib"),
    # Its own XLA runs the programs; jax's compilers compile them for targets that are not there.
    "torch_xla": ("torch", "torch-xla", "jax", "jaxlib"),
}
_PLATFORM_PACKAGES = {
    "cuda": (
        "jax-cuda13-plugin",
        "jax-cuda13-pjrt",
        "jax-cuda12-plugin",
        "jax-cuda12-pjrt",
        "nvidia-cuda-nvcc",
    ),
    "tpu": ("libtpu",),
}
PACKAGES = frozenset(
    name
    for names in (*_FRAMEWORK_PACKAGES.values(), *_PLATFORM_PACKAGES.values())
    for name in names
)
"""Every package that a toolchain of Assay's own frameworks names."""

# From /proc/cpuinfo, widest first; they decide how the CPU compiler vectorises and fuses.
_VECTOR_SETS = ("amx_tile", "avx512f", "avx2", "avx", "sve2", "sve", "asimd")
_CPU_FLAGS = Path("/proc/cpuinfo")
_FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")


def toolchain(framework: str, backend: str) -> Toolchain:
    """The toolchain that compiles the framework's programs for ``cpu``, ``cuda`` or ``tpu``."""
    names = (
        *_FRAMEWORK_PACKAGES.get(framework, (framework,)),
        *_PLATFORM_PACKAGES.get(backend, ()),
    )
    flags = [f"{name}={os.environ[name]}" for name in _FLAG_VARIABLES if os.environ.get(name)]
    found = {name: installed_version(name) for name in names}
    if backend == "cpu":
        found["host-isa"] = host_isa()
    return Toolchain(
        versions={name: version for name, version in found.items() if version},
        flags=" ".join(flags),
    )


def host_isa() -> str:
    """The host processor's instruction set, which the CPU compiler emits code for."""
    try:
        flags = set(_CPU_FLAGS.read_text().split())
    except OSError:
        flags = set()
    widest = next((name for name in _VECTOR_SETS if name in flags), "")
    return "-".join(filter(None, (platform.machine(), widest)))


def installed_version(package: str) -> str:
    """The version of an installed distribution, or the empty string."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
