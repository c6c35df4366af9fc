"""What every target answers, whatever compiler is behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from assay.model.target import Availability, DeviceModel, TargetName

if TYPE_CHECKING:
    from assay.targets.jax_internals import Device


@runtime_checkable
class Target(Protocol):
    """A compiler and its devices.

    Laws: `availability` is fast, starts no backend and never raises; `check` really compiles
    and never raises either; `devices` gives at least one device or raises TargetUnavailable,
    and gives the same devices each time in one process.
    """

    @property
    def name(self) -> TargetName:
        """The name that baselines and reports know this target by."""

    @property
    def model(self) -> DeviceModel | None:
        """What is known of the device; None where the machine itself says."""

    @property
    def platform(self) -> str:
        """The platform to lower for, in jax's word: `cpu`, `cuda` or `tpu`."""

    @property
    def executes(self) -> bool:
        """Whether compiled programs can be run, not compiled only."""

    def availability(self) -> Availability:
        """What seems to be possible here, by what is installed and plugged in."""

    def check(self) -> Availability:
        """What is possible here, by compiling a program of one operation."""

    def devices(self) -> tuple[Device, ...]:
        """The devices to compile for. Raises TargetUnavailable where there are none."""
