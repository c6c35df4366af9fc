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
    before = os.getpriority(os.PRIO_PROCESS, 0)
    _set_nice(_FIRST)
    try:
        yield
    finally:
        _set_nice(before)


def _set_nice(value: int) -> None:
    with suppress(OSError):
        _SESSION.write_text(str(value))
    for thread in _THREADS.iterdir():
        # It may have ended, or be another's to change.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), value)


def _cpu() -> str:
    lines = _word(Path("/proc/cpuinfo")).splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, os.uname().machine)


def _word(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
