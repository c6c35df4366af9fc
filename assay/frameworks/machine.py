"""What times are taken on, as far as the machine tells an ordinary user."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from assay.model.timing import Machine

_CPU = Path("/sys/devices/system/cpu")
_GOVERNOR = _CPU / "cpu0/cpufreq/scaling_governor"
_NVIDIA = Path("/sys/module/nvidia/version")
_THREADS: Final = Path("/proc/self/task")
_SESSION: Final = Path("/proc/self/autogroup")
_FIRST: Final = -20
"""The nice value of what the scheduler runs before all else."""


def machine(device: Any) -> Machine:
    """The machine as it is now; ``device`` is jax's own object."""
    is_gpu = device.platform == "gpu"
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        device=device.device_kind,
        governor=_word(_GOVERNOR),
        driver=_word(_NVIDIA) if is_gpu else "",
        load=os.getloadavg()[0],
    )


def throttles() -> int | None:
    """How often the processors slowed down for heat since they were started, if they count it."""
    counts = [_word(file) for file in _CPU.glob("cpu*/thermal_throttle/core_throttle_count")]
    return sum(map(int, counts)) if counts and all(counts) else None


@contextmanager
def run_first() -> Iterator[None]:
    """Have the scheduler run this process before others, where it may: as root, or CAP_SYS_NICE.

    Elsewhere nothing changes. Linux weighs the sessions first (sched(7), "The autogroup feature"),
    then the threads of each.
    """
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    session = _word(_SESSION).rpartition(" ")[2]  # "/autogroup-7885 nice 0"
    before = {thread: _nice(thread, usual) for thread in _threads()}
    _set_session(str(_FIRST))
    for thread in before:
        _set_nice(thread, _FIRST)
    try:
        yield
    finally:
        for thread in _threads():
            _set_nice(thread, before.get(thread, usual))
        _set_session(session)


def _threads() -> list[int]:
    return [int(thread.name) for thread in _THREADS.iterdir()]


def _nice(thread: int, usual: int) -> int:
    try:
        return os.getpriority(os.PRIO_PROCESS, thread)
    except OSError:  # It has ended.
        return usual


def _set_nice(thread: int, value: int) -> None:
    # It may have ended, or may not be changed.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, value)


def _set_session(nice: str) -> None:
    with suppress(OSError):
        _SESSION.write_text(nice)


def _cpu() -> str:
    lines = _word(Path("/proc/cpuinfo")).splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, os.uname().machine)


def _word(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
