"""An optimized module as plain values: shapes, loops, transfers, overlap and inventory."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
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
    unknown, where the module has no schedule, or where the done was not found and ``done`` is "".
    ``executions`` counts per run of the module: None if unknown, an upper bound if ``at_most``.
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

        Always None for collectives and computations. Moves to and from the host take the host
        link. Copies within the device read and write the memory.
        """
        if self.kind in {AsyncKind.TO_HOST, AsyncKind.TO_DEVICE}:
            link = model.host_link_bandwidth_bytes_per_second
            return self.nbytes / link if link else None
        if self.kind is AsyncKind.COPY:
            return 2 * self.nbytes / model.memory_bandwidth_bytes_per_second
        return None


HOST_MEMORY_SPACE: Final = 5
"""The memory space that XLA gives to host memory; every other space is on the device."""

_WIDTH: Final = re.compile(r"[a-z]+(\d+)")


@cache
def _bits(element_type: str) -> int:
    """The bits of one element, which XLA's name of the type holds (``bf16``, ``f8e4m3fn``)."""
    width = _WIDTH.match(element_type)
    if width is None:
        return 8 if element_type == "pred" else 0  # a tuple or a token has no bits itself
    return 8 if width[1] == "6" else int(width[1])  # XLA gives a 6-bit float a byte


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
        return (prod(self.dimensions) * _bits(self.element_type) + 7) // 8

    @property
    def integer_range(self) -> range | None:
        """The integers that one element can hold; None if it holds no integer."""
        kind, width = self.element_type[:1], self.element_type[1:]
        if kind not in {"s", "u"} or not width.isdigit():
            return None
        count = 2 ** int(width)
        return range(count) if kind == "u" else range(-count // 2, count // 2)

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
        if self.element_type in {"tuple", "buffer"}:
            prefix = "b" if self.element_type == "buffer" else ""
            return f"{prefix}({', '.join(map(str, self.elements))})"
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
    moved = [each.nbytes_per_run for each in found if each.direction is direction]
    return None if None in moved else sum(filter(None, moved))


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Bytes that a device sends to other devices in one collective, in plain values.

    ``opcode`` is the operation, without ``-start``. ``devices`` is the size of its groups, None if
    the module does not say; then ``nbytes_per_execution`` is None too. ``executions`` counts per
    run of the module: None if a trip count is unknown, an upper bound if ``at_most``.
    """

    opcode: str
    devices: int | None
    nbytes_per_execution: int | None
    executions: int | None
    at_most: bool
    computation: str
    instruction: str
    source: str | None

    @property
    def nbytes_per_run(self) -> int | None:
        """Bytes per run of the module; None if they, or the executions, are unknown."""
        if self.nbytes_per_execution is None or self.executions is None:
            return None
        return self.nbytes_per_execution * self.executions


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
