"""Targets: a compiler and the device that it compiles for."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Kind = Literal["cpu", "gpu", "tpu"]

LIVE_MODELS = ("cpu", "gpu", "tpu")
"""Models of targets that run programs on a device of this machine."""

_PART = re.compile(r"[a-z0-9_]+")
_TOPOLOGY = re.compile(r"[1-9][0-9]*(x[1-9][0-9]*)*")
NAME_SHAPE = (
    "a model, then ':' and a topology of positive sizes, "
    "such as cpu:8, gpu, gpu-h100:8 or tpu-v5e:2x4"
)


class TargetError(ValueError):
    """A wrong target. Says what was given, what is accepted and what to do."""


def misuse(*, got: str, wanted: str, do: str) -> TargetError:
    """The error for a wrong target."""
    return TargetError(f"got {got}; wanted {wanted}; do this: {do}")


class State(enum.Enum):
    """What a target can do on this machine: run programs, only compile them, or neither."""

    LIVE = "live"
    COMPILE_ONLY = "compile-only"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """What a target can do on this machine; if nothing, why, and what to do about it."""

    state: State
    reason: str = ""
    remedy: str = ""

    def __post_init__(self) -> None:
        if (self.state is State.UNAVAILABLE) != bool(self.reason and self.remedy):
            raise misuse(
                got=f"state {self.state.value} with reason {self.reason!r}, remedy {self.remedy!r}",
                wanted="a reason and a remedy exactly when unavailable",
                do="say why the target is unavailable, and what fixes it",
            )


def unavailable(reason: str, remedy: str) -> Availability:
    """The Availability of an unavailable target."""
    return Availability(state=State.UNAVAILABLE, reason=reason, remedy=remedy)


class TargetUnavailable(TargetError):
    """A well-formed target is unavailable on this machine."""

    def __init__(self, target: str, availability: Availability) -> None:
        super().__init__(target, availability)
        self.target = target
        self.availability = availability

    def __str__(self) -> str:
        why = self.availability
        return f"target {self.target} is unavailable: {why.reason}; do this: {why.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TargetName:
    """A device model and a topology; `parse(str(name)) == name`.

    An empty topology means one device to compile for, or all devices of a live target.
    No part of a model's name looks like a topology.
    """

    model: str
    topology: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        parts = self.model.split("-")
        if not (
            all(_PART.fullmatch(part) and not _TOPOLOGY.fullmatch(part) for part in parts)
            and all(size > 0 for size in self.topology)
        ):
            raise _malformed(str(self))

    @classmethod
    def parse(cls, text: str) -> TargetName:
        """The name in `text`. Raises TargetError if it is malformed."""
        model, colon, topology = text.partition(":")
        if colon and not _TOPOLOGY.fullmatch(topology):
            raise _malformed(text)
        return cls(model=model, topology=tuple(map(int, topology.split("x"))) if colon else ())

    def __str__(self) -> str:
        return f"{self.model}:{self.topology_text}" if self.topology else self.model

    @property
    def topology_text(self) -> str:
        """The topology as text, `2x4`."""
        return "x".join(map(str, self.topology))


def _malformed(text: str) -> TargetError:
    return misuse(got=repr(text), wanted=NAME_SHAPE, do="see `assay targets` for the names")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """One device as the compiler sees it (a core, if the compiler splits the chip).

    `memory_bytes` is what programs can use; `nominal_memory_bytes` is the vendor's number.
    The host link counts one direction. `on_chip_memory_bytes` is the memory outside the main memory
    in which the compiler places temporaries; 0 if it places none. `compiler` is passed to the
    compiler unchanged. `sources` names the origin of every number, by field.
    """

    name: str
    kind: Kind
    title: str
    default_topology: tuple[int, ...]
    memory_bytes: int
    nominal_memory_bytes: int
    memory_bandwidth_bytes_per_second: int
    host_link_bandwidth_bytes_per_second: int | None = None
    peak_bf16_flops_per_second: int | None = None
    on_chip_memory_bytes: int = 0
    compiler: Mapping[str, object] = field(hash=False, default_factory=lambda: MappingProxyType({}))
    sources: Mapping[str, str] = field(hash=False, default_factory=lambda: MappingProxyType({}))
