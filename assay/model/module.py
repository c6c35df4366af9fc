"""An optimized module as plain values: shapes, loops, transfers, overlap and inventory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Final

from assay.model.target import DeviceModel


class AsyncKind(Enum):
    """What an asynchronous operation occupies."""

    TO_HOST = "to-host"
    TO_DEVICE = "to-device"
    COPY = "copy"
    COLLECTIVE = "collective"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Floating-point operations and bytes of memory read and written, logical and as emitted."""

    flops: int = 0
    nbytes: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(flops=self.flops + other.flops, nbytes=self.nbytes + other.nbytes)

    def __mul__(self, times: int) -> "Cost":
        return Cost(flops=self.flops * times, nbytes=self.nbytes * times)

    def seconds(self, model: DeviceModel) -> float:
        """The roofline's time on a device: the longer of arithmetic and memory traffic.

        A model without a peak rate is limited by its memory alone.
        """
        memory = self.nbytes / model.memory_bandwidth_bytes_per_second
        if not model.peak_bf16_flops_per_second:
            return memory
        return max(memory, self.flops / model.peak_bf16_flops_per_second)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncPair:
    """A start and its done, in the order of the schedule.

    ``nbytes`` is what one execution moves. ``between`` is the work of the instructions that the
    schedule puts between the two, loops counted with their trips; None where one of those is
    unknown, or where the module has no schedule. ``executions`` counts per run of the module: None
    if unknown, an upper bound if ``at_most``.
    """

    kind: AsyncKind
    opcode: str
    nbytes: int
    between: Cost | None
    executions: int | None
    at_most: bool
    computation: str
    start: str
    done: str
    source: str | None

    def seconds(self, model: DeviceModel) -> float | None:
        """How long the move takes on the device's links; None where the model has no such number.

        Moves to and from the host take the host link, copies within the device twice the memory.
        """
        if self.kind in {AsyncKind.TO_HOST, AsyncKind.TO_DEVICE}:
            link = model.host_link_bandwidth_bytes_per_second
            return self.nbytes / link if link else None
        if self.kind is AsyncKind.COPY:
            return 2 * self.nbytes / model.memory_bandwidth_bytes_per_second
        return None


HOST_MEMORY_SPACE: Final = 5
"""The memory space that XLA gives to host memory; every other space is on the device."""

# XLA's element types and the bits of one element.
_BITS: Final[dict[str, int]] = {
    "pred": 8,
    "s1": 1,
    "s2": 2,
    "s4": 4,
    "s8": 8,
    "s16": 16,
    "s32": 32,
    "s64": 64,
    "u1": 1,
    "u2": 2,
    "u4": 4,
    "u8": 8,
    "u16": 16,
    "u32": 32,
    "u64": 64,
    "f16": 16,
    "f32": 32,
    "f64": 64,
    "bf16": 16,
    "f8e5m2": 8,
    "f8e4m3": 8,
    "f8e4m3fn": 8,
    "f8e4m3b11fnuz": 8,
    "f8e3m4": 8,
    "f8e5m2fnuz": 8,
    "f8e4m3fnuz": 8,
    "f4e2m1fn": 4,
    "f6e2m3fn": 8,  # XLA gives each its own byte
    "f6e3m2fn": 8,
    "f8e8m0fnu": 8,
    "c64": 64,
    "c128": 128,
    "tuple": 0,
    "opaque": 0,
    "token": 0,
    "buffer": 0,
}
_INTEGER_BITS: Final = {
    name: bits for name, bits in _BITS.items() if name[0] in "su" and name[1:].isdigit()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """An array, or a tuple of shapes; a token counts as an array of no bytes.

    ``element_type`` is XLA's own name (``bf16``); ``elements`` is empty unless it is ``tuple`` or
    ``buffer``.
    """

    element_type: str
    dimensions: tuple[int, ...] = ()
    memory_space: int = 0
    elements: tuple["Shape", ...] = ()

    @property
    def on_host(self) -> bool:
        """Whether the array lies in host memory; a tuple lies nowhere itself."""
        return self.memory_space == HOST_MEMORY_SPACE

    @property
    def nbytes(self) -> int:
        """Logical bytes without padding; bits are rounded up to bytes per array."""
        if self.elements:
            return sum(element.nbytes for element in self.elements)
        return (prod(self.dimensions) * _BITS[self.element_type] + 7) // 8

    @property
    def integer_range(self) -> range | None:
        """The integers that one element can hold; None if it holds no integer."""
        bits = _INTEGER_BITS.get(self.element_type)
        if bits is None:
            return None
        if self.element_type[0] == "u":
            return range(2**bits)
        return range(-(2 ** (bits - 1)), 2 ** (bits - 1))

    def at(self, path: tuple[int, ...]) -> "Shape":
        """The element of a tuple that ``path`` leads to; the shape itself for ``()``."""
        shape = self
        for index in path:
            shape = shape.elements[index]
        return shape

    def leaves(self) -> Iterator["Shape"]:
        """The arrays, depth first."""
        return (shape for _, shape in self.arrays())

    def arrays(self) -> Iterator[tuple[tuple[int, ...], "Shape"]]:
        """The arrays with the paths that lead to them, depth first."""
        if self.element_type not in {"tuple", "buffer"}:
            yield (), self
        for index, element in enumerate(self.elements):
            for path, shape in element.arrays():
                yield (index, *path), shape

    def __str__(self) -> str:
        if self.element_type == "tuple":
            return f"({', '.join(map(str, self.elements))})"
        if self.element_type == "buffer":
            return f"b({', '.join(map(str, self.elements))})"
        space = f"S({self.memory_space})" if self.memory_space else ""
        return f"{self.element_type}[{','.join(map(str, self.dimensions))}]{space}"


class Direction(Enum):
    """Which way bytes move."""

    TO_HOST = "to-host"
    TO_DEVICE = "to-device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Bytes that one instruction moves, in plain values.

    ``opcode`` is the operation that moves them, inside any fusion or asynchronous pair
    ``instruction`` is. ``executions`` counts per run of the module: None if a trip count is
    unknown, an upper bound if ``at_most``.
    """

    direction: Direction
    nbytes_per_execution: int
    executions: int | None
    at_most: bool
    opcode: str
    computation: str
    instruction: str
    source: str | None

    @property
    def nbytes_per_run(self) -> int | None:
        """Bytes per run of the module; None if the executions are unknown."""
        return None if self.executions is None else self.nbytes_per_execution * self.executions


def nbytes_per_run(found: Iterable[Transfer], direction: Direction) -> int | None:
    """Bytes that all transfers of one direction move per run; None if any is unknown."""
    total = 0
    for transfer in found:
        if transfer.direction is direction:
            if transfer.nbytes_per_run is None:
                return None
            total += transfer.nbytes_per_run
    return total


class TripSource(Enum):
    """How a trip count was found."""

    KNOWN = "the compiler's known_trip_count"
    DERIVED = "init, bound and step"
    EVALUATED = "its scalars, iteration by iteration"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhileLoop:
    """One while instruction, in plain values.

    ``trips`` is the runs of the body per run of the loop, None for the ``reason`` given.
    ``executions`` is the runs of the loop per run of the module: None if unknown, an upper bound
    if ``at_most``. ``carries`` are the arrays of the loop's state as
    the compiler stores them: a saved stack that it keeps narrower or wider shows here.
    """

    instruction: str
    computation: str
    body: str
    condition: str
    trips: int | None
    trips_from: TripSource
    reason: str
    executions: int | None
    at_most: bool
    carries: tuple[Shape, ...]
    source: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Instructions of one opcode, shape and source line; ``count`` is how often it is written.

    Runs are not counted: an instruction of a loop body counts once. A custom-call's ``opcode``
    names its target (``custom-call TopK``).
    """

    opcode: str
    shape: Shape
    source: str | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBuffer:
    """An output that may share, or must share, the buffer of an argument; paths into tuples."""

    shape: Shape
    output_index: tuple[int, ...]
    parameter_number: int
    parameter_index: tuple[int, ...]
    must: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a module takes, gives, and is made of.

    ``argument_names`` are in the order of the arguments. ``operations`` leaves out what only passes
    values on. ``host_arrays`` are the places at which an array comes to lie in host memory, with
    its shape. The layouts are those of the arguments and outputs, in the same order, as HLO text
    writes them (``{1,0:T(8,128)}``).
    """

    arguments: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    shared: tuple[SharedBuffer, ...]
    operations: tuple[Operations, ...]
    host_arrays: tuple[Operations, ...]
    argument_names: tuple[str, ...] = ()
    argument_layouts: tuple[str, ...] = ()
    output_layouts: tuple[str, ...] = ()
