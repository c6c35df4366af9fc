"""What a stored number is a number of: its name, its unit, and which way it improves."""

from collections.abc import Iterable
from dataclasses import dataclass

from assay.judge.changes import Better
from assay.model.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A quantity that is compared with its accepted self; its direction is nobody else's to say."""

    name: str
    unit: Unit
    better: Better = Better.LESS

    def __str__(self) -> str:
        return f"{self.name} ({self.unit.value}, {self.better.value} is better)"


def unmatched(measured: Iterable[Metric], accepted: Iterable[Metric]) -> tuple[str, ...]:
    """Why the two sets cannot be compared one by one, a line a metric; empty if they can.

    A metric that is gone, one that no number is accepted for, and one whose unit or direction
    changed are each a failure: a comparison of what is left over would pass.
    """
    new = {metric.name: metric for metric in measured}
    old = {metric.name: metric for metric in accepted}
    lines = []
    for name in sorted(new.keys() | old.keys()):
        if name not in new:
            lines.append(
                f"{old[name]} is accepted but was not measured: measure it, or retire its number"
            )
        elif name not in old:
            lines.append(f"{new[name]} was measured but has no accepted number: accept it")
        elif new[name] != old[name]:
            lines.append(
                f"{new[name]} was accepted as {old[name]}: accept it anew under another name"
            )
    return tuple(lines)
