"""Devices of a target: those of this machine, and those that a compiler alone stands for."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from assay.model.target import (
    Availability,
    DeviceModel,
    Kind,
    State,
    TargetName,
    TargetUnavailable,
    unavailable,
)
from assay.targets import emulation
from assay.targets.presence import (
    cpu_device_count,
    diagnose,
    environment,
    missing_compiler,
    missing_device,
)

if TYPE_CHECKING:
    from assay.targets.jax_internals import Device


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


_PLATFORM: Mapping[Kind, str] = MappingProxyType({"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"})
_FORCED_COUNT = "xla_force_host_platform_device_count"


def prepare(names: Iterable[TargetName]) -> None:
    """Readies this process for the targets `names`: environment, platforms, CPU devices.

    Has its full effect only before jax starts a backend; what the user has set stays.
    """
    names = tuple(names)
    os.environ.update(environment(names, os.environ))
    settings = _settings()
    if settings.jax_platforms is None:  # jax was imported before the environment was set
        settings.update("jax_platforms", os.environ["JAX_PLATFORMS"])
    request_cpu_devices(cpu_device_count(names))
    emulation.keep_memory_kinds()


def request_cpu_devices(count: int) -> None:
    """Asks jax for `count` CPU devices or more, if it can still be asked.

    A count that the user forces in XLA_FLAGS is honoured: the two settings collide.
    """
    settings, flags = _settings(), os.environ.get("XLA_FLAGS", "")
    if _FORCED_COUNT in flags:
        return
    if not hasattr(settings, "jax_num_cpu_devices"):  # before jax 0.5 there is the flag alone
        os.environ["XLA_FLAGS"] = f"{flags} --{_FORCED_COUNT}={count}".strip()
    elif settings.jax_num_cpu_devices < count:
        with contextlib.suppress(RuntimeError):  # the backends run: `devices` will count them
            settings.update("jax_num_cpu_devices", count)


def _settings() -> Any:
    """Jax's configuration; its attributes are made at run time, so no type knows them."""
    import jax

    return jax.config


def verdict_of_a_compile(target: Target, state: State) -> Availability:
    """`state` if a program of one operation compiles for `target`, else what stands against it."""
    try:
        _compile_one_operation(target.devices()[0], target.platform)
    except TargetUnavailable as error:
        return error.availability
    except Exception as error:  # noqa: BLE001 - a compiler raises what it likes; all is a reason
        return diagnose(error)
    return Availability(state=state)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTarget:
    """The devices of `kind` in this process: a number of them, or all; of a CPU, one."""

    name: TargetName
    kind: Kind
    model: DeviceModel | None = None
    executes: bool = True

    @property
    def platform(self) -> str:
        """The platform to lower for."""
        return _PLATFORM[self.kind]

    def availability(self) -> Availability:
        """Live where jax, the plugin and a device are there."""
        fault = missing_compiler(self.kind) or missing_device(self.kind)
        return fault.availability if fault else Availability(state=State.LIVE)

    def check(self) -> Availability:
        """Live where a program compiles for a device that is there."""
        return verdict_of_a_compile(self, State.LIVE)

    def devices(self) -> tuple[Device, ...]:
        """The first devices of the kind, as many as the name asks for."""
        if fault := missing_device(self.kind):
            raise TargetUnavailable(str(self.name), fault.availability)
        found = _started_devices(self.name, self.kind)
        wanted = self.name.topology[0] if self.name.topology else self._default_count(len(found))
        if len(found) < wanted:
            raise TargetUnavailable(str(self.name), _too_few(self.kind, len(found), wanted))
        return found[:wanted]

    def _default_count(self, present: int) -> int:
        return 1 if self.kind == "cpu" else present


def _started_devices(name: TargetName, kind: Kind) -> tuple[Device, ...]:
    try:
        import jax

        request_cpu_devices(cpu_device_count([name]))
        return tuple(jax.devices(kind))
    except (ImportError, RuntimeError) as error:
        raise TargetUnavailable(str(name), diagnose(error)) from error


def _too_few(kind: Kind, present: int, wanted: int) -> Availability:
    reason = f"jax runs with {present} {kind} devices, and the name asks for {wanted}"
    if kind != "cpu":
        return unavailable(reason, f"ask for {kind}:{present} or fewer")
    return unavailable(
        reason,
        f"before jax starts, set jax_num_cpu_devices (or {_FORCED_COUNT} in XLA_FLAGS, "
        f"which wins over it) to {wanted}",
    )


def _compile_one_operation(device: Device, platform: str) -> None:
    import jax

    here = jax.sharding.SingleDeviceSharding(device)
    # a sine: on a GPU it takes the PTX assembler and libdevice, as most programs do
    program = jax.jit(jax.lax.sin, in_shardings=here, out_shardings=here)
    argument = jax.ShapeDtypeStruct((8, 128), "float32")
    program.trace(argument).lower(lowering_platforms=(platform,)).compile()
