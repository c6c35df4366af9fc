"""The target's devices and memory kinds in jax: code for the real machine runs unmodified."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from assay.targets.jax_internals import InternalsMoved, device_list_type, mesh_makers, mesh_setter

if TYPE_CHECKING:
    from jax import Device

GPU_MEMORY_KINDS: Final = ("device", "pinned_host")
"""What jax lists for a live GPU, its default first (XLA, pjrt/gpu/se_gpu_pjrt_client.cc)."""

_GPU_PLATFORMS: Final = ("gpu", "cuda")
_LISTED: Final = "_internal_device_list"
_ASSIGNED: Final = "_device_assignment"


def keep_memory_kinds() -> None:
    """Make shardings keep their memory kind on GPU topologies, where jaxlib drops it.

    Such a topology lists no memories, and jaxlib then replaces every kind by None, even one that
    does not exist. Shardings made after this call get devices that list what a live GPU lists, so
    jax itself checks the kind, lowers it and matches donations by it.
    """
    try:
        shardings = importlib.import_module("jax._src.sharding_impls")
        mesh = importlib.import_module("jax._src.mesh").Mesh
        single, many = shardings.SingleDeviceSharding, shardings.GSPMDSharding
        devices_of_mesh = mesh.__dict__[_LISTED]
    except (ImportError, AttributeError, KeyError):
        raise InternalsMoved("SingleDeviceSharding, GSPMDSharding and Mesh") from None
    if isinstance(single, _KeepsKinds):
        return
    listed = property(lambda self: _listed(devices_of_mesh.__get__(self, mesh)))
    setattr(mesh, _LISTED, listed)
    for name, original in (("SingleDeviceSharding", single), ("GSPMDSharding", many)):
        kept = _KeepsKinds(name, (), {"original": original})
        _use_real_devices(original)
        # Who imported the class before, by any name, must not go on with the one that drops kinds.
        for module in tuple(sys.modules.values()):
            for own, value in tuple(getattr(module, "__dict__", {}).items()):
                if value is original:
                    setattr(module, own, kept)


def check_memory_kinds(device: Device) -> None:
    """Raise InternalsMoved where a sharding on this device would lose its memory kind."""
    import jax

    for kind in GPU_MEMORY_KINDS:
        here = jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
        if here.memory_kind != kind:
            raise InternalsMoved("shardings that keep memory kinds on a GPU topology")


class _KeepsKinds(type):
    """Stands for a class of shardings: makes instances of it whose devices list memories."""

    original: Any

    def __call__(cls, *given: Any, **named: Any) -> Any:
        # The devices come first, or by the name of device or devices.
        listed = {key: _listed(each) if "device" in key else each for key, each in named.items()}
        return cls.original(*map(_listed, given[:1]), *given[1:], **listed)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.original, name)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.original)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.original)

    def get_replicated(cls, devices: Any, **named: Any) -> Any:
        return cls.original.get_replicated(_listed(devices), **named)


class _Memory(str):
    """A memory kind; jaxlib reads ``kind`` of the default memory and compares the others."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        return str(self)


class _ListsMemories:
    """A device of a GPU topology that lists the memories of a live GPU, and is equal to it.

    jaxlib takes any Python object for a device and asks it for its memories (``PyDeviceList``).
    """

    def __init__(self, real: Device) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __eq__(self, other: object) -> bool:
        return bool(self.real == _real(other))

    def __hash__(self) -> int:
        return hash(self.real)

    def __repr__(self) -> str:
        return repr(self.real)

    def default_memory(self) -> _Memory:
        return _Memory(GPU_MEMORY_KINDS[0])

    def addressable_memories(self) -> list[_Memory]:
        return [_Memory(kind) for kind in GPU_MEMORY_KINDS]


def _listed(devices: Any) -> Any:
    """The device, or the list of devices, with memories where its topology lists none."""
    many = isinstance(devices, device_list_type() | tuple | list)
    if many and not len(devices):
        return devices
    first = devices[0] if many else devices
    if isinstance(first, _ListsMemories) or first.platform not in _GPU_PLATFORMS:
        return devices
    if first.addressable_memories():
        return devices
    return _listed_many(tuple(devices)) if many else _ListsMemories(devices)


@functools.cache
def _listed_many(devices: tuple[Device, ...]) -> Any:
    return device_list_type()(tuple(map(_ListsMemories, devices)))


def _real(device: Any) -> Any:
    return device.real if isinstance(device, _ListsMemories) else device


def _use_real_devices(sharding: Any) -> None:
    """Make the class say its real devices where jax compiles for them."""
    assigned = sharding.__dict__[_ASSIGNED]

    def real_devices(self: Any) -> tuple[Any, ...]:
        return tuple(map(_real, assigned.__get__(self, sharding)))

    setattr(sharding, _ASSIGNED, property(real_devices))
    sharding.device_set = property(lambda self: set(real_devices(self)))


if TYPE_CHECKING:
    from assay.targets.jax_internals import Device

_SPELLINGS = {"gpu": {"gpu", "cuda"}}


class _Asked:
    """A module with another answer to one question."""

    def __init__(self, module: ModuleType, question: str, answer: Callable[..., Any]) -> None:
        self._module = module
        setattr(self, question, answer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@contextmanager
def mesh_settable() -> Iterator[None]:
    """Let ``jax.set_mesh`` be used by code that is traced although it was written to be run."""
    module = mesh_setter()
    answer = _Asked(module.core, "trace_state_clean", lambda: True)
    with patch.object(module, "core", answer):
        yield


@contextmanager
def emulated(devices: Sequence[Device]) -> Iterator[None]:
    """Have jax name these devices as the machine's own.

    ``jax.devices``, ``local_devices``, ``device_count``, ``local_device_count`` and
    ``default_backend`` answer for them, and so do ``jax.make_mesh`` and ``mesh_utils``. A question
    about another platform by name is answered as usual. Arrays stay on jax's default device.
    """
    import jax

    platform = devices[0].platform
    meant = {None, *_SPELLINGS.get(platform, {platform})}

    def devices_of(known: Callable[..., Any]) -> Callable[..., Any]:
        def answer(backend: Any = None) -> Any:
            return list(devices) if backend in meant else known(backend)

        return answer

    def local_devices(process_index: int | None = None, backend: Any = None, **rest: Any) -> Any:
        if process_index is None and backend in meant:
            return list(devices)
        return known_local(process_index, backend, **rest)

    def count_of(known: Callable[..., int]) -> Callable[..., int]:
        def answer(backend: Any = None) -> int:
            return len(devices) if backend in meant else known(backend)

        return answer

    known_local = jax.local_devices
    answers: tuple[tuple[ModuleType, str, Any], ...] = (
        (jax, "devices", devices_of(jax.devices)),
        (jax, "local_devices", local_devices),
        (jax, "device_count", count_of(jax.device_count)),
        (jax, "local_device_count", count_of(jax.local_device_count)),
        (jax, "default_backend", lambda: platform),
        # Not their ``xb.devices`` itself, which also says where arrays go.
        *(
            (each, "xb", _Asked(each.xb, "devices", devices_of(each.xb.devices)))
            for each in mesh_makers()
        ),
    )
    with ExitStack() as stack:
        for module, name, answer in answers:
            stack.enter_context(patch.object(module, name, answer))
        yield
