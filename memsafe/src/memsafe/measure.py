"""What a compiler says that a program needs."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax import Array, Device
    from jax.core import ShapedArray
    from jax.stages import Compiled

__all__ = ["Measured", "Place", "measured"]

_SCALE = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a program is to run.

    Attributes:
        device: The device, or the first of those that `shardings` name.
        pinned: Whether the program must be compiled for `device`, rather than where it likes.
        donated: The arguments whose memory it may reuse.
        shardings: Where each argument lies; None: all on `device`.
        alone: Whether it can be compiled by itself; not so inside `shard_map`.
    """

    device: Device
    pinned: bool = True
    donated: tuple[int, ...] = ()
    shardings: tuple[Any, ...] | None = None
    alone: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A compiled program, or the compiler's refusal to compile one so large.

    Attributes:
        nbytes: All the memory that it takes at once: temporary + arguments + results − shared by
            both; for a refused one what the compiler says it would take, or infinity.
        argument_bytes: Its arguments.
        temp_bytes: What is neither argument nor result.
        seconds: The time of lowering and compiling.
        compiled: The program; None if it does not compile.
    """

    nbytes: float
    argument_bytes: float
    temp_bytes: float
    seconds: float
    compiled: Compiled | None

    def keeps(self, budget: int) -> bool:
        """Whether it runs within `budget`; what a compiler refused keeps none, however large."""
        return self.compiled is not None and self.nbytes <= budget


def measured(
    program: Callable[..., list[Array]], arguments: Sequence[ShapedArray], place: Place
) -> Measured:
    """`program` compiled for `place`.

    Raises JaxRuntimeError if it does not compile for another reason than its size.
    """
    begun = time.perf_counter()
    placed = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=sharding)
        for aval, sharding in zip(arguments, _shardings(arguments, place), strict=True)
    ]
    jitted = jax.jit(program, donate_argnums=place.donated, keep_unused=True)
    platforms = (_platform(place.device),) if place.pinned else None
    lowered = jitted.trace(*placed).lower(lowering_platforms=platforms)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return _refused(str(error), arguments, time.perf_counter() - begun)
    memory = compiled.memory_analysis()
    taken = (
        memory.temp_size_in_bytes
        + memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
    )
    return Measured(
        nbytes=taken,
        argument_bytes=memory.argument_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes,
        seconds=time.perf_counter() - begun,
        compiled=compiled,
    )


def _shardings(arguments: Sequence[ShapedArray], place: Place) -> Sequence[Any]:
    if place.shardings is not None:
        return place.shardings
    if not place.pinned:
        return [None] * len(arguments)
    return [jax.sharding.SingleDeviceSharding(place.device)] * len(arguments)


def _platform(device: Device) -> str:
    return "cuda" if device.platform == "gpu" else device.platform


def _refused(message: str, arguments: Sequence[ShapedArray], seconds: float) -> Measured:
    """What a TPU's compiler says of a program that does not fit it."""
    own = float(sum(aval.size * aval.dtype.itemsize for aval in arguments))
    sizes = re.findall(r"(?:\(|Used )([0-9.]+)([KMGTP]?)", message)
    wanted = float(sizes[0][0]) * _SCALE[sizes[0][1]] if sizes else float("inf")
    return Measured(
        nbytes=wanted + own,
        argument_bytes=own,
        temp_bytes=wanted,
        seconds=seconds,
        compiled=None,
    )
