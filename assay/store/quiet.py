"""Who may work beside whom in a run's folder: timing alone, all else beside each other.

The locks are the kernel's (``flock``), so a process that dies gives back what it held. Whoever
wants in passes a gate. Timing keeps it shut while it waits for the others to end, so that no new
one goes before it: it waits for no longer than what is at work already.
"""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_GATE = ".quiet-gate"
_ROOM = ".quiet-room"


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Work while nobody else does, and let nobody else begin."""
    with _held(directory / _GATE, fcntl.LOCK_EX), _held(directory / _ROOM, fcntl.LOCK_EX):
        yield


@contextmanager
def beside_others(directory: Path) -> Iterator[None]:
    """Work while others do, but not beside one who works ``alone``. It cannot be entered twice."""
    with ExitStack() as inside:
        with _held(directory / _GATE, fcntl.LOCK_EX):
            inside.enter_context(_held(directory / _ROOM, fcntl.LOCK_SH))
        yield


@contextmanager
def _held(path: Path, kind: int) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, kind)
        yield
