"""What every framework reads alike: arrays, memory statistics, and the devices of a number."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from assay.model.evidence import Memory, Tensor


def memory_of(stats: Any) -> Memory:
    """The compiler's memory analysis, bytes per device."""
    return Memory(
        temp_bytes=stats.temp_size_in_bytes,
        argument_bytes=stats.argument_size_in_bytes,
        output_bytes=stats.output_size_in_bytes,
        alias_bytes=stats.alias_size_in_bytes,
        host_temp_bytes=stats.host_temp_size_in_bytes,
        host_argument_bytes=stats.host_argument_size_in_bytes,
        host_output_bytes=stats.host_output_size_in_bytes,
        host_alias_bytes=stats.host_alias_size_in_bytes,
        reported_peak_bytes=getattr(stats, "peak_memory_in_bytes", None),
    )


def tensor_of(path: str, leaf: Any) -> Tensor:
    """An array, or what numpy makes one of, by the name that it has among results."""
    array = np.asarray(leaf)  # tobytes is row-major whatever the strides
    return Tensor(path=path, dtype=array.dtype.name, shape=array.shape, data=array.tobytes())


class Misplaced(RuntimeError):
    """What was measured belongs to other devices than the target's; a fault of Assay."""


def check_placement(used: Iterable[Hashable], target: Iterable[Hashable]) -> None:
    """Raise ``Misplaced`` unless the target has every device that an executable or a result uses.

    Every framework calls this for everything that it compiles, runs or times.
    """
    wanted = set(target)
    foreign = set(used) - wanted
    if foreign:
        raise Misplaced(
            f"got a measurement on {_names(foreign)}, wanted one on the target's devices, "
            f"{_names(wanted)}; this would be a verdict on another compiler: report it"
        )


def _names(devices: Iterable[Hashable]) -> str:
    names = sorted(map(str, devices))
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if names[2:] else "")
