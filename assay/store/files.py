"""Files written in one step and read with a clear error; the lock for timings."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

_T = TypeVar("_T")
_GATE = ".timing-gate"
_LOCK = ".timing-lock"
_MOST_CHARACTERS = 120
_GIT_SECONDS = 5  # 0.02 s in this repository; a huge one on a network disk may take long


def read_json(path: Path, kind: type[_T], error: type[Exception], wanted: str) -> _T:
    """The file's content as a value of that type, or ``error``; ``wanted`` says what to do."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError) as fault:
        raise error(f"{path}: got a file that cannot be read ({fault}), wanted {wanted}") from None


def write_json(path: Path, value: object) -> Path:
    """Write the value with one item per line, in one step; returns the path."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
    return path


def commit_of(folder: Path) -> str:
    """The git commit of a folder, with ``-dirty`` if tracked files differ; "" if none is known."""
    git = shutil.which("git")
    options = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    command = [str(git), "-C", str(folder), *options]
    try:  # S603: git itself, on the folder of the tests.
        said = git and subprocess.run(  # noqa: S603
            command, capture_output=True, check=False, timeout=_GIT_SECONDS, encoding="utf-8"
        )
    except subprocess.TimeoutExpired:
        return ""
    return said.stdout.strip() if said else ""


def write_whole(path: Path, data: bytes) -> None:
    """Replace the file's content in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def digest_of(folder: Path) -> str:
    """The SHA-256 of the Python and TOML files below a folder, of their paths and contents."""
    files = (path for path in folder.rglob("*") if path.suffix in {".py", ".toml"})
    parts = [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in sorted(files)]
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()


def readable(names: Iterable[str]) -> str:
    """Names as one part of a file's name; the caller adds a digest to make it unique."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", "-".join(names)).lstrip(".-")[:_MOST_CHARACTERS]


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold the lock exclusively: wait for all holders, and block new ones."""
    with _held(directory / _GATE, fcntl.LOCK_EX), _held(directory / _LOCK, fcntl.LOCK_EX):
        yield


@contextmanager
def shared(directory: Path) -> Iterator[None]:
    """Hold the lock with other ``shared`` holders, never with ``exclusive``. Not reentrant."""
    with ExitStack() as inside:
        with _held(directory / _GATE, fcntl.LOCK_EX):
            inside.enter_context(_held(directory / _LOCK, fcntl.LOCK_SH))
        yield


@contextmanager
def _held(path: Path, kind: int) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, kind)
        yield
