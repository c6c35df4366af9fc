"""Files written in one step and read with a clear error; the lock for timings."""

import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from assay.model.units import format_bytes

_T = TypeVar("_T")
MOST_BYTES: Final = 1 << 30
"""Of one file that Assay reads as a whole; a run of 100,000 verdicts writes 47 MB."""

SHIPPED: Final = "shipped"
"""The folder of the suites and their baselines in a wheel of Assay (`assay.store.shipped`)."""
_GATE = ".timing-gate"
_LOCK = ".timing-lock"
_MOST_CHARACTERS = 120
_GIT_SECONDS = 5  # 0.02 s in this repository; a huge one on a network disk may take long


def read_file(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger than ``most_bytes``.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for its writer
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            is_folder = stat.S_ISDIR(status.st_mode)
            why = os.strerror(errno.EISDIR) if is_folder else "not a regular file"
            raise OSError(errno.EINVAL, why, str(path))
        with open(handle, "rb", closefd=False) as file:
            data = file.read(most_bytes + 1) if status.st_size <= most_bytes else b""
    finally:
        os.close(handle)
    if max(len(data), status.st_size) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {format_bytes(most_bytes)}", str(path))
    return data


def decode_json(data: bytes | str, kind: type[_T] | Any) -> _T:
    """The JSON as a value of that type. Raises msgspec.MsgspecError for anything else."""
    try:
        value: _T = msgspec.json.decode(data, type=kind)
    # msgspec raises these two itself.
    except (RecursionError, UnicodeDecodeError) as error:
        raise msgspec.DecodeError(str(error)) from None
    return value


def decode_msgpack(data: bytes, kind: type[_T] | Any) -> _T:
    """The MessagePack as a value of that type. Raises msgspec.MsgspecError for anything else."""
    try:
        value: _T = msgspec.msgpack.decode(data, type=kind)
    except (RecursionError, UnicodeDecodeError) as error:
        raise msgspec.DecodeError(str(error)) from None
    return value


def read_json(path: Path, kind: type[_T], error: type[Exception], wanted: str) -> _T:
    """The file's content as a value of that type, or ``error``; ``wanted`` says what to do."""
    try:
        return decode_json(read_file(path), kind)
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
    try:  # S603: git itself, on the folder of the tests or of Assay.
        said = git and subprocess.run(  # noqa: S603
            command, capture_output=True, check=False, timeout=_GIT_SECONDS, encoding="utf-8"
        )
    except subprocess.TimeoutExpired:
        return ""
    return said.stdout.strip() if said else ""


def folder_obstacle(path: Path, *, written: bool = True) -> str:
    """Why the folder cannot be there, or cannot be written to; empty if it can be."""
    existing = path
    try:
        existing = next(each for each in (path, *path.parents) if each.exists())
        if not existing.is_dir():
            return f"where {existing} is a file, wanted a folder"
        if written:  # Permissions alone do not tell: /proc and a full disk refuse root too.
            tempfile.TemporaryDirectory(dir=existing, prefix=".assay-").cleanup()
    except OSError as error:
        return (
            f"where {existing} cannot be written to ({error.strerror}), wanted a folder that can; "
            "name another"
        )
    return ""


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
    """The SHA-256 of the Python and TOML files below a folder, of their paths and contents.

    The suites that a wheel of Assay holds do not count: they have a digest of their own.
    """
    files = (path for path in folder.rglob("*") if path.suffix in {".py", ".toml"})
    counted = (path for path in sorted(files) if path.relative_to(folder).parts[0] != SHIPPED)
    parts = [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in counted]
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
