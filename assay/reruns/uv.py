"""uv: found, run, and its refusals in words that say what to do."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

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
    """An environment that cannot be had here: the reason, and what would fix it."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Uv:
    """The uv command; raises ``CannotMake`` for what it refuses."""

    command: str

    def venv(self, folder: Path, python: str) -> None:
        """Make an empty environment that may be moved; without a Python of its own."""
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
    """The uv of the search path, else the one beside this interpreter.

    Raises:
        CannotMake: there is none.
    """
    beside = str(Path(sys.executable).parent)
    found = shutil.which("uv", path=path) or shutil.which("uv", path=beside)
    if found is None:
        raise CannotMake(f"uv is neither on the search path nor in {beside}", _GET_UV)
    return Uv(command=found)


_GET_UV: Final = "get it with pip install uv, or as https://docs.astral.sh/uv says"
_REACH_AN_INDEX: Final = "connect to one, or name a mirror with UV_INDEX_URL"


def _environment(base: Mapping[str, str]) -> dict[str, str]:
    """Without what would make uv work on another environment than the one it is told of."""
    return {name: value for name, value in base.items() if name not in _MISLEADING}


_MISLEADING: Final = frozenset({"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "UV_PROJECT"})


def _shorten(said: str) -> str:
    lines = [line for line in said.splitlines() if not line.startswith("Using Python")]
    flat = " ".join(" ".join(lines).split())
    return flat if len(flat) <= _SHORT else flat[: _SHORT - 1] + "…"
