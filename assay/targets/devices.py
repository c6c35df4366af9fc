"""Devices of a target: those of this machine, and those that exist for a compiler alone."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

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
    PLATFORM,
    cpu_device_count,
    diagnose,
    environment,
    missing_compiler,
    missing_device,
)

if TYPE_CHECKING:
    from assay.targets.jax_internals import Device

_FORCED_COUNT: Final = "xla_force_host_platform_device_count"


@runtime_checkable
class Target(Protocol):
    """A compiler and its devices.

    Laws: `availability` is fast, starts no backend and never raises; `devices` gives at least one
    device or raises TargetUnavailable, and gives the same devices each time in one process.
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

    def devices(self) -> tuple[Device, ...]:
        """The devices to compile for. Raises TargetUnavailable where there are none."""


def check(target: Target) -> Availability:
    """What is possible on `target` here, by compiling a program of one operation. Never raises."""
    try:
        device = target.devices()[0]
        import jax

        here = jax.sharding.SingleDeviceSharding(device)
        # On a GPU, a sine needs the PTX assembler and libdevice, as most programs do.
        program = jax.jit(jax.lax.sin, in_shardings=here, out_shardings=here)
        argument = jax.ShapeDtypeStruct((8, 128), "float32")
        program.trace(argument).lower(lowering_platforms=(target.platform,)).compile()
    except TargetUnavailable as error:
        return error.availability
    except Exception as error:  # noqa: BLE001 - a compiler may raise any exception
        return diagnose(error)
    return Availability(state=State.LIVE if target.executes else State.COMPILE_ONLY)


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
        return PLATFORM[self.kind]

    def availability(self) -> Availability:
        """Live where jax, the plugin and a device are present."""
        missing = missing_compiler(self.kind) or missing_device(self.kind)
        return missing or Availability(state=State.LIVE)

    def devices(self) -> tuple[Device, ...]:
        """The first devices of the kind, as many as the name asks for."""
        if missing := missing_device(self.kind):
            raise TargetUnavailable(str(self.name), missing)
        try:
            import jax

            request_cpu_devices(cpu_device_count([self.name]))
            found = tuple(jax.devices(self.kind))
        except (ImportError, RuntimeError) as error:
            raise TargetUnavailable(str(self.name), diagnose(error)) from error
        default = (1,) if self.kind == "cpu" else (len(found),)
        (wanted,) = self.name.topology or default
        if len(found) < wanted:
            raise TargetUnavailable(str(self.name), _too_few(self.kind, len(found), wanted))
        return found[:wanted]


def _too_few(kind: Kind, present: int, wanted: int) -> Availability:
    return unavailable(
        f"jax runs with {present} {kind} devices, and the name asks for {wanted}",
        f"before jax starts, set jax_num_cpu_devices (or {_FORCED_COUNT} in XLA_FLAGS, which has "
        f"precedence) to {wanted}"
        if kind == "cpu"
        else f"ask for {kind}:{present} or fewer",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOnlyTarget:
    """Devices of `model` in the topology of `name`, which exist for the compiler alone."""

    name: TargetName
    model: DeviceModel
    executes: bool = False

    @property
    def platform(self) -> str:
        """The platform to lower for."""
        return PLATFORM[self.model.kind]

    def availability(self) -> Availability:
        """Compile-only where the compiler is installed."""
        return missing_compiler(self.model.kind) or Availability(state=State.COMPILE_ONLY)

    def devices(self) -> tuple[Device, ...]:
        """The devices of the topology. Raises TargetUnavailable where the compiler refuses it."""
        return _devices(self)


@functools.cache
def _devices(target: CompileOnlyTarget) -> tuple[Device, ...]:
    """Cached, because devices of two equal topologies differ."""
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
    """What the compiler's plugin needs to create the topology."""
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


def text_proto(message: Mapping[str, object]) -> str:
    """`message` in protobuf's text format: mappings are messages, lists repeated fields.

    Raises TypeError for a value that is not a number, string, truth value, mapping or list.
    """
    return "".join(f"{line}\n" for line in _lines(message))


def _lines(message: Mapping[str, object]) -> Iterator[str]:
    for name, value in message.items():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, Mapping):
                yield f"{name} {{"
                yield from (f"  {line}" for line in _lines(item))
                yield "}"
            else:
                yield f"{name}: {json.dumps(item)}"


def prepare(names: Iterable[TargetName]) -> None:
    """Prepare this process for the targets `names`: environment, platforms, CPU devices.

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
    """Ask jax for `count` CPU devices or more, if its backends have not started.

    A count that the user forces in XLA_FLAGS stays: jax refuses both settings together.
    """
    settings = _settings()
    is_forced = _FORCED_COUNT in os.environ.get("XLA_FLAGS", "")
    if not is_forced and settings.jax_num_cpu_devices < count:
        with contextlib.suppress(RuntimeError):  # the backends run: `devices` will count them
            settings.update("jax_num_cpu_devices", count)


def _settings() -> Any:
    """Jax's configuration; its attributes are made at run time, so no type knows them."""
    import jax

    return jax.config
