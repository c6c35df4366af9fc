"""Where arrays lie, and where a program of them runs: where `jax.jit` would run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from memsafe.jax_internals import under_a_jit, under_named_axes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jax import Array, Device
    from jax.sharding import Sharding

__all__ = [
    "are_traced",
    "at_hand",
    "constants_place",
    "constrained",
    "described",
    "device_for",
    "mesh_axes",
    "moved",
    "says_more_than_a_device",
    "sharding_of",
]


def are_traced(values: Iterable[Any]) -> bool:
    """Whether a trace in progress made one of `values`."""
    return any(isinstance(each, jax.core.Tracer) for each in values)


def at_hand(values: Iterable[Any]) -> bool:
    """Whether these are arrays, and a call on them is no part of a trace in progress."""
    return not are_traced(values) and not under_named_axes() and not under_a_jit()


def sharding_of(each: Any) -> Any:
    """Where the user placed an argument, or asks it to be placed; None: anywhere."""
    if isinstance(each, jax.core.Tracer) or not getattr(each, "committed", True):
        return None
    sharding = getattr(each, "sharding", None)
    is_abstract = isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh)
    return None if is_abstract else sharding


def mesh_axes(sharding: NamedSharding, dim: int) -> tuple[Any, ...]:
    """The mesh axes with several devices that divide a dimension."""
    names = sharding.spec[dim] if dim < len(sharding.spec) else None
    several = names if isinstance(names, tuple) else (names,)
    return tuple(name for name in several if sharding.mesh.shape.get(name, 1) > 1)


def says_more_than_a_device(sharding: Any) -> bool:
    """Whether a sharding on one device has a mesh, which results keep, or another memory."""
    if sharding is None or len(sharding.device_set) > 1:
        return False
    return bool(sharding != SingleDeviceSharding(*sharding.device_set))


def device_for(shardings: Iterable[Any]) -> Device:
    """The first device of the first sharding; jax's default device if all are None."""
    placed = _first(shardings)
    if placed is not None:
        return min(placed.device_set, key=lambda device: device.id)
    settings: Any = jax.config
    asked = settings.jax_default_device
    if asked is None or isinstance(asked, str):
        return jax.devices(asked)[0]
    chosen: Device = asked
    return chosen


def constants_place(constants: Sequence[Any], leaves: Sequence[Any]) -> Sharding | None:
    """Where to put the constants of a function: whole, on the devices of its arguments.

    None: leave them. As with `jax.jit`, constants may lie on any devices. They determine where the
    function runs only if no argument does.
    """
    if are_traced((*constants, *leaves)):
        return None
    placed = _first(map(sharding_of, (*leaves, *constants)))
    if isinstance(placed, NamedSharding):
        return NamedSharding(placed.mesh, PartitionSpec())
    if placed is None or len(placed.device_set) > 1:
        return None
    return SingleDeviceSharding(*placed.device_set)


def moved(each: Any, there: Sharding) -> Any:
    """An array on the devices of `there`: unchanged if it lies there, else placed as `there`."""
    return each if _is_on(each, there) else jax.device_put(each, there)


def described(each: Any, there: Sharding) -> jax.ShapeDtypeStruct:
    """A stand-in for the array that `moved` would return, for devices that only compile."""
    aval = jax.typeof(each)
    lies = each.sharding if _is_on(each, there) else there
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=lies)


def constrained(
    program: Callable[..., list[Array]], places: Sequence[Sequence[Sharding]]
) -> Callable[..., list[Array]]:
    """`program` with its results constrained to each of `places`, one after the other."""

    def run(*arguments: Array) -> list[Array]:
        results = program(*arguments)
        for each in places:
            pairs = zip(results, each, strict=True)
            results = [jax.lax.with_sharding_constraint(result, there) for result, there in pairs]
        return results

    return run


def _is_on(each: Any, there: Sharding) -> bool:
    """Whether it lies on the devices of `there`, in their order."""
    own = sharding_of(each)
    if isinstance(own, NamedSharding) and isinstance(there, NamedSharding):
        return list(own.mesh.devices.flat) == list(there.mesh.devices.flat)
    return own is not None and bool(own.device_set == there.device_set)


def _first(shardings: Iterable[Any]) -> Any:
    return next((each for each in shardings if each is not None), None)
