"""Releases: which versions of a component exist, and what is installed for each."""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from packaging.utils import canonicalize_name
from packaging.version import Version

from assay.toolchains.environments import CannotMake, Environment, environment, find_uv, near
from assay.toolchains.recipe import Recipe, checked

COMPONENTS: Final = ("jax", "jaxlib", "libtpu", "plugin", "torch_xla")
_PACKAGES: Final = MappingProxyType({"plugin": ("jax-cuda12-plugin", "jax-cuda12-pjrt")})
# CUDA 12 plugins exist for each release of jax, CUDA 13 plugins only from 0.7.2 on.
FOR_GPU: Final = ("jax-cuda12-plugin", "jax-cuda12-pjrt")
_ASSEMBLER: Final = "nvidia-cuda-nvcc-cu12"
_FIRST_WITH_JAXLIB: Final = Version("0.4.30")
_PYTHONS: Final = ("3.11", "3.12", "3.13")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One version of the component, with everything else that is installed.

    ``jax`` is the jax that a component other than jax is installed with; empty for the
    newest that fits. ``also`` are the user's further packages, ``older`` the exact versions of
    other parts of jax.
    """

    component: str
    version: str
    platform: str
    jax: str = ""
    also: tuple[str, ...] = ()
    older: tuple[tuple[str, str], ...] = ()

    def recipe(self, python: str) -> Recipe:
        """The recipe of the release's environment: packages that were released together."""
        packages = map(canonicalize_name, _PACKAGES.get(self.component, (self.component,)))
        pins: dict[str, str] = dict.fromkeys(packages, self.version) | dict(self.older)
        jax = self.version if self.component == "jax" else self.jax
        wanted = {f"{name}=={version}" for name, version in pins.items()}
        if self.component == "torch_xla":
            # A patch release of torch_xla is built for the torch of its minor release.
            major, minor = Version(self.version).release[:2]
            wanted.add(f"torch=={major}.{minor}.*")
        else:
            # Older ones do not require jaxlib by themselves.
            extra = "[cpu]" if jax and Version(jax) < _FIRST_WITH_JAXLIB else ""
            wanted.add(f"jax{extra}=={jax}" if jax else "jax")
        if self.platform == "cuda":
            older = f"<={jax}" if jax and self.component != "plugin" else ""
            wanted |= {_ASSEMBLER, *(name + older for name in FOR_GPU if name not in pins)}
        if self.platform == "tpu" and "libtpu" not in pins:
            wanted.add(f"jax[tpu]=={jax}" if jax else "jax[tpu]")
        requirements = tuple(sorted({*wanted, *map(checked, self.also)}))
        return Recipe(pins=pins, requirements=requirements, python=python, compiled=False)

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
    known = find_uv().releases(package)
    for asked in (first, last):
        if Version(asked) not in map(Version, known):
            raise CannotMake(
                f"got {package} {asked!r}, wanted a released version",
                f"such as {near(asked, known)}",
            )
    return tuple(each for each in known if Version(first) <= Version(each) <= Version(last))


def _pythons() -> Iterator[str]:
    """The Pythons to try: this one, those of pyenv and PATH by their path, those that uv has."""
    mine = ".".join(map(str, sys.version_info[:2]))
    yield ""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for version in _PYTHONS:
        if version == mine:
            continue
        installed = sorted((root / "versions").glob(f"{version}.*/bin/python"))
        if installed:
            yield str(installed[-1])
        else:
            yield shutil.which(f"python{version}") or version
