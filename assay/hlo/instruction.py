"""One instruction of an HLO module and its shape, decoded from the message on first use."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Final

from assay.hlo.schema import MalformedModule, Message
from assay.model.module import HOST_MEMORY_SPACE, Shape

_TUPLE: Final = 13
_BUFFER: Final = 34

# PrimitiveType of xla_data.proto -> XLA's name in HLO text.
_ELEMENT_TYPES: Final[dict[int, str]] = {
    1: "pred",
    30: "s1",
    26: "s2",
    21: "s4",
    2: "s8",
    3: "s16",
    4: "s32",
    5: "s64",
    31: "u1",
    27: "u2",
    22: "u4",
    6: "u8",
    7: "u16",
    8: "u32",
    9: "u64",
    10: "f16",
    11: "f32",
    12: "f64",
    16: "bf16",
    19: "f8e5m2",
    28: "f8e4m3",
    20: "f8e4m3fn",
    23: "f8e4m3b11fnuz",
    29: "f8e3m4",
    24: "f8e5m2fnuz",
    25: "f8e4m3fnuz",
    32: "f4e2m1fn",
    33: "f8e8m0fnu",
    35: "f6e3m2fn",
    36: "f6e2m3fn",
    15: "c64",
    18: "c128",
    _TUPLE: "tuple",
    14: "opaque",
    17: "token",
    _BUFFER: "buffer",
}


def read_shape(message: Message) -> Shape:
    """The shape that a ShapeProto describes.

    Raises:
        MalformedModule: the element type is none that XLA is known to have.
    """
    try:
        name = _ELEMENT_TYPES[message.element_type]
    except KeyError:
        raise MalformedModule(
            f"got element type {message.element_type} in a shape, wanted a PrimitiveType of "
            "xla_data.proto; if XLA has a new one, add it to assay/hlo/instruction.py"
        ) from None
    if message.tuple_shapes:
        return Shape(element_type=name, elements=tuple(map(read_shape, message.tuple_shapes)))
    return Shape(
        element_type=name,
        dimensions=tuple(message.dimensions),
        memory_space=message.layout.memory_space,
    )


def read_layouts(message: Message) -> Iterator[str]:
    """The layout of each array of a ShapeProto: ``{1,0:T(8,128)}``, without its memory space."""
    if message.tuple_shapes:
        for element in message.tuple_shapes:
            yield from read_layouts(element)
        return
    order = ",".join(map(str, message.layout.minor_to_major))
    tiles = "".join(f"({','.join(map(str, tile.dimensions))})" for tile in message.layout.tiles)
    yield f"{{{order}{f':T{tiles}' if tiles else ''}}}"


# How protobuf writes ``Layout.memory_space`` (field 8, a varint) where it is host memory.
_HOST_MARK: Final = bytes((8 << 3, HOST_MEMORY_SPACE))


def may_mention_host(encoded: bytes) -> bool:
    """Whether a message's bytes can hold a shape with an array in host memory; never misses one."""
    return _HOST_MARK in encoded


def mentions_host(message: Message) -> bool:
    """Whether any array of a ShapeProto lies in host memory, without reading the whole shape."""
    if message.element_type in {_TUPLE, _BUFFER}:
        return any(map(mentions_host, message.tuple_shapes))
    return bool(message.layout.memory_space == HOST_MEMORY_SPACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDimension:
    """One dimension of the window that a convolution or a reduce-window slides over its base."""

    size: int
    stride: int
    padding_low: int
    window_dilation: int
    base_dilation: int

    def valid_positions(self, base: int, outputs: int) -> int:
        """Pairs of an output and a tap of the window that meet an element of the base.

        The others meet padding or the holes of a dilated base, and cost no arithmetic.
        """
        return sum(self._outputs_that_meet(tap, base, outputs) for tap in range(self.size))

    def _outputs_that_meet(self, tap: int, base: int, outputs: int) -> int:
        """Outputs k for which ``k * stride + offset`` is an element of the dilated base."""
        offset = tap * self.window_dilation - self.padding_low
        last = (base - 1) * self.base_dilation
        first = max(0, -(offset // self.stride))
        end = min(outputs, (last - offset) // self.stride + 1)
        common = gcd(self.stride, self.base_dilation)
        if offset % common:
            return 0
        period = self.base_dilation // common
        congruent = -offset // common * pow(self.stride // common, -1, period) % period
        return max(0, (end - 1 - congruent) // period - (first - 1 - congruent) // period)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionDimensions:
    """Which dimension of a convolution's operands and of its result is which."""

    kernel_input_feature: int
    kernel_output_feature: int
    output_batch: int
    output_feature: int
    input_spatial: tuple[int, ...]
    output_spatial: tuple[int, ...]


def read_window(message: Message) -> tuple[WindowDimension, ...]:
    """The dimensions of a WindowProto; a field that is left out is 1, or no padding."""
    return tuple(
        WindowDimension(
            size=each.size,
            stride=each.stride or 1,
            padding_low=each.padding_low,
            window_dilation=each.window_dilation or 1,
            base_dilation=each.base_dilation or 1,
        )
        for each in message.dimensions
    )


def read_convolution(message: Message) -> ConvolutionDimensions:
    """The dimensions that a ConvolutionDimensionNumbers names."""
    return ConvolutionDimensions(
        kernel_input_feature=message.kernel_input_feature_dimension,
        kernel_output_feature=message.kernel_output_feature_dimension,
        output_batch=message.output_batch_dimension,
        output_feature=message.output_feature_dimension,
        input_spatial=tuple(message.input_spatial_dimensions),
        output_spatial=tuple(message.output_spatial_dimensions),
    )


if TYPE_CHECKING:
    from assay.hlo.module import Computation

LOCAL_ID: Final = 0xFFFF_FFFF
"""Newer XLA numbers an instruction (computation id << 32 | local id), older XLA (unique id); the
low half is unique within a computation in both."""

_ALLOCATIONS: Final = frozenset({"AllocateBuffer", "CreateBuffer"})
_LITERAL_BYTES: Final = {"s8": "s8s", "u8": "u8s", "s16": "s16s", "u16": "u16s"}
_LITERAL_NUMBERS: Final = {"s32": "s32s", "s64": "s64s", "u32": "u32s", "u64": "u64s"}


class Instruction:
    """One instruction. Compared by identity; ``name`` is for people, never for a verdict."""

    __slots__ = ("_message", "_operands", "_shape", "computation", "id", "opcode")

    def __init__(self, message: Message, computation: "Computation") -> None:
        self._message = message
        self._operands: tuple[Instruction, ...] | None = None
        self._shape: Shape | None = None
        self.computation = computation
        self.id: int = message.id & LOCAL_ID
        self.opcode: str = message.opcode

    def __repr__(self) -> str:
        return f"<{self.opcode} {self.name}>"

    @property
    def unique_id(self) -> int:
        """The id as the module's proto writes it, by which a buffer assignment refers to it."""
        return int(self._message.id)

    @property
    def layout(self) -> tuple[int, ...]:
        """The dimensions of an array result from minor to major."""
        return tuple(self._message.shape.layout.minor_to_major)

    @property
    def layouts(self) -> tuple[str, ...]:
        """The layout of each array of the result, as HLO text writes it, without its memory."""
        return tuple(read_layouts(self._message.shape))

    @property
    def name(self) -> str:
        """The compiler's name, unique in the module and of no meaning."""
        return str(self._message.name)

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        if self._shape is None:
            self._shape = read_shape(self._message.shape)
        return self._shape

    @property
    def operands(self) -> tuple["Instruction", ...]:
        """The operands, in order."""
        if self._operands is None:
            self._operands = tuple(
                self.computation.instruction(operand & LOCAL_ID)
                for operand in self._message.operand_ids
            )
        return self._operands

    @property
    def called(self) -> tuple["Computation", ...]:
        """The computations it calls; of a while, the body and then the condition."""
        return tuple(map(self.computation.module.computation, self._message.called_computation_ids))

    @property
    def parameter_number(self) -> int:
        """Which parameter of its computation a parameter is."""
        return int(self._message.parameter_number)

    @property
    def tuple_index(self) -> int:
        """Which element a get-tuple-element takes."""
        return int(self._message.tuple_index)

    @property
    def comparison_direction(self) -> str:
        """EQ, NE, LT, LE, GT or GE of a compare."""
        return str(self._message.comparison_direction)

    @property
    def custom_call_target(self) -> str:
        """What a custom-call calls."""
        return str(self._message.custom_call_target)

    @property
    def allocates(self) -> bool:
        """Whether the result is memory without content, for others to write."""
        return self.opcode == "custom-call" and self.custom_call_target in _ALLOCATIONS

    @property
    def execution_thread(self) -> str:
        """The thread that an asynchronous computation runs on; empty means the device's main."""
        return str(self._message.async_execution_thread)

    @property
    def contracting_dimensions(self) -> tuple[int, ...]:
        """The dimensions of its first operand that a dot sums over."""
        return tuple(self._message.dot_dimension_numbers.lhs_contracting_dimensions)

    @property
    def window(self) -> tuple[WindowDimension, ...]:
        """The window of a convolution or a reduce-window, by dimension."""
        return read_window(self._message.window)

    @property
    def convolution(self) -> ConvolutionDimensions | None:
        """The dimensions of a convolution, or of a backend's call for one."""
        if not self._message.HasField("convolution_dimension_numbers"):
            return None
        return read_convolution(self._message.convolution_dimension_numbers)

    @property
    def channel_id(self) -> int:
        """What the parts of one collective share; 0 for none."""
        return int(self._message.channel_id)

    @property
    def shared_outputs(self) -> frozenset[tuple[int, ...]]:
        """Paths to the results of a fusion or custom-call that lie in an operand's own buffer."""
        aliasing = self._message.output_operand_aliasing
        return frozenset(tuple(each.output_shape_index) for each in aliasing)

    @property
    def overwrites(self) -> Mapping[tuple[int, ...], tuple[int, tuple[int, ...]]]:
        """For the paths of `shared_outputs`: which operand's buffer it is, and where in it."""
        return {
            tuple(each.output_shape_index): (each.operand_index, tuple(each.operand_shape_index))
            for each in self._message.output_operand_aliasing
        }

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The dimensions that a transpose, a reverse, a concatenate, a reduce is about."""
        return tuple(self._message.dimensions)

    @property
    def is_host_transfer(self) -> bool:
        """Whether a send or recv talks to the host rather than to another device."""
        return bool(self._message.is_host_transfer)

    @property
    def backend_config(self) -> bytes:
        """The backend's own words, often JSON."""
        return bytes(self._message.backend_config)

    @property
    def integer(self) -> int | None:
        """The value of a scalar integer constant; None for anything else."""
        if self.opcode != "constant" or self.shape.dimensions:
            return None
        literal, kind = self._message.literal, self.shape.element_type
        if kind in _LITERAL_NUMBERS:
            numbers = getattr(literal, _LITERAL_NUMBERS[kind])
            return int(numbers[0]) if numbers else None
        if kind in _LITERAL_BYTES:
            data = getattr(literal, _LITERAL_BYTES[kind])
            return int.from_bytes(data, "little", signed=kind[0] == "s") if data else None
        return None

    @property
    def op_name(self) -> str:
        """What the framework calls the operation; of an entry's parameter, the argument's name."""
        return str(self._message.metadata.op_name)

    @property
    def source(self) -> str | None:
        """``file:line`` in the user's program, None if the compiler kept none."""
        if not self._message.HasField("metadata"):
            return None
        return self.computation.module.source_index.line(self._message.metadata)
