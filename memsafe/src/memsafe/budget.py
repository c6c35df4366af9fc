"""A memory budget, as a user writes it and as a device has it."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

if TYPE_CHECKING:
    from jax import Device

__all__ = ["Budget", "as_number", "as_text", "device_bytes", "has_host_memory", "parsed"]

Budget = int | float | str

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parsed(asked: Budget, option: str = "budget") -> int:
    """A size in bytes, from a number of bytes or from text such as `"16GB"` or `"15.75 GiB"`.

    Raises ValueError, which names the option, if it is no size, not finite, or not positive.
    """
    nbytes = as_number(_from_words(asked) if isinstance(asked, str) else asked)
    if nbytes is None or not 1 <= nbytes < math.inf:
        raise _refused(asked, option)
    return int(nbytes)


def as_number(given: object) -> float | None:
    """A Python or numpy number as a Python number; None for a bool and everything else."""
    if isinstance(given, np.integer | np.floating):
        given = given.item()
    return given if isinstance(given, int | float) and not isinstance(given, bool) else None


def as_text(nbytes: float) -> str:
    """Bytes as people read them, such as `1.50 GB`."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(nbytes) >= scale:
            return f"{nbytes / scale:.2f} {unit}"
    return f"{nbytes:.0f} B"


def device_bytes(device: Device) -> int:
    """Bytes that `device` reports for programs; for a CPU, the machine's available memory.

    Raises ValueError if the device does not report its memory, as compile-only devices do not.
    """
    if device.platform == "cpu" and (available := _available_bytes()):
        return available
    statistics = None if device.platform == "cpu" else _statistics(device)
    if not statistics or "bytes_limit" not in statistics:
        raise ValueError(
            f"got no budget, and {device} does not report its memory size; "
            'wanted a budget; do this: memsafe(f, budget="16GB")'
        )
    return int(statistics["bytes_limit"])


def has_host_memory(device: Device) -> bool:
    """Whether arrays can wait in the memory of the device's host.

    A topology for GPUs lists no memories; a CPU's own memory is the host's.
    """
    kinds = [memory.kind for memory in device.addressable_memories()]
    return device.platform != "cpu" and (not kinds or "pinned_host" in kinds)


def _statistics(device: Device) -> dict[str, int] | None:
    try:
        return cast("dict[str, int] | None", device.memory_stats())
    except (RuntimeError, NotImplementedError):
        return None


_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def _available_bytes() -> int:
    """Bytes that this process may still take; 0 if the system does not report them.

    Linux reports `MemAvailable` (proc(5)). A container also has a limit (cgroups(7)): `memory.max`
    less the memory in use, without cached files.
    """
    try:
        available = 1024 * _named(_MEMORY, "MemAvailable:")
    except (OSError, KeyError):
        return 0
    try:
        limit = int((_GROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
        cached = _named(_GROUP / "memory.stat", "inactive_file")
    except (OSError, KeyError, ValueError):  # No container, or one without a limit.
        return available
    return max(min(available, limit - used + cached), 1)


def _named(file: Path, name: str) -> int:
    """The number of this name in a file of names and numbers."""
    lines = map(str.split, file.read_text(encoding="ascii").splitlines())
    return {line[0]: int(line[1]) for line in lines if len(line) > 1}[name]


def _from_words(asked: str) -> float | None:
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([kmgt]?i?)b?\s*", asked.lower())
    if match is None or match[2] == "i":
        return None
    return float(match[1]) * (_UNITS | _BINARY_UNITS)[match[2]]


def _refused(asked: object, option: str) -> ValueError:
    return ValueError(
        f"got {option}={asked!r}; wanted a positive number of bytes, or a size such as "
        f'"16GB" or "15.75GiB"; do this: memsafe(f, {option}="16GB")'
    )
