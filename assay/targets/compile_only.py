"""Targets without a device: the GPU and TPU compilers with a device model and a topology."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.model.target import Availability, DeviceModel, State, TargetName, TargetUnavailable
from assay.targets import emulation
from assay.targets.live import request_cpu_devices, verdict_of_a_compile
from assay.targets.presence import cpu_device_count, diagnose, missing_compiler


def text_proto(message: Mapping[str, object]) -> str:
    """`message` in protobuf's text format: mappings are messages, lists repeated fields."""
    return "".join(f"{line}\n" for line in _lines(message))


def _lines(message: Mapping[str, object]) -> Iterator[str]:
    for name, value in message.items():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, Mapping):
                yield f"{name} {{"
                yield from (f"  {line}" for line in _lines(item))
                yield "}"
            else:
                yield f"{name}: {_scalar(name, item)}"


def _scalar(name: str, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=True)
    raise TypeError(
        f"got {value!r} for field {name}; wanted a number, string, truth value, table or list; "
        "do this: write it as one of these"
    )


if TYPE_CHECKING:
    from assay.targets.jax_internals import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOnlyTarget:
    """The devices of `model`, laid out as `name` says, as the compiler imagines them."""

    name: TargetName
    model: DeviceModel
    executes: bool = False

    @property
    def platform(self) -> str:
        """The platform to lower for."""
        return "cuda" if self.model.kind == "gpu" else "tpu"

    def availability(self) -> Availability:
        """Compile-only where the compiler is installed."""
        fault = missing_compiler(self.model.kind)
        return fault.availability if fault else Availability(state=State.COMPILE_ONLY)

    def check(self) -> Availability:
        """Compile-only where a program compiles."""
        return verdict_of_a_compile(self, State.COMPILE_ONLY)

    def devices(self) -> tuple[Device, ...]:
        """The devices of the topology. Raises TargetUnavailable where the compiler refuses it."""
        return _devices(self)


@functools.cache
def _devices(target: CompileOnlyTarget) -> tuple[Device, ...]:
    """Once per target: a topology made twice has devices that differ."""
    try:
        from jax.experimental import topologies

        request_cpu_devices(cpu_device_count([]))
        topology = topologies.get_topology_desc(platform=target.platform, **_options(target))
        devices = tuple(topology.devices)
    except (ImportError, RuntimeError, ValueError) as error:
        raise TargetUnavailable(str(target.name), diagnose(error)) from error
    if target.model.kind == "gpu":
        emulation.keep_memory_kinds()
        emulation.check_memory_kinds(devices[0])
    return devices


def _options(target: CompileOnlyTarget) -> Mapping[str, str]:
    """What the compiler's plugin takes to make the topology up."""
    name, fields = target.name, target.model.compiler
    if target.model.kind == "gpu":
        return {
            "topology_name": name.model,
            "target_config": text_proto(fields),
            # partitions x hosts x devices: one host of all devices
            "topology": f"1x1x{name.topology_text or 1}",
        }
    options = {key: str(value) for key, value in fields.items()}
    return options | {"topology_name": f"{fields['topology_name']}:{name.topology_text}"}
