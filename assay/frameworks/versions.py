"""Versions of the installed packages that decide what is compiled; imports no framework."""

import importlib.metadata
import os

from assay.model.evidence import Toolchain

_FRAMEWORK_PACKAGES = {"jax": ("jax", "jaxlib")}
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
_FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")


def toolchain(framework: str, platform: str) -> Toolchain:
    """The toolchain that compiles the framework's programs for ``cpu``, ``cuda`` or ``tpu``."""
    names = (
        *_FRAMEWORK_PACKAGES.get(framework, (framework,)),
        *_PLATFORM_PACKAGES.get(platform, ()),
    )
    flags = [f"{name}={os.environ[name]}" for name in _FLAG_VARIABLES if os.environ.get(name)]
    found = {name: installed_version(name) for name in names}
    return Toolchain(
        versions={name: version for name, version in found.items() if version},
        flags=" ".join(flags),
    )


def installed_version(package: str) -> str:
    """The version of an installed distribution, or the empty string."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
