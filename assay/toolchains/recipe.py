"""Recipe: what an environment is made of, from a baseline's toolchain or a version."""

import hashlib
import importlib.metadata
import json
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from assay.frameworks.installed import PACKAGES, installed_version
from assay.model.blame import WrongValue

_ASSAY: Final = "assay-xla"
_OURS_TO_PIN: Final = frozenset({"jax", "jaxlib"})
_NO_PACKAGES: Final = frozenset({"host-isa", "flags"})
_FLAG_VARIABLES: Final = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
_RELEASED: Final = re.compile(r"[0-9]+(\.[0-9]+)*(\.post[0-9]+)?")
_SHAPE: Final = 1  # The form of a stored environment; a new form gives new keys.


class UnreadableToolchain(WrongValue):
    """The words name no toolchain; the message says what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The packages of an environment: ``pins`` exactly, ``requirements`` as uv is asked for them.

    The names of ``pins`` are canonical (``torch-xla``). ``python`` is what uv is asked for; empty
    for the interpreter that runs. ``flags`` are the compiler's, by environment variable; None keeps
    those of this process. ``compiled`` compiles every module at once, which takes longer than the
    installation; otherwise each is compiled when a process first imports it.
    """

    pins: Mapping[str, str]
    requirements: tuple[str, ...]
    python: str = ""
    flags: Mapping[str, str] | None = None
    compiled: bool = True

    @property
    def key(self) -> str:
        """The readable name of its environment's folder: by packages, Python and platform alone."""
        python = self.python or ".".join(platform.python_version_tuple()[:2])
        whole = [_SHAPE, self.requirements, python, sys.platform, platform.machine()]
        digest = hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:12]
        leading = next(iter(self.pins))
        tag = "".join(each if each.isalnum() or each == "." else "-" for each in f"py{python}")
        return f"{leading}-{self.pins[leading]}-{tag}-{digest}"


def recipe(baseline: Mapping[str, str] | str, *, platform: str = "cpu") -> Recipe:
    """The recipe of a baseline's toolchain, or of ``0.10.2`` or ``jax==0.10.2``.

    A toolchain restores its flags; a version alone runs with the present ones.

    Raises:
        UnreadableToolchain: no toolchain is named, a baseline's holds what is not accepted, or
            Assay is not installed as a package.
    """
    pins = _from_text(baseline) if isinstance(baseline, str) else _from_toolchain(baseline)
    flags = None if isinstance(baseline, str) else _flags(baseline.get("flags", ""))
    extra = f"[{plugin}]" if (plugin := _plugin(platform, pins)) else ""
    exact = (f"{name}{extra if name == 'jax' else ''}=={version}" for name, version in pins.items())
    return Recipe(pins=pins, requirements=tuple(sorted({*exact, *_needed_by_assay()})), flags=flags)


def _from_text(text: str) -> dict[str, str]:
    """A bare version is jax's, and jaxlib follows it; else requirements with ``==``, by commas."""
    parts = [part.strip() for part in text.split(",")]
    found = dict(_pin(part) for part in parts)
    if "jax" not in found and "torch" not in found:
        raise _unreadable(text)
    return dict(sorted(found.items()))


def _pin(part: str) -> tuple[str, str]:
    name, equal, version = part.rpartition("==")
    try:
        Version(version.strip())
        package = Requirement(name).name if equal else "jax"
    except (InvalidVersion, InvalidRequirement):
        raise _unreadable(part) from None
    return canonicalize_name(package), version.strip()


def _from_toolchain(versions: Mapping[str, str]) -> dict[str, str]:
    """A baseline file may come from anyone: only known packages are accepted."""
    named = {name: version for name, version in versions.items() if name not in _NO_PACKAGES}
    if not named:
        raise _unreadable(str(dict(versions)))
    for name, version in named.items():
        if name not in PACKAGES:
            raise UnreadableToolchain(
                f"got the package {name!r} in a baseline toolchain, accepted are "
                f"{', '.join(sorted(PACKAGES))}; correct the baseline file"
            )
        if not _RELEASED.fullmatch(version):
            raise UnreadableToolchain(
                f"got {name} {version!r} in a baseline toolchain, accepted is a released version "
                "such as 0.10.2; correct the baseline file, or name a version with --assay-against"
            )
    return dict(sorted(named.items()))


def _flags(text: str) -> dict[str, str]:
    """``XLA_FLAGS=--a --b LIBTPU_INIT_ARGS=--c``, as a toolchain holds it, by variable.

    A flag that names a file is refused: a compiler may run it (``ptxas``) or write to it.
    """
    found: dict[str, list[str]] = {}
    current = ""
    for word in text.split():
        if "/" in word:
            raise UnreadableToolchain(
                f"got the flag {word!r} in a baseline toolchain, accepted are flags that name no "
                "file; correct the baseline file, or name a version with --assay-against"
            )
        name, equal, rest = word.partition("=")
        begins = bool(equal) and name in _FLAG_VARIABLES
        current = name if begins else current
        found.setdefault(current, []).append(rest if begins else word)
    return {name: " ".join(found.get(name, ())) for name in _FLAG_VARIABLES}


def _plugin(platform: str, pins: Mapping[str, str]) -> str:
    """The extra of jax for the platform, with the toolchain's CUDA, else this process's."""
    if platform == "tpu":
        return "tpu"
    if platform != "cuda":
        return ""
    older = "jax-cuda12-plugin"
    has_older = older in pins or ("jax-cuda13-plugin" not in pins and installed_version(older))
    return "cuda12" if has_older else "cuda13"


def _needed_by_assay() -> list[str]:
    """The requirements of Assay, except jax and jaxlib, whose versions the pins decide."""
    try:
        requires = importlib.metadata.requires(_ASSAY) or []
    except importlib.metadata.PackageNotFoundError:
        raise UnreadableToolchain(
            f"got Assay without its metadata, wanted the installed package {_ASSAY}, whose "
            "requirements every environment needs; install it, for example with pip install -e"
        ) from None
    found = [Requirement(text) for text in requires]
    return [
        f"{each.name}{each.specifier}"
        for each in found
        if canonicalize_name(each.name) not in _OURS_TO_PIN
        and (each.marker is None or each.marker.evaluate({"extra": ""}))
    ]


def checked(requirement: str) -> str:
    """The requirement, spelled as ``packaging`` spells it.

    Raises:
        UnreadableToolchain: it is no requirement, or it names a URL in place of a release.
    """
    try:
        found, problem = Requirement(requirement), ""
    except InvalidRequirement as error:
        found, problem = None, f" ({' '.join(str(error).split())})"
    if found is None or found.url:
        raise UnreadableToolchain(
            f"got {requirement!r}{problem}, wanted a released package such as flax or flax>=0.12"
        )
    return str(found)


def _unreadable(text: str) -> UnreadableToolchain:
    return UnreadableToolchain(
        f"got {text!r}, wanted a version of jax (0.10.2), versions (jax==0.10.2,jaxlib==0.10.2) "
        "or a baseline's toolchain; list the versions with `pip index versions jax`"
    )
