"""The target's devices and memory kinds in jax: code for the real machine runs unmodified."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from assay.targets.jax_internals import InternalsMoved, private

if TYPE_CHECKING:
    from jax import Device

GPU_MEMORY_KINDS: Final = ("device", "pinned_host")
"""What jax lists for a live GPU, its default first (XLA, pjrt/gpu/se_gpu_pjrt_client.cc)."""

_GPU_PLATFORMS: Final = ("gpu", "cuda")
_SHARDINGS: Final = "jax._src.sharding_impls"
_MESH_MAKERS: Final = (_SHARDINGS, "jax._src.mesh_utils")


def keep_memory_kinds() -> None:
    """Make shardings keep their memory kind on GPU topologies, where jaxlib drops it.

    Such a topology lists no memories, and jaxlib then replaces every kind by None, even one that
    does not exist. Shardings made after this call get devices that list what a live GPU lists, so
    jax itself checks the kind, lowers it and matches donations by it.
    """
    originals = [private(f"{_SHARDINGS}:{n}") for n in ("SingleDeviceSharding", "GSPMDSharding")]
    if isinstance(originals[0], _KeepsKinds):
        return
    mesh = private("jax._src.mesh:Mesh")
    _alter_property(mesh, "_internal_device_list", _listed)
    for original in originals:
        kept = _KeepsKinds(original.__name__, (), {"original": original})
        _alter_property(original, "_device_assignment", lambda devices: tuple(map(_real, devices)))
        original.device_set = property(lambda self: set(self._device_assignment))
        # Modules that imported the class earlier, by any name, must not use the original.
        for module in tuple(sys.modules.values()):
            for name, value in tuple(getattr(module, "__dict__", {}).items()):
                if value is original:
                    setattr(module, name, kept)


def check_memory_kinds(device: Device) -> None:
    """Raise InternalsMoved where a sharding on this device would lose its memory kind."""
    import jax

    for kind in GPU_MEMORY_KINDS:
        here = jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
        if here.memory_kind != kind:
            raise InternalsMoved("shardings that keep memory kinds on a GPU topology")


def _alter_property(owner: Any, name: str, alter: Callable[[Any], Any]) -> None:
    """Have the property give what ``alter`` makes of its value."""
    original = vars(owner).get(name)
    if original is None:
        raise InternalsMoved(f"{owner.__name__}.{name}")
    setattr(owner, name, property(lambda self: alter(original.__get__(self, owner))))


class _KeepsKinds(type):
    """Replaces a class of shardings, which it instantiates with devices that list memories."""

    original: Any

    def __call__(cls, *given: Any, **named: Any) -> Any:
        # The devices are the first argument, or the one named device or devices.
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
    kind = property(str)


class _ListsMemories:
    """Wraps a device of a GPU topology, is equal to it, and lists the memories of a live GPU.

    jaxlib accepts any Python object as a device and asks it for its memories (``PyDeviceList``).
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
    many = isinstance(devices, private("jaxlib._jax:DeviceList") | tuple | list)
    first = next(iter(devices), None) if many else devices
    if first is None or first.platform not in _GPU_PLATFORMS or first.addressable_memories():
        return devices
    return _listed_many(tuple(devices)) if many else _ListsMemories(devices)


@functools.cache
def _listed_many(devices: tuple[Device, ...]) -> Any:
    return private("jaxlib._jax:DeviceList")(tuple(map(_ListsMemories, devices)))


def _real(device: Any) -> Any:
    return device.real if isinstance(device, _ListsMemories) else device


class _Replaced:
    """A module with another function in place of one of its own."""

    def __init__(self, module: Any, name: str, function: Callable[..., Any]) -> None:
        self._module = module
        setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@contextmanager
def mesh_settable() -> Iterator[None]:
    """Let code that is traced use ``jax.set_mesh``, which is made for code that runs."""
    import jax

    # The module that it is defined in: ``__module__`` may name the public one.
    setter = inspect.unwrap(vars(jax.set_mesh).get("__init__", jax.set_mesh))
    place = setter.__globals__["__name__"]
    private(f"{place}:core.trace_state_clean")
    core = _Replaced(private(f"{place}:core"), "trace_state_clean", lambda: True)
    with patch(f"{place}.core", core):
        yield


def own_of(devices: Sequence[Device]) -> list[Device]:
    """The devices of this process; all of them if it belongs to no group of processes."""
    import jax

    if not jax.distributed.is_initialized():
        return list(devices)
    return [device for device in devices if device.process_index == jax.process_index()]


@contextmanager
def emulated(devices: Sequence[Device]) -> Iterator[None]:
    """Have jax name these devices as the machine's own.

    ``jax.devices``, ``local_devices``, ``device_count``, ``local_device_count`` and
    ``default_backend`` answer for them, and so do ``jax.make_mesh`` and ``mesh_utils``. A question
    about another platform by name is answered as usual. Arrays stay on jax's default device.
    """
    import jax

    platform = devices[0].platform
    meant = {None, platform, *(_GPU_PLATFORMS if platform in _GPU_PLATFORMS else ())}

    def answers(known: Callable[..., Any], answer: Callable[[], Any]) -> Callable[..., Any]:
        def answered(backend: Any = None) -> Any:
            return answer() if backend in meant else known(backend)

        return answered

    def local_devices(process_index: int | None = None, backend: Any = None, **rest: Any) -> Any:
        if process_index is None and backend in meant:
            return list(here)
        return known_local(process_index, backend, **rest)

    known_local = jax.local_devices
    here = own_of(devices)
    replaced: dict[str, Any] = {
        "jax.devices": answers(jax.devices, lambda: list(devices)),
        "jax.local_devices": local_devices,
        "jax.device_count": answers(jax.device_count, lambda: len(devices)),
        "jax.local_device_count": answers(jax.local_device_count, lambda: len(here)),
        "jax.default_backend": lambda: platform,
    }
    for module in _MESH_MAKERS:
        # Not ``xb.devices`` itself, which also decides where arrays are placed.
        known = private(f"{module}:xb.devices")
        own = answers(known, lambda: list(devices))
        replaced[f"{module}.xb"] = _Replaced(private(f"{module}:xb"), "devices", own)
    with ExitStack() as stack:
        for place, answer in replaced.items():
            stack.enter_context(patch(place, answer))
        yield
