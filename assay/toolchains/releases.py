"""Releases: which versions of a component exist, and what is installed for each."""

import json
import os
import shutil
import subprocess
import sys
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from packaging.version import InvalidVersion, Version

from assay.toolchains.environments import CannotMake, Environment, environment, find_uv
from assay.toolchains.recipe import Recipe, checked

COMPONENTS: Final = ("jax", "jaxlib", "libtpu", "plugin", "torch_xla")
_PACKAGES: Final = MappingProxyType({"plugin": ("jax-cuda12-plugin", "jax-cuda12-pjrt")})
# CUDA 12 plugins exist for each release of jax, CUDA 13 plugins only from 0.7.2 on.
_FOR_GPU: Final = ("jax-cuda12-plugin", "jax-cuda12-pjrt")
_ASSEMBLER: Final = "nvidia-cuda-nvcc-cu12"
_PYTHONS: Final = ("3.11", "3.12", "3.13")
_LIST_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One version of the component, with everything else that is installed.

    ``jax`` is the jax that a component other than jax is installed with; empty for the newest.
    ``also`` are the user's further packages.
    """

    component: str
    version: str
    platform: str
    jax: str = ""
    also: tuple[str, ...] = ()

    def recipe(self, python: str) -> Recipe:
        """The environment of the release: packages that were released together."""
        pins = dict.fromkeys(_PACKAGES.get(self.component, (self.component,)), self.version)
        jax = self.version if self.component == "jax" else self.jax
        wanted = {f"{name}=={version}" for name, version in pins.items()}
        if self.component == "torch_xla":
            wanted.add(f"torch=={self.version}")
        else:
            wanted.add(f"jax=={jax}" if jax else "jax")
        if self.platform == "cuda":
            older = f"<={jax}" if jax and self.component != "plugin" else ""
            wanted |= {_ASSEMBLER, *(name + older for name in _FOR_GPU if name not in pins)}
        if self.platform == "tpu" and self.component != "libtpu":
            wanted.add(f"jax[tpu]=={jax}" if jax else "jax[tpu]")
        requirements = tuple(sorted({*wanted, *map(checked, self.also)}))
        return Recipe(pins=pins, requirements=requirements, python=python)

    def environment(self, python: str = "") -> Environment:
        """The environment of the release, with the first Python that has wheels for it.

        Raises:
            CannotMake: no Python here can run the release; the message is that of the first one.
            WrongVersions: what was installed is not what was asked for.
        """
        refused: CannotMake | None = None
        for each in (python,) if python else _pythons():
            try:
                return environment(self.recipe(each))
            except CannotMake as refusal:
                refused = refused or refusal
        assert refused is not None
        raise refused


def versions(component: str, first: str, last: str) -> tuple[str, ...]:
    """The released versions of a component from ``first`` to ``last``, oldest first.

    Raises:
        CannotMake: there is no index, or ``first`` or ``last`` is not released there.
    """
    package = _PACKAGES.get(component, (component,))[0]
    known = _listed(package)
    bounds = [_released(package, each, known) for each in (first, last)]
    return tuple(each for each in known if bounds[0] <= Version(each) <= bounds[1])


def _released(package: str, asked: str, known: Sequence[str]) -> Version:
    try:
        version = Version(asked)
    except InvalidVersion:
        version = None
    if version is None or version not in map(Version, known):
        place = bisect(known, version, key=Version) if version else len(known)
        near = ", ".join(known[max(0, place - 3) : place + 3])
        raise CannotMake(f"got {package} {asked!r}, wanted a released version", f"such as {near}")
    return version


def _listed(package: str) -> tuple[str, ...]:
    command = [find_uv().command, "tool", "run", "--quiet", "--from", "pip", "pip", "index"]
    asked = ["versions", "--ignore-requires-python", "--json", package]
    try:
        ended = subprocess.run(
            [*command, *asked], capture_output=True, text=True, timeout=_LIST_SECONDS, check=True
        )
        found: Mapping[str, Sequence[str]] = json.loads(ended.stdout[ended.stdout.index("{") :])
    except (subprocess.SubprocessError, ValueError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise CannotMake(
            f"the releases of {package} cannot be listed: {said.strip()[-300:]}",
            "connect to a package index",
        ) from None
    return tuple(sorted(found["versions"], key=Version))


def _pythons() -> Iterator[str]:
    """The Pythons to try: this one, then others by version, those of pyenv by their path."""
    mine = ".".join(map(str, sys.version_info[:2]))
    yield ""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for version in _PYTHONS:
        if version == mine:
            continue
        installed = sorted((root / "versions").glob(f"{version}.*/bin/python"))
        if installed:
            yield str(installed[-1])
        elif found := shutil.which(f"python{version}"):
            yield found
