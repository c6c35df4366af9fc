"""Devices of a target: those of this machine, and those that exist for a compiler alone."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from assay.model.process import Process, is_loopback
from assay.model.target import (
    DeviceModel,
    Kind,
    TargetName,
    TargetUnavailable,
    Unavailable,
)
from assay.targets import emulation
from assay.targets.presence import (
    PLATFORM,
    cpu_device_count,
    diagnose,
    environment,
    missing_compiler,
    missing_device,
    missing_platform,
)

if TYPE_CHECKING:
    from jax import Device

_FORCED_COUNT: Final = "xla_force_host_platform_device_count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A compiler and its devices. Two targets of one name are equal.

    ``platform`` is jax's word for the kind: `cpu`, `cuda` or `tpu`. ``executes`` says whether
    compiled programs can be run. ``model`` is None where the machine itself says what it has.

    ``unavailable`` says why the target cannot be used here, by what is installed and plugged in;
    None if it seems usable. It is fast, starts no backend and never raises. ``devices`` gives the
    devices to compile for, at least one and the same ones each time in one process. It raises
    TargetUnavailable where there are none.
    """

    name: TargetName
    platform: str
    executes: bool
    model: DeviceModel | None = None
    unavailable: Callable[[], Unavailable | None] = field(compare=False, repr=False)
    devices: Callable[[], tuple[Device, ...]] = field(compare=False, repr=False)


def check(target: Target) -> Unavailable | None:
    """Why `target` does not compile a program of one operation here, or None. Never raises."""
    try:
        device = target.devices()[0]
        import jax

        here = jax.sharding.SingleDeviceSharding(device)
        # On a GPU, a sine needs the PTX assembler and libdevice, as most programs do.
        program = jax.jit(jax.lax.sin, in_shardings=here, out_shardings=here)
        argument = jax.ShapeDtypeStruct((8, 128), "float32")
        program.trace(argument).lower(lowering_platforms=(target.platform,)).compile()
    except TargetUnavailable as error:
        return error.why
    except Exception as error:  # noqa: BLE001 - a compiler may raise any exception
        return diagnose(error)
    return None


def live_target(name: TargetName, kind: Kind) -> Target:
    """The devices of `kind` that jax has: as many as the name says, or all; of a CPU, one."""
    return Target(
        name=name,
        platform=PLATFORM[kind],
        executes=True,
        unavailable=lambda: missing_compiler(kind) or missing_device(kind),
        devices=lambda: live_devices(name, kind),
    )


def live_devices(name: TargetName, kind: Kind) -> tuple[Device, ...]:
    """The first devices of the kind, as many as the name asks for. Raises TargetUnavailable."""
    if missing := missing_device(kind):
        raise TargetUnavailable(str(name), missing)
    try:
        import jax

        request_cpu_devices(cpu_device_count([name]))
        found = tuple(jax.devices(kind))
    except (AssertionError, ImportError, RuntimeError) as error:
        why = missing_platform(os.environ.get("JAX_PLATFORMS", "")) or diagnose(error)
        raise TargetUnavailable(str(name), why) from error
    present = len(found)
    (wanted,) = name.topology or (1 if kind == "cpu" else present,)
    owned: dict[int, list[Device]] = {}
    for device in found:
        owned.setdefault(device.process_index, []).append(device)
    if wanted % len(owned):
        reason = f"{wanted} devices cannot be shared equally by {len(owned)} processes"
        remedy = f"ask for a number of devices that {len(owned)} divides"
        raise TargetUnavailable(str(name), Unavailable(reason, remedy))
    if present < wanted:
        remedy = (
            f"before jax starts, set jax_num_cpu_devices (or {_FORCED_COUNT} in XLA_FLAGS, which "
            f"has precedence) to {wanted}"
            if kind == "cpu"
            else f"ask for {kind}:{present} or fewer"
        )
        reason = f"jax runs with {present} {kind} devices, and the name asks for {wanted}"
        raise TargetUnavailable(str(name), Unavailable(reason, remedy))
    # Of several processes, each has the same share.
    share = wanted // len(owned)
    return tuple(device for devices in owned.values() for device in devices[:share])


def compile_only_target(name: TargetName, model: DeviceModel) -> Target:
    """Devices of `model` in the topology of `name`, which exist for the compiler alone."""
    return Target(
        name=name,
        platform=PLATFORM[model.kind],
        executes=False,
        model=model,
        unavailable=lambda: missing_compiler(model.kind),
        devices=lambda: _topology_devices(name, model),
    )


@functools.cache
def _topology_devices(name: TargetName, model: DeviceModel) -> tuple[Device, ...]:
    """Cached, because devices of two equal topologies differ."""
    try:
        from jax.experimental import topologies

        request_cpu_devices(cpu_device_count([]))
        topology = topologies.get_topology_desc(**topology_options(name, model))
        devices = tuple(topology.devices)
    except (ImportError, RuntimeError, ValueError) as error:
        raise TargetUnavailable(str(name), diagnose(error)) from error
    if model.kind == "gpu":
        emulation.keep_memory_kinds()
        emulation.check_memory_kinds(devices[0])
    return devices


def topology_options(name: TargetName, model: DeviceModel) -> dict[str, str]:
    """The arguments of ``jax.experimental.topologies.get_topology_desc`` for the devices."""
    if model.kind == "gpu":
        return {
            "platform": PLATFORM[model.kind],
            "topology_name": name.model,
            "target_config": text_proto(model.compiler),
            # partitions x hosts x devices: one host of all devices
            "topology": f"1x1x{name.topology_text or 1}",
        }
    options = {field: str(value) for field, value in model.compiler.items()}
    topology_name = f"{options['topology_name']}:{name.topology_text}"
    return {"platform": PLATFORM[model.kind], **options, "topology_name": topology_name}


def text_proto(message: Mapping[str, object]) -> str:
    """`message` in protobuf's text format: mappings are messages, lists repeated fields.

    Raises TypeError for a value that JSON does not have either, such as a date.
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


def prepare(names: Iterable[TargetName], process: Process | None = None) -> None:
    """Prepare this process for the targets `names`: environment, platforms, CPU devices.

    Has its full effect only before jax starts a backend; what the user has set stays. With
    `process`, jax is started, and its devices are those of all processes: each has its share of
    the CPU devices.
    """
    names = tuple(names)
    os.environ.update(environment(names, os.environ))
    settings = _settings()
    if settings.jax_platforms is None:  # jax was imported before the environment was set
        settings.update("jax_platforms", os.environ["JAX_PLATFORMS"])
    request_cpu_devices(-(-cpu_device_count(names) // (process.count if process else 1)))
    emulation.keep_memory_kinds()
    if process:
        _join(process)


def _join(process: Process) -> None:
    """Start jax in this process, together with all others of the group."""
    import jax

    address = f"[{process.host}]" if ":" in process.host else process.host
    address = f"{address}:{process.port}"
    _settings().update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=address,
        # With a loopback host, the coordinator listens only there; else on all interfaces.
        coordinator_bind_address=address if is_loopback(process.host) else None,
        num_processes=process.count,
        process_id=process.index,
        local_device_ids=list(process.local_devices) or None,
        cluster_detection_method="deactivate",
    )
    jax.devices()  # All processes wait here for the devices of all.


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
