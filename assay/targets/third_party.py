"""Targets from other packages, through the entry point group `assay.targets`.

An entry point is a Target, several, or a function without arguments that returns them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from assay.model.target import (
    Availability,
    DeviceModel,
    TargetName,
    TargetUnavailable,
    unavailable,
)
from assay.targets.target import Target

if TYPE_CHECKING:
    from assay.targets.jax_internals import Device

GROUP = "assay.targets"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenTarget:
    """Stands in for an entry point that gives no target, and says why."""

    name: TargetName
    why: Availability
    model: DeviceModel | None = None
    platform: str = "none"
    executes: bool = False

    def availability(self) -> Availability:
        """Unavailable: what went wrong with the entry point."""
        return self.why

    def check(self) -> Availability:
        """Unavailable: what went wrong with the entry point."""
        return self.why

    def devices(self) -> tuple[Device, ...]:
        """None, ever."""
        raise TargetUnavailable(str(self.name), self.why)


def third_party_targets(reserved: Collection[str]) -> tuple[Target, ...]:
    """The targets of every installed package, with a BrokenTarget for each that is none.

    `reserved` are the models that no package may name a target after.
    """
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple(_admitted(point, it, reserved) for point in points for it in _loaded(point))


def _loaded(point: EntryPoint) -> tuple[object, ...]:
    try:
        loaded = point.load()
        made = loaded() if callable(loaded) else loaded
        return tuple(made) if isinstance(made, Iterable) else (made,)
    except Exception as error:  # noqa: BLE001 - someone else's code; whatever it raises is a reason
        return (_broken(point, f"{type(error).__name__}: {error}"),)


def _admitted(point: EntryPoint, candidate: object, reserved: Collection[str]) -> Target:
    if not (isinstance(candidate, Target) and isinstance(candidate.name, TargetName)):
        return _broken(point, f"got {candidate!r}, wanted an assay.targets.Target")
    if candidate.name.model in reserved:
        return _broken(point, f"got the name {candidate.name}, which is Assay's own")
    return candidate


def _broken(point: EntryPoint, reason: str) -> BrokenTarget:
    owner = point.dist.name if point.dist else point.value
    slug = re.sub(r"[^a-z]+", "-", point.name.lower()).strip("-")
    return BrokenTarget(
        name=TargetName(model=f"broken-{slug}" if slug else "broken"),
        why=unavailable(
            f"entry point {point.name} = {point.value} fails: {reason}",
            f"fix, upgrade or uninstall {owner}",
        ),
    )
