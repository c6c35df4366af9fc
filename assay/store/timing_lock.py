"""The timing lock of a run's folder: timing is exclusive, all other work is shared.

The locks are the kernel's (``flock``), so a process that dies gives back what it held. Whoever
wants in passes a gate. Timing keeps it shut while it waits for the others to end, so that no new
one goes before it: it waits for no longer than what is at work already.
"""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_GATE = ".timing-gate"
_LOCK = ".timing-lock"


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold the lock alone: wait for all who hold it, and let nobody else begin."""
    with _held(directory / _GATE, fcntl.LOCK_EX), _held(directory / _LOCK, fcntl.LOCK_EX):
        yield


@contextmanager
def shared(directory: Path) -> Iterator[None]:
    """Hold the lock with others, but not beside an ``exclusive`` holder. Not reentrant."""
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
