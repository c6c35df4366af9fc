"""Faults of the machine: full and read-only disks, a clock that jumps, kills, too little memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from assay.isolate.child import READY, Child
from assay.isolate.memory import MemoryExceeded, MemoryLimit
from assay.isolate.messages import Answer
from assay.model.evidence import FailureKind
from tests.faults.changes import Change, is_killed
from tests.faults.fault import CRASHED, FAILED, MISUSE, PASSED, SUITE, Fault
from tests.faults.reading import COMPILES

MOUNTED = ("-m", "tests.faults.mounted")
_BACKWARDS = """
import time
_start, _calls = time.time(), []
def _earlier():
    _calls.append(None)
    return _start - 3600 * len(_calls)
time.time = _earlier
"""


def _refuses(number: int, *, after: int) -> Change:
    """It raises this error of the operating system, after some calls."""

    def change(real: Callable[..., Any]) -> Callable[..., Any]:
        calls: list[None] = []

        def stand_in(*arguments: Any, **keywords: Any) -> Any:
            calls.append(None)
            if len(calls) > after:
                raise OSError(number, os.strerror(number), str(arguments[0]))
            return real(*arguments, **keywords)

        return stand_in

    return change


def _uses_all(limit: MemoryLimit) -> Change:
    """The processes of a program exceed their memory as soon as it is compiled."""

    def change(real: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(child: Child, seconds: float) -> bytes:
            payload: bytes = real(child, seconds)
            if payload != READY:
                answer = msgspec.msgpack.decode(payload, type=Answer)
                if answer.stage is FailureKind.TRACE:
                    child.close()
                    raise MemoryExceeded(2**40, limit)
            return payload

        return stand_in

    return change


def _with_a_clock_that_goes_backwards(root: Path) -> None:
    path = root / "mysuites/test_stacks.py"
    path.write_text(path.read_text() + _BACKWARDS)


MACHINE = (
    Fault(
        name="the disk is full in the middle of the run",
        how="a tmpfs of 100 KiB is mounted on results/",
        command=(*MOUNTED, "tmpfs", "100k", *SUITE),
        mounts=True,
        ends=CRASHED,
        says=("No space left on device", "(exit 3)"),
    ),
    Fault(
        name="the folder of results is read-only",
        how="results/ is mounted read-only",
        command=(*MOUNTED, "read-only", "", *SUITE),
        mounts=True,
        ends=MISUSE,
        says=("--assay-results-dir", "Read-only file system"),
    ),
    Fault(
        name="the folder of results becomes read-only",
        place="assay.store.records:append",
        change=_refuses(errno.EROFS, after=2),
        ends=CRASHED,
        says=("Read-only file system", "(exit 3)"),
    ),
    Fault(
        name="the clock goes backwards",
        how="time.time() of pytest and of the child is an hour earlier at each call",
        prepare=_with_a_clock_that_goes_backwards,
        ends=PASSED,
        says=("Nothing regressed",),
    ),
    Fault(
        name="something kills the observer's process at each second program",
        place="assay.frameworks.jax:JaxFramework.compile",
        change=is_killed(after=1),
        ends=PASSED,
        says=("at a second attempt", "Nothing regressed"),
    ),
    Fault(
        name="a program takes more memory than --assay-memory-limit",
        place="assay.isolate.child:Child.receive",
        change=_uses_all(MemoryLimit(nbytes=2**30)),
        command=(*SUITE, *COMPILES),
        ends=FAILED,
        says=("its processes used 1.0 TiB of memory, the limit is 1.0 GiB", "(exit 1)"),
    ),
    Fault(
        name="a program takes more memory than the machine has",
        place="assay.isolate.child:Child.receive",
        change=_uses_all(MemoryLimit(nbytes=2**30, of_machine=True)),
        command=(*SUITE, *COMPILES),
        ends=FAILED,
        says=("not judged, because this machine has too little memory", "(exit 1)"),
    ),
)
