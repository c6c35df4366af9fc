"""What the programs of several topics are made of: meshes, placed shapes, host computations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import compute_on as host_compute
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from assay.model.workload import Program

P = PartitionSpec
F32_BYTES = 4


def placed(devices: Sequence[Any], axes: dict[str, int], *spec: Any, kind: str = "device") -> Any:
    """A sharding over the first devices; ``kind`` is the memory kind."""
    needed = math.prod(axes.values())
    mesh = Mesh(np.array(devices[:needed]).reshape(tuple(axes.values())), tuple(axes))
    if kind == "device":
        return NamedSharding(mesh, P(*spec))
    return NamedSharding(mesh, P(*spec), memory_kind=kind)


def on_two(devices: Sequence[Any], *spec: Any, kind: str = "device") -> Any:
    """A sharding over two devices."""
    return placed(devices, {"x": 2}, *spec, kind=kind)


def on_one(devices: Sequence[Any], kind: str = "device") -> Any:
    """Everything on the first device."""
    if kind == "device":
        return jax.sharding.SingleDeviceSharding(devices[0])
    return jax.sharding.SingleDeviceSharding(devices[0], memory_kind=kind)


def array(dimensions: tuple[int, ...], sharding: Any, dtype: Any = "float32") -> Any:
    """The shape of an argument that lies there."""
    return jax.ShapeDtypeStruct(dimensions, dtype, sharding=sharding)


def counting(dimensions: tuple[int, ...], dtype: Any = np.float32) -> Any:
    """The array 0, 1, 2, … of these dimensions."""
    return np.arange(math.prod(dimensions), dtype=dtype).reshape(dimensions)


def simple(
    function: Callable[..., Any],
    *dimensions: tuple[int, ...],
    donate: tuple[int, ...] = (),
    dtype: Any = "float32",
) -> Callable[[Sequence[Any]], Program]:
    """A function of arrays on one device, that runs where the target does."""

    def build(devices: Sequence[Any]) -> Program:
        here = on_one(devices)
        return Program(
            function=function,
            arguments=tuple(array(each, here, dtype) for each in dimensions),
            out_shardings=here,
            donate_argnums=donate,
            values=lambda: tuple(counting(each, dtype) for each in dimensions),
            observe=function,
        )

    return build


def computed_on(place: str, function: Callable[..., Any], out: Any) -> Callable[..., Any]:
    """The function computed there, by jax's ``compute_on``."""
    # jax before 0.11 has this under another name, and a context manager under this one.
    compute = getattr(host_compute, "compute_on2", None) or host_compute.compute_on
    wrapped: Callable[..., Any] = compute(function, compute_type=place, out_memory_spaces=out)
    return wrapped


def on_host(function: Callable[..., Any], out: Any = jax.memory.Space.Device) -> Any:
    """The function computed by the host; ``out`` says where its results lie."""
    return computed_on("device_host", function, out)


def shape(dimensions: tuple[int, ...], dtype: Any = "float32") -> Any:
    return jax.ShapeDtypeStruct(dimensions, dtype)


def on_four(devices: Sequence[Any], *spec: Any) -> Any:
    return placed(devices, {"x": 2, "y": 2}, *spec)
