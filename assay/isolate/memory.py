"""Memory of a child process: what it may use, what it uses, and whether the kernel killed it.

Linux only: elsewhere nothing is limited. A limit of the address space (RLIMIT_AS, RLIMIT_DATA)
would count what compilers reserve and never touch, and a program that meets it fails by an error of
its own, which reads like a fault of the compiler. The parent therefore looks at what the processes
hold, and ends them beyond the limit.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.model.units import format_bytes

_PROC: Final = Path("/proc")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_GIB: Final = 2**30
# A pytest process holds 0.13 GiB, and a child that has compiled two suites for three targets 0.64
# GiB; up to two children are idle while a third one works (`docs/limits.md`).
_BESIDE_A_PROGRAM_BYTES: Final = 2 * _GIB
# The limit counts the child itself too, so a much lower one leaves too little for a program.
_LEAST_BYTES: Final = 2 * _GIB
# For the kernel, its page cache, and what is allocated between two looks (`docs/limits.md`).
_USED_SHARE: Final = 0.9
LEAST_MACHINE_BYTES: Final = int((_LEAST_BYTES + _BESIDE_A_PROGRAM_BYTES) / _USED_SHARE)
"""A machine with less gives a program more than its share."""
# Looks per second: 10, and 100 once half of the limit is used. Never more than 5 % of a core.
_SECONDS: Final = 0.1
_SECONDS_NEAR: Final = 0.01
_LEAST_PAUSE_PER_LOOK: Final = 20
# The kernel takes this process, before pytest, if the machine itself runs out of memory.
_OOM_SCORE: Final = "500"
_NO_LIMIT_BYTES: Final = 2**60  # cgroup v1 says "unlimited" as a number of about 2**63.


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """The bytes that the processes of one program may hold.

    ``of_machine``: nobody asked for the limit, it is what this machine has. A program beyond it was
    not judged.
    """

    nbytes: int
    of_machine: bool = False


class MemoryExceeded(Exception):
    """The processes of a program held more than their limit, and are to be ended."""

    def __init__(self, used_bytes: int, limit: MemoryLimit) -> None:
        used, most = (format_bytes(each, decimals=2) for each in (used_bytes, limit.nbytes))
        of_machine = ", this machine's share for a program" if limit.of_machine else ""
        super().__init__(f"its processes used {used} of memory, the limit is {most}{of_machine}")
        self.limit = limit


def usual_limit(environment: Mapping[str, str] = os.environ) -> MemoryLimit | None:
    """This machine's share for one program, or None where memory cannot be read.

    The smaller one of the machine's memory and its cgroup's, times 0.9, divided among the workers
    of pytest-xdist, less 2 GiB for each worker's other processes; at least 2 GiB.
    """
    total = machine_bytes()
    if total is None:
        return None
    workers = max(1, int(environment.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    share = int(total * _USED_SHARE / workers) - _BESIDE_A_PROGRAM_BYTES
    return MemoryLimit(nbytes=max(share, _LEAST_BYTES), of_machine=True)


def machine_bytes() -> int | None:
    """The memory of this machine, or its cgroup's limit if that is less; None if unreadable."""
    try:
        (line,) = (
            line
            for line in (_PROC / "meminfo").read_text().splitlines()
            if line.startswith("MemTotal:")
        )
        limits = [int(line.split()[1]) * 1024, *_cgroup_limits()]
    except (OSError, ValueError):
        return None
    return min(limits)


def _cgroup_limits() -> Iterator[int]:
    """The limits of this process's cgroup and of those above it, of version 1 or 2."""
    for line in (_PROC / "self" / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = Path("/sys/fs/cgroup", controllers)
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        here = root / path.lstrip("/")
        for folder in (here, *here.parents):
            # Inside a container the path may be the host's, and its own limit is at the root.
            with contextlib.suppress(OSError, ValueError):
                nbytes = int((folder / name).read_text())
                if nbytes < _NO_LIMIT_BYTES:
                    yield nbytes
            if folder == root:
                break


def kernel_kills() -> int:
    """How many processes the kernel has ended for lack of memory since the machine started."""
    with contextlib.suppress(OSError):
        for line in (_PROC / "vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def offer_to_kernel(pid: int) -> None:
    """Have the kernel take this process first, and what it starts, if memory runs out."""
    with contextlib.suppress(OSError):
        (_PROC / str(pid) / "oom_score_adj").write_text(_OOM_SCORE)


class Watch:
    """Looks at the memory of a session's processes, as often as its use demands."""

    def __init__(self, session: int, limit: MemoryLimit) -> None:
        self._session = session
        self._limit = limit
        self._next = 0.0

    def seconds_left(self) -> float:
        """The seconds until the next look."""
        return max(0.0, self._next - time.monotonic())

    def look(self) -> None:
        """Look, if it is time.

        Raises:
            MemoryExceeded: the processes hold more than the limit.
        """
        start = time.monotonic()
        if start < self._next:
            return
        resident = sum(pages for _, pages in _processes(self._session)) * _PAGE_BYTES
        # This sum counts pages that forks share twice. The exact one is slow: only above the limit.
        used = resident if resident <= self._limit.nbytes else held_bytes(self._session)
        if used > self._limit.nbytes:
            raise MemoryExceeded(used, self._limit)
        end = time.monotonic()
        pause = _SECONDS_NEAR if used > self._limit.nbytes / 2 else _SECONDS
        self._next = end + max(pause, (end - start) * _LEAST_PAUSE_PER_LOOK)


def held_bytes(session: int) -> int:
    """The memory that is freed when the session's processes end: no files, shared pages once."""
    return sum(held_bytes_of(pid) for pid, _ in _processes(session))


def _processes(session: int) -> Iterator[tuple[str, int]]:
    """The processes of a session, with their resident pages."""
    with os.scandir(_PROC) as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    for name in names:
        with contextlib.suppress(OSError, IndexError):
            # /proc/PID/stat, see proc_pid_stat(5): the name in brackets may hold anything.
            fields = (_PROC / name / "stat").read_bytes().rpartition(b")")[2].split()
            if int(fields[3]) == session:
                yield name, int(fields[21])


def held_bytes_of(pid: str) -> int:
    """The memory that is freed when one process ends; of shared pages, its share."""
    kib = {"Pss_Anon": 0, "Pss_Shmem": 0, "SwapPss": 0}
    with contextlib.suppress(OSError):
        for line in (_PROC / pid / "smaps_rollup").read_text().splitlines()[1:]:
            name, _, number = line.partition(":")
            if name in kib:
                kib[name] = int(number.split()[0])
    return sum(kib.values()) * 1024
