"""Environments of other toolchains: created by uv once and stored in the user's cache.

An environment is made under a lock in a folder of another name. It is moved into place when it is
complete and its versions are those that were asked for. A build that is killed therefore leaves no
environment. An existing one is used without a lock, also from a read-only folder.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

from filelock import FileLock
from packaging.utils import canonicalize_name
from packaging.version import Version

from assay.model.blame import UsersFault
from assay.toolchains import audit
from assay.toolchains.cache import root, shrink
from assay.toolchains.recipe import Recipe

_INSTALL_SECONDS: Final = 1800.0
_LIST_SECONDS: Final = 120.0
_AUDIT_SECONDS: Final = 120.0
_CHARACTERS: Final = 400
_INTERPRETER: Final = "bin/python"
_LIST: Final = "assay-installed.json"
# What points uv to another environment.
_MISLEADING: Final = frozenset({"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "UV_PROJECT"})
_NO_SUCH_VERSION: Final = re.compile(
    r"no version of ([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([0-9][^\s,]*)"
)
_OTHER_PYTHON: Final = re.compile(
    r"current Python version \(([0-9.]+)\) does not satisfy Python([<>=~!]+)([0-9.]+)\S* and (\S+)"
)
_NO_NETWORK: Final = (
    *("network was disabled", "error sending request", "failed to lookup address"),
    *("dns error", "failed to fetch", "timed out"),
)
_NO_WHEEL: Final = (
    *("no wheels", "abi tag", "python tag", "building source distributions is disabled"),
)
_GET_UV: Final = "pip install uv, or see https://docs.astral.sh/uv"


class CannotMake(UsersFault):
    """An environment cannot be made here. Holds the reason and the remedy."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Uv:
    """The uv command; raises ``CannotMake`` for what it refuses."""

    command: str

    def venv(self, folder: Path, python: str) -> None:
        """Make an empty, relocatable environment that uses an existing Python."""
        chosen = ["--python", python or sys.executable]
        self._run(["venv", "--relocatable", "--no-python-downloads", *chosen, str(folder)], python)

    def install(self, interpreter: Path, recipe: Recipe) -> None:
        """Install wheels into the environment of that interpreter."""
        how = ["--no-build", "--python", str(interpreter)]
        how += ["--compile-bytecode"] * recipe.compiled
        self._run(["pip", "install", *how, *recipe.requirements], recipe.python)

    def releases(self, package: str) -> tuple[str, ...]:
        """All released versions of a package, oldest first."""
        pip = ["tool", "run", "--quiet", "--from", "pip", "pip"]
        asked = ["index", "versions", "--ignore-requires-python", "--json", package]
        ended = self._ended([*pip, *asked], _LIST_SECONDS)
        try:
            found: Mapping[str, Sequence[str]] = json.loads(ended.stdout[ended.stdout.index("{") :])
        except ValueError:
            raise CannotMake(
                f"the releases of {package} cannot be listed: {ended.stderr.strip()[-300:]}",
                "connect to a package index",
            ) from None
        return tuple(sorted(found["versions"], key=Version))

    def _run(self, arguments: Sequence[str], python: str) -> None:
        ended = self._ended(arguments, _INSTALL_SECONDS)
        if ended.returncode:
            asked = python or ".".join(map(str, sys.version_info[:2]))
            raise self._refusal(ended.stderr, asked, makes_python=arguments[0] == "venv")

    def _ended(
        self, arguments: Sequence[str], seconds: float
    ) -> "subprocess.CompletedProcess[str]":
        try:
            return subprocess.run(
                [self.command, "--no-progress", "--color=never", *arguments],
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                env={name: each for name, each in os.environ.items() if name not in _MISLEADING},
            )
        except subprocess.TimeoutExpired:
            raise CannotMake(
                f"uv was not done within {seconds:g} s", "try again when the index answers"
            ) from None
        except OSError as error:
            raise CannotMake(f"uv does not run ({self.command}: {error})", _GET_UV) from None

    def _refusal(self, said: str, python: str, *, makes_python: bool) -> CannotMake:
        lines = [line for line in said.splitlines() if not line.startswith("Using Python")]
        words, known = shorten(" ".join(lines), _CHARACTERS, placeholder=" …"), said.lower()
        if any(sign in known for sign in _NO_NETWORK):
            remedy = "connect to one, or name a mirror with UV_INDEX_URL"
            return CannotMake(f"no package index can be reached: {words}", remedy)
        if makes_python:
            return CannotMake(
                f"there is no Python {python} here: {words}",
                f"install it (uv python install {python}), or ask for another",
            )
        if other := _OTHER_PYTHON.search(" ".join(said.split())):
            mine, sign, wanted, package = other.groups()
            return CannotMake(
                f"{package} needs Python {sign}{wanted}, not {mine}",
                f"install one that uv finds, such as by uv python install {wanted}",
            )
        if any(sign in known for sign in _NO_WHEEL):
            return CannotMake(
                f"some of it has no wheel for Python {python}: {words}",
                "ask for an older or newer Python, with --python",
            )
        missing = _NO_SUCH_VERSION.search(said)
        if missing is None:
            return CannotMake(f"uv finds no such environment: {words}", "ask for another version")
        name, version = missing.groups()
        remedy = "ask for another version"
        with contextlib.suppress(CannotMake):
            remedy = f"ask for one that exists, such as {near(version, self.releases(name))}"
        return CannotMake(f"there is no {name} {version}: {words}", remedy)


def near(version: str, known: Sequence[str]) -> str:
    """The three known versions before a version, and the three after it."""
    place = bisect(known, Version(version), key=Version)
    return ", ".join(known[max(0, place - 3) : place + 3])


def find_uv(path: str | None = None) -> Uv:
    """The uv of the search path, else the one in this interpreter's folder.

    Raises:
        CannotMake: there is none.
    """
    folder = str(Path(sys.executable).parent)
    found = shutil.which("uv", path=path) or shutil.which("uv", path=folder)
    if found is None:
        raise CannotMake(f"uv is neither on the search path nor in {folder}", _GET_UV)
    return Uv(command=found)


class WrongVersions(RuntimeError):
    """An environment holds other versions than were asked for."""


class _Damaged(Exception):
    """An environment that was ready and is no longer whole; the message says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """An environment that holds its recipe's pins; ``versions`` are all that was read back."""

    folder: Path
    versions: Mapping[str, str]

    @property
    def interpreter(self) -> Path:
        """Its Python."""
        return self.folder / _INTERPRETER


def environment(recipe: Recipe) -> Environment:
    """The environment of a recipe, from the cache if it is whole there, else made now.

    Raises:
        CannotMake: it cannot be made here; the message says why.
        WrongVersions: what was installed is not what was asked for.
    """
    cache = root() / "toolchains"
    place = cache / recipe.key
    with contextlib.suppress(_Damaged):
        return _ready(place, recipe)
    uv = find_uv()
    with _locked(cache, recipe.key) as building:
        # Another process may have made it meanwhile.
        with contextlib.suppress(_Damaged):
            return _ready(place, recipe)
        uv.venv(building, recipe.python)
        uv.install(building / _INTERPRETER, recipe)
        try:
            versions = _audited(building)
        except _Damaged as damaged:
            raise CannotMake(
                f"uv installed an incomplete environment: {damaged}",
                "run `uv cache clean`, and try again",
            ) from None
        check_pins(recipe.pins, versions, "what uv installed")
        (building / _LIST).write_text(json.dumps(versions, indent=1))
        if place.exists():
            # A process that still runs there keeps the files that it has open.
            place.rename(building.with_name(f"{building.name}-damaged"))
        building.rename(place)
        shrink("toolchains")
        return _ready(place, recipe)


@dataclass(frozen=True, slots=True)
class Environments:
    """``environment``, but uv is asked only once for what it refuses: a refusal takes long."""

    _refused: dict[str, CannotMake] = field(default_factory=dict, init=False)

    def __call__(self, recipe: Recipe) -> Environment:
        """The environment of a recipe; raises as ``environment`` does."""
        if recipe.key in self._refused:
            raise self._refused[recipe.key]
        try:
            return environment(recipe)
        except CannotMake as refusal:
            self._refused[recipe.key] = refusal
            raise


def check_pins(pins: Mapping[str, str], versions: Mapping[str, str], where: str) -> None:
    """Raise ``WrongVersions``, naming both, unless every pinned version is the one that is there.

    Versions that mean the same are the same (``1.0`` and ``1.0.0``).
    """
    found: dict[str, str] = {canonicalize_name(name): each for name, each in versions.items()}
    wrong = [
        f"{name} {found.get(name, 'missing')}, wanted {version}"
        for name, version in pins.items()
        if name not in found or Version(found[name]) != Version(version)
    ]
    if wrong:
        raise WrongVersions(
            f"got {'; '.join(wrong)} in {where}; delete that environment and run again"
        )


def _ready(place: Path, recipe: Recipe) -> Environment:
    """The environment at that place, read back by its own interpreter."""
    try:
        installed: dict[str, str] = json.loads((place / _LIST).read_text())
    except (OSError, ValueError) as error:
        raise _Damaged(f"its list of packages cannot be read: {error}") from None
    versions = _audited(place)
    if gone := sorted(installed.keys() - versions.keys()):
        raise _Damaged(f"packages are missing: {', '.join(gone)}")
    check_pins(recipe.pins, versions, str(place))
    with contextlib.suppress(OSError):  # It may be read-only.
        os.utime(place)
    return Environment(folder=place, versions=versions)


def _audited(place: Path) -> dict[str, str]:
    """The versions of all packages there, none of whose files is damaged."""
    command = [str(place / _INTERPRETER), "-I", str(Path(audit.__file__))]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_AUDIT_SECONDS, check=True
        )
        seen: dict[str, Any] = json.loads(ended.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise _Damaged(f"its Python does not run: {error}") from None
    if seen["damaged"]:
        raise _Damaged(f"{seen['damaged']} is not as it was installed")
    versions: dict[str, str] = seen["versions"]
    return versions


@contextlib.contextmanager
def _locked(cache: Path, key: str) -> Iterator[Path]:
    """Hold the lock of a recipe and yield an empty folder to build in.

    Afterwards, and before, all such folders of the recipe are removed: the lock has one holder.
    """

    def clean() -> None:
        for left in cache.glob(f".{key}.building-*"):
            shutil.rmtree(left, ignore_errors=True)

    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache / f".{key}.lock").acquire()
    except OSError as error:
        raise CannotMake(
            f"environments cannot be stored in {cache}: {error}",
            "set XDG_CACHE_HOME to a folder that can be written",
        ) from None
    with lock:
        clean()
        try:
            yield Path(tempfile.mkdtemp(prefix=f".{key}.building-", dir=cache))
        finally:
            clean()
