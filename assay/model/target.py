"""Targets: a compiler and the device that it compiles for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why a target or a toolchain cannot do something, and what would fix it."""

    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; do this: {self.remedy}" if self.remedy else self.reason


class TargetUnavailable(TargetError):
    """A well-formed target is unavailable on this machine."""

    def __init__(self, target: str, why: Unavailable) -> None:
        super().__init__(target, why)
        self.target = target
        self.why = why

    def __str__(self) -> str:
        return f"target {self.target} is unavailable: {self.why}"


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
    compiler: Mapping[str, object] = field(hash=False, default_factory=dict)
    sources: Mapping[str, str] = field(hash=False, default_factory=dict)
