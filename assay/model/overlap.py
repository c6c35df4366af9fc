"""Overlap: what runs while an asynchronous operation is under way."""

from dataclasses import dataclass
from enum import Enum

from assay.model.target import DeviceModel


class AsyncKind(Enum):
    """What an asynchronous operation occupies."""

    TO_HOST = "to-host"
    TO_DEVICE = "to-device"
    COPY = "copy"
    COLLECTIVE = "collective"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Floating-point operations and bytes of memory read and written, logical and as emitted."""

    flops: int = 0
    nbytes: int = 0

    def plus(self, other: "Cost") -> "Cost":
        """Both together."""
        return Cost(flops=self.flops + other.flops, nbytes=self.nbytes + other.nbytes)

    def seconds(self, model: DeviceModel) -> float:
        """The roofline's time on a device: the longer of arithmetic and memory traffic.

        A model without a peak rate is limited by its memory alone.
        """
        memory = self.nbytes / model.memory_bandwidth_bytes_per_second
        if not model.peak_bf16_flops_per_second:
            return memory
        return max(memory, self.flops / model.peak_bf16_flops_per_second)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncPair:
    """A start and its done, in the order of the schedule.

    ``nbytes`` is what one execution moves. ``between`` is the work of the instructions that the
    schedule puts between the two, loops counted with their trips; None where one of those is
    unknown, or where the module has no schedule. ``executions`` counts per run of the module: None
    if unknown, an upper bound if ``at_most``.
    """

    kind: AsyncKind
    opcode: str
    nbytes: int
    between: Cost | None
    executions: int | None
    at_most: bool
    computation: str
    start: str
    done: str
    source: str | None

    def seconds(self, model: DeviceModel) -> float | None:
        """How long the move takes on the device's links; None where the model has no such number.

        Moves to and from the host take the host link, copies within the device twice the memory.
        """
        if self.kind in {AsyncKind.TO_HOST, AsyncKind.TO_DEVICE}:
            link = model.host_link_bandwidth_bytes_per_second
            return self.nbytes / link if link else None
        if self.kind is AsyncKind.COPY:
            return 2 * self.nbytes / model.memory_bandwidth_bytes_per_second
        return None
