"""Environments of other toolchains: created by uv once and stored in the user's cache.

An environment is made under a lock in a folder of another name. It is moved into place when it is
complete and its versions are those that were asked for. A build that is killed therefore leaves no
environment, and an existing one is used without writing.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from filelock import FileLock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from assay.toolchains import audit
from assay.toolchains.cache import root, shrink
from assay.toolchains.recipe import Recipe

_MOST_SECONDS: Final = 1800.0
_QUESTION_SECONDS: Final = 60.0
_SHORT: Final = 400
_NO_SUCH_VERSION = re.compile(r"no version of ([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([0-9][^\s,]*)")
_CHOSEN = re.compile(r"^ [+~] ([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
_NO_NETWORK = (
    "network was disabled",
    "error sending request",
    "failed to lookup address",
    "dns error",
    "failed to fetch",
    "timed out",
)
_NO_WHEEL = ("no wheels", "abi tag", "python tag", "building source distributions is disabled")


class CannotMake(Exception):
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

    def install(self, interpreter: Path, requirements: Sequence[str], python: str) -> None:
        """Install wheels into the environment of that interpreter.

        They are compiled at once: processes start many times, and where nothing can be written.
        """
        how = ["--no-build", "--compile-bytecode", "--python", str(interpreter)]
        self._run(["pip", "install", *how, *requirements], python)

    def _run(self, arguments: Sequence[str], python: str) -> None:
        ended = self._ended(arguments, _MOST_SECONDS)
        if ended.returncode:
            raise self._refusal(ended.stderr, python, arguments)

    def _ended(
        self, arguments: Sequence[str], seconds: float
    ) -> "subprocess.CompletedProcess[str]":
        command = [self.command, "--no-progress", "--color=never", *arguments]
        try:
            return subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                env=_environment(os.environ),
            )
        except subprocess.TimeoutExpired:
            raise CannotMake(
                f"uv was not done within {seconds:g} s", "try again when the index answers"
            ) from None
        except OSError as error:
            raise CannotMake(f"uv does not run ({self.command}: {error})", _GET_UV) from None

    def _refusal(self, said: str, python: str, arguments: Sequence[str]) -> CannotMake:
        words = _shorten(said)
        if any(sign in said.lower() for sign in _NO_NETWORK):
            return CannotMake(f"no package index can be reached: {words}", _REACH_AN_INDEX)
        asked = python or ".".join(map(str, sys.version_info[:2]))
        if arguments[0] == "venv":
            return CannotMake(
                f"there is no Python {asked} here: {words}",
                f"install it (uv python install {asked}), or ask for another",
            )
        if any(sign in said.lower() for sign in _NO_WHEEL):
            return CannotMake(
                f"some of it has no wheel for Python {asked}: {words}",
                "ask for an older or newer Python, with --python",
            )
        missing = _NO_SUCH_VERSION.search(said)
        if missing is None:
            return CannotMake(f"uv finds no such environment: {words}", "ask for another version")
        name, version = missing.groups()
        return CannotMake(f"there is no {name} {version}: {words}", self._exist(name, version))

    def _exist(self, name: str, version: str) -> str:
        """Which versions of a package exist: the nearest ones, and the newest."""
        asked = {
            "before it": [f"{name}<{version}"],
            "after it": ["--resolution=lowest-direct", f"{name}>{version}"],
            "the newest": [name],
        }
        found = {place: self._chosen(name, how) for place, how in asked.items()}
        known = [f"{chosen} ({place})" for place, chosen in found.items() if chosen]
        return f"ask for one that exists: {', '.join(known)}" if known else "ask for another"

    def _chosen(self, name: str, how: Sequence[str]) -> str:
        dry = ["pip", "install", "--dry-run", "--reinstall", "--no-deps", "--no-build"]
        try:
            ended = self._ended([*dry, "--python", sys.executable, *how], _QUESTION_SECONDS)
        except CannotMake:
            return ""
        chosen = dict(_CHOSEN.findall(ended.stderr))
        return chosen.get(Requirement(name).name, "") if ended.returncode == 0 else ""


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


_GET_UV: Final = "pip install uv, or see https://docs.astral.sh/uv"
_REACH_AN_INDEX: Final = "connect to one, or name a mirror with UV_INDEX_URL"


def _environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment variables without those that point uv to another environment."""
    return {name: value for name, value in base.items() if name not in _MISLEADING}


_MISLEADING: Final = frozenset({"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "UV_PROJECT"})


def _shorten(said: str) -> str:
    lines = [line for line in said.splitlines() if not line.startswith("Using Python")]
    flat = " ".join(" ".join(lines).split())
    return flat if len(flat) <= _SHORT else flat[: _SHORT - 1] + "…"


_AUDIT_SECONDS: Final = 120.0
_INTERPRETER: Final = "bin/python"
_LIST: Final = "assay-installed.json"


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
    with _locked(cache, recipe.key):
        # Another process may have made it meanwhile.
        with contextlib.suppress(_Damaged):
            return _ready(place, recipe)
        with _fresh(cache, recipe.key) as building:
            uv.venv(building, recipe.python)
            uv.install(building / _INTERPRETER, recipe.requirements, recipe.python)
            try:
                _write_down(building, recipe)
            except _Damaged as damaged:
                raise CannotMake(
                    f"uv installed an incomplete environment: {damaged}",
                    "run `uv cache clean`, and try again",
                ) from None
            _put_aside(place)
            building.rename(place)
        shrink("toolchains")
        return _ready(place, recipe)


@dataclass(frozen=True, slots=True)
class Environments:
    """``environment``, which asks uv no second time for what it refused: that takes as long."""

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


def _write_down(building: Path, recipe: Recipe) -> None:
    """Check the installed versions against the recipe, and store their list in the environment."""
    versions = _audited(building)
    check_pins(recipe.pins, versions, "what uv installed")
    (building / _LIST).write_text(json.dumps(versions, indent=1))


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
def _locked(cache: Path, key: str) -> Iterator[None]:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache / f".{key}.lock")
        lock.acquire()
    except OSError as error:
        raise CannotMake(
            f"environments cannot be stored in {cache}: {error}",
            "set XDG_CACHE_HOME to a folder that can be written",
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _fresh(cache: Path, key: str) -> Iterator[Path]:
    """An empty place to build in, which is gone afterwards unless it was moved away.

    What builds before this one left there is removed: whoever holds the lock is the only builder.
    """
    for left in cache.glob(f".{key}.building-*"):
        shutil.rmtree(left, ignore_errors=True)
    building = Path(tempfile.mkdtemp(prefix=f".{key}.building-", dir=cache))
    try:
        yield building
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _put_aside(place: Path) -> None:
    """Free the place; a process that still runs there keeps the files that it has open."""
    if not place.exists():
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{place.name}.building-", dir=place.parent))
    place.rename(aside / "damaged")
    shutil.rmtree(aside, ignore_errors=True)
