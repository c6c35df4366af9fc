"""The frameworks by name, imported on first use, and the versions of a toolchain."""

import importlib.metadata
import os
import platform
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from assay.frameworks.framework import Framework
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


class FrameworkMissing(LookupError):
    """The framework is not installed; the message names the command that installs it."""


def _jax() -> Framework:
    from assay.frameworks.jax import JaxFramework

    return JaxFramework()


def _hlo() -> Framework:
    from assay.frameworks.hlo import HloFramework

    return HloFramework()


def _torch_xla() -> Framework:
    preload("torch_xla")
    from assay.frameworks.torch_xla import TorchXlaFramework

    return TorchXlaFramework()


_FRAMEWORKS: dict[str, Callable[[], Framework]] = {
    "jax": _jax,
    "hlo": _hlo,
    "torch_xla": _torch_xla,
}
_PACKAGE = {"jax": "jax", "hlo": "jaxlib", "torch_xla": "torch_xla"}
_INSTALL = {
    "jax": "pip install jax",
    "hlo": "pip install jax",
    "torch_xla": "tox run -e torch_xla, or pip install 'assay-xla[torch_xla]' (7 GB)",
}
KNOWN = tuple(_FRAMEWORKS)
_KEEPS_STATE = frozenset({"torch_xla"})


def keeps_state(name: str) -> bool:
    """Whether what a framework compiled and counted for one program shows in the next one.

    Its programs are then observed in a process each.
    """
    return name in _KEEPS_STATE


def preload(name: str) -> None:
    """Import a framework, as far as a process that only forks may."""
    if name == "torch_xla" and find_spec("torch_xla") is not None:
        from assay.frameworks.torch_xla_internals import import_only

        import_only()


def why_missing(name: str) -> str:
    """That a known framework is not installed and how to install it, empty if it is there."""
    if name not in _PACKAGE or find_spec(_PACKAGE[name]) is not None:
        return ""
    return f"{name} is not installed; {_INSTALL[name]}"


def framework(name: str) -> Framework:
    """The framework of that name.

    Raises:
        FrameworkMissing: unknown or not installed.
    """
    if name not in _FRAMEWORKS:
        known = ", ".join(sorted(_FRAMEWORKS))
        raise FrameworkMissing(f"got framework {name!r}, wanted one of {known}")
    if missing := why_missing(name):
        raise FrameworkMissing(missing)
    return _FRAMEWORKS[name]()
