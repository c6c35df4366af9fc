"""The frameworks by name, imported on first use, and the versions of a toolchain."""

import importlib.metadata
import os
import pkgutil
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from assay.frameworks.framework import Framework, Unsupported
from assay.model.evidence import Toolchain
from assay.model.suggestion import wanted_one_of
from assay.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A framework: its class, the packages of its toolchain, the module it needs, its installation.

    ``keeps_state``: what was compiled and counted for one program affects the next.
    """

    place: str
    packages: tuple[str, ...] = ("jax", "jaxlib")
    needs: str = "jax"
    install: str = "pip install jax"
    keeps_state: bool = False


_ENTRIES = {
    "jax": _Entry(place="assay.frameworks.jax:JaxFramework"),
    "hlo": _Entry(place="assay.frameworks.hlo:HloFramework"),
    "torch_xla": _Entry(
        place="assay.frameworks.torch_xla:TorchXlaFramework",
        # Its own XLA runs the programs; jax's compilers compile for compile-only targets.
        packages=("torch", "torch-xla", "jax", "jaxlib"),
        needs="torch_xla",
        # A reason is part of records and certificates, which name no folder of this machine.
        install="tox run -e torch_xla, or the command that `assay doctor` prints for it (7 GB)",
        keeps_state=True,
    ),
}
KNOWN = tuple(_ENTRIES)
CUDA_PLUGINS = ("jax-cuda13-plugin", "jax-cuda13-pjrt", "jax-cuda12-plugin", "jax-cuda12-pjrt")
"""Packages of jax's GPU compiler. jax uses them only in the version of jaxlib."""
_COMPILER_PACKAGES = {"cuda": (*CUDA_PLUGINS, "nvidia-cuda-nvcc"), "tpu": ("libtpu",)}
PACKAGES = frozenset().union(
    *(entry.packages for entry in _ENTRIES.values()), *_COMPILER_PACKAGES.values()
)
"""Every package that a toolchain of Assay's own frameworks names."""

# From /proc/cpuinfo, widest first; they decide how the CPU compiler vectorises and fuses.
_VECTOR_SETS = ("amx_tile", "avx512f", "avx2", "avx", "sve2", "sve", "asimd")
_CPU_INFO = Path("/proc/cpuinfo")
_FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")


def toolchain(framework: str, backend: str) -> Toolchain:
    """The toolchain that compiles the framework's programs for ``cpu``, ``cuda`` or ``tpu``."""
    own = _ENTRIES[framework].packages if framework in _ENTRIES else (framework,)
    names = (*own, *_COMPILER_PACKAGES.get(backend, ()))
    versions = {name: version for name in names if (version := installed_version(name))}
    if backend == "cpu":
        versions["host-isa"] = host_isa()
    flags = [f"{name}={os.environ[name]}" for name in _FLAG_VARIABLES if os.environ.get(name)]
    return Toolchain(versions=versions, flags=" ".join(flags))


def host_isa() -> str:
    """The host processor's instruction set, which the CPU compiler emits code for."""
    try:
        flags = set(_CPU_INFO.read_text().split())
    except OSError:
        flags = set()
    widest = next((name for name in _VECTOR_SETS if name in flags), "")
    return "-".join(filter(None, (platform.machine(), widest)))


def processor() -> str:
    """The processor's name, or its kind (`x86_64`) if the system tells no name."""
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def host() -> dict[str, str]:
    """The processor, its cores, the system, Python and the time (UTC), by name."""
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "started": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


def installed_version(package: str) -> str:
    """The version of an installed distribution, or the empty string."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def keeps_state(name: str) -> bool:
    """Whether each program of the framework must be observed in a process of its own."""
    return name in _ENTRIES and _ENTRIES[name].keeps_state


def preload(name: str) -> None:
    """Import a framework, as far as a process that only forks may."""
    if name == "torch_xla" and find_spec("torch_xla") is not None:
        from assay.frameworks.torch_xla_internals import import_only

        import_only()


def why_missing(name: str) -> str:
    """That a known framework is not installed, and how to install it; else empty."""
    if name not in _ENTRIES or find_spec(_ENTRIES[name].needs) is not None:
        return ""
    return f"{name} is not installed; {_ENTRIES[name].install}"


def framework(name: str, target: Target) -> Framework:
    """The framework of that name, for the target's devices.

    Raises:
        Unsupported: no framework has that name, or it is not installed.
        TargetUnavailable: the target has no devices here.
    """
    if name not in _ENTRIES:
        raise Unsupported(f"got framework {name!r}, {wanted_one_of(name, sorted(_ENTRIES))}")
    if missing := why_missing(name):
        raise Unsupported(missing)
    preload(name)
    kind: type[Framework] = pkgutil.resolve_name(_ENTRIES[name].place)
    return kind(target.devices(), target.platform)
