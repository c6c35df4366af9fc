"""Files written in one step, and the lock that gives a timing the machine for itself."""

import fcntl
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_GATE = ".timing-gate"
_LOCK = ".timing-lock"


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


_MOST = 120


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


def readable(names: Iterable[str]) -> str:
    """Names as one part of a file's name; the caller adds a digest to make it unique."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", "-".join(names)).lstrip(".-")[:_MOST]
