"""Placement: every number is measured on the devices of its target, or it is an error."""

from collections.abc import Hashable, Iterable


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
