"""The memory that the compiler reports for a program."""

from __future__ import annotations

import math
import re
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from memsafe.jax_internals import InternalsMoved, outside_of_traces
from memsafe.libraries import library_bytes
from memsafe.mapped_axes import varying, varying_axes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax import Array, Device
    from jax.core import ShapedArray
    from jax.stages import Compiled, Lowered

__all__ = ["Mapping", "Measured", "Place", "compiled_modules", "measured", "mesh_of"]

_UNOPTIMISED = {"xla_backend_optimization_level": 0}
"""Compiler options that turn off LLVM's optimisation on a CPU.

XLA decides the memory before LLVM begins: 168 programs needed the same to the byte, and compiled in
0.61 of the time (jax 0.10.2 and 0.12.0.1, 2026-11-28).
"""

_SCALE = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """The `shard_map` that a program runs inside.

    Attributes:
        mesh: The devices.
        axes: The mapped axes.
        checked: Whether types say over which of these axes values vary.
    """

    mesh: Mesh
    axes: frozenset[str]
    checked: bool

    def names(self, aval: ShapedArray) -> tuple[str, ...]:
        """The mapped axes over which an argument differs."""
        varied = varying_axes(aval) if self.checked else self.axes
        return tuple(name for name in self.mesh.axis_names if name in varied)

    def spec(self, aval: ShapedArray) -> PartitionSpec:
        """The sharding of a joined argument: its first dimension is divided over `names`."""
        return PartitionSpec(self.names(aval))

    def whole(self, aval: ShapedArray) -> jax.ShapeDtypeStruct:
        """The arguments of all devices as one, joined along the first dimension."""
        count = math.prod(self.mesh.shape[name] for name in self.names(aval))
        first, *others = aval.shape or (1,)
        sharding = NamedSharding(self.mesh, self.spec(aval))
        return jax.ShapeDtypeStruct((count * first, *others), aval.dtype, sharding=sharding)

    def mapped(
        self, program: Callable[..., list[Array]], arguments: Sequence[ShapedArray]
    ) -> Callable[..., list[Array]]:
        """`program` on all devices, for arguments joined as `whole` describes."""
        names = tuple(name for name in self.mesh.axis_names if name in self.axes)

        def local(*values: Array) -> list[Array]:
            pairs = zip(values, arguments, strict=True)
            results = program(*(each if aval.shape else each[0] for each, aval in pairs))
            joined = (each if each.ndim else each[None] for each in results)
            return [varying(each, self.axes) if self.checked else each for each in joined]

        found: Callable[..., list[Array]] = jax.shard_map(
            local,
            mesh=self.mesh,
            in_specs=tuple(map(self.spec, arguments)),
            out_specs=PartitionSpec(names),
            axis_names=set(self.axes),
            check_vma=self.checked,
        )
        return found


def mesh_of(mesh: Any, device: Device) -> Mesh:
    """`mesh` if it holds `device`, else a mesh of its shape over devices like `device`.

    Raises ValueError if there are too few such devices.
    """
    if isinstance(mesh, Mesh) and device in mesh.devices.flat:
        return mesh
    client: Any = device.client
    found = client.devices()
    if len(found) < mesh.size:
        raise ValueError(
            f"got a mesh of {mesh.size} devices, and {len(found)} like {device}; wanted as many, "
            "for a program inside shard_map is compiled to check its budget; do this: "
            "memsafe(f, device=…) with one of a topology of that size"
        )
    kinds = [AxisType.Auto if each is AxisType.Manual else each for each in mesh.axis_types]
    devices = np.array(found[: mesh.size]).reshape(mesh.axis_sizes)
    return Mesh(devices, mesh.axis_names, axis_types=tuple(kinds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a program is to run.

    Attributes:
        device: The device, or the first of those that `shardings` name.
        pinned: Whether the program must be compiled for `device`; if not, jax chooses the device.
        donated: The arguments whose memory it may reuse.
        shardings: Where each argument lies; None: all on `device`, in its usual memory.
        mapping: The `shard_map` around the program, with which it is compiled.
        is_on_one_device: Whether it runs on one device, as far as known.
    """

    device: Device
    pinned: bool = True
    donated: tuple[int, ...] = ()
    shardings: tuple[Any, ...] | None = None
    mapping: Mapping | None = None
    is_on_one_device: bool = True

    @property
    def options(self) -> dict[str, int] | None:
        """Compiler options for a program that does not run.

        None over several devices: there the final executable tells where results lie.
        """
        return _UNOPTIMISED if self.is_on_one_device and self.device.platform == "cpu" else None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A compiled program, or the compiler's refusal because the program is too large.

    Attributes:
        nbytes: Memory of the program: temporary + arguments + results − shared by both. For a
            refused program: what the compiler says it would take, or infinity.
        argument_bytes: Bytes of the arguments.
        temp_bytes: Bytes that are neither arguments nor results.
        library_bytes: The most of `temp_bytes` that libraries allocate. Compilers do not report it.
        lowered: The program before compilation; None if the compiler refused it.
        places: Shardings that the results are constrained to, one after the other.
    """

    nbytes: float
    argument_bytes: float
    temp_bytes: float
    lowered: Lowered | None
    library_bytes: int = 0
    places: tuple[tuple[Any, ...], ...] = ()

    @classmethod
    def of_nothing(cls, argument_bytes: float) -> Measured:
        """The record of a program at which the compiler fails for another reason than its size."""
        infinite = float("inf")
        return cls(
            nbytes=infinite, argument_bytes=argument_bytes, temp_bytes=infinite, lowered=None
        )

    def keeps(self, budget: int) -> bool:
        """Whether the program fits `budget`; a refused program fits no budget, however large."""
        return self.lowered is not None and self.nbytes <= budget

    @cached_property
    def compiled(self) -> Compiled | None:
        """The optimised executable, cached by jax if it was measured so. None if refused."""
        return None if self.lowered is None else self.lowered.compile()


def measured(
    program: Callable[..., list[Array]],
    arguments: Sequence[ShapedArray],
    place: Place,
    *,
    runs: bool = False,
) -> Measured:
    """`program` compiled and measured for `place`. If it never `runs`, compiling takes less time.

    Raises JaxRuntimeError if compilation fails for another reason than the program's size.
    """
    if place.mapping is not None:
        placed = list(map(place.mapping.whole, arguments))
        program = place.mapping.mapped(program, arguments)
    else:
        pairs = zip(arguments, _shardings(arguments, place), strict=True)
        placed = [_placed(aval, sharding) for aval, sharding in pairs]
    jitted = jax.jit(program, donate_argnums=place.donated, keep_unused=True)
    platforms = (_platform(place.device),) if place.pinned else None
    with nullcontext() if place.mapping is None else outside_of_traces():
        lowered = jitted.trace(*placed).lower(lowering_platforms=platforms)
        try:
            compiled = lowered.compile(None if runs else place.options)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return _refused(str(error), arguments)
    memory = compiled.memory_analysis()
    hidden = _hidden(compiled) if place.device.platform == "cpu" else 0
    temp_bytes = memory.temp_size_in_bytes + hidden
    taken = (
        temp_bytes
        + memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
    )
    return Measured(
        nbytes=taken,
        argument_bytes=memory.argument_size_in_bytes,
        temp_bytes=temp_bytes,
        lowered=lowered,
        library_bytes=hidden,
    )


def _hidden(compiled: Compiled) -> int:
    """The most bytes that libraries allocate on each device."""
    return max(map(library_bytes, compiled_modules(compiled)), default=0)


def _placed(aval: ShapedArray, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=sharding)


def _shardings(arguments: Sequence[ShapedArray], place: Place) -> Sequence[Any]:
    if place.shardings is not None:
        return place.shardings
    if not place.pinned:
        return [None] * len(arguments)
    return [SingleDeviceSharding(place.device)] * len(arguments)


def _platform(device: Device) -> str:
    if device.platform != "gpu":
        return str(device.platform)
    client: Any = device.client
    return "rocm" if "rocm" in client.platform_version.lower() else "cuda"


def _refused(message: str, arguments: Sequence[ShapedArray]) -> Measured:
    """A refused program, with the size that the message of a TPU's compiler states."""
    own = float(sum(aval.size * aval.dtype.itemsize for aval in arguments))
    sizes = re.findall(r"(?:\(|Used )([0-9]+(?:\.[0-9]+)?)([KMGTP]?)(?![0-9.])", message)
    wanted = float(sizes[0][0]) * _SCALE[sizes[0][1]] if sizes else float("inf")
    return Measured(
        nbytes=wanted + own,
        argument_bytes=own,
        temp_bytes=wanted,
        lowered=None,
    )


def compiled_modules(compiled: Compiled) -> list[bytes]:
    """The serialized HloModuleProtos that a program was compiled to."""
    executable: Any = compiled.runtime_executable()
    try:
        modules = executable.hlo_modules()
        return [each.as_serialized_hlo_module_proto() for each in modules]
    except AttributeError:
        raise InternalsMoved("hlo_modules of a loaded executable, as serialized protos") from None
