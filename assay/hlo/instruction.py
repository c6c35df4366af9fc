"""One instruction of an HLO module and its shape, decoded from the message on first use."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd, prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from assay.hlo.schema import MalformedModule, Message
from assay.hlo.structure import LOCAL_ID, nonnegative
from assay.model.module import HOST_MEMORY_SPACE, Shape

if TYPE_CHECKING:
    from assay.hlo.module import Computation

_PRIMITIVE_TYPES: Final = """
    pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16 token c128
    f8e5m2 f8e4m3fn s4 u4 f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1
    f4e2m1fn f8e8m0fnu buffer f6e3m2fn f6e2m3fn
"""
_ELEMENT_TYPES: Final = dict(enumerate(_PRIMITIVE_TYPES.split(), start=1))
"""PrimitiveType of xla_data.proto -> XLA's name in HLO text."""


_MOST_ELEMENTS: Final = 2**60
"""Bytes of an array, of at most 64 bits an element, then fit in 64 bits, as those of XLA do."""


def read_shape(message: Message) -> Shape:
    """The shape that a ShapeProto describes.

    Raises:
        MalformedModule: the element type is none that XLA is known to have, or the memory space,
            a size or the number of elements is out of range.
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
    dimensions, memory_space = tuple(message.dimensions), message.layout.memory_space
    if memory_space < 0:
        raise MalformedModule(f"got memory space {memory_space}, wanted 0 or more")
    if dimensions and (min(dimensions) < 0 or prod(dimensions) > _MOST_ELEMENTS):
        raise MalformedModule(
            f"got an array of {'x'.join(map(str, dimensions[:9]))} elements, wanted sizes of 0 or "
            "more and at most 2**60 elements; if a size is dynamic, compile for a bounded one"
        )
    return Shape(element_type=name, dimensions=dimensions, memory_space=memory_space)


def _layouts(message: Message) -> Iterator[str]:
    if message.tuple_shapes:
        for element in message.tuple_shapes:
            yield from _layouts(element)
        return
    order = ",".join(map(str, message.layout.minor_to_major))
    tiles = "".join(f"({','.join(map(str, tile.dimensions))})" for tile in message.layout.tiles)
    yield f"{{{order}{f':T{tiles}' if tiles else ''}}}"


# How protobuf writes ``Layout.memory_space`` (field 8, a varint) where it is host memory.
_HOST_MARK: Final = bytes((8 << 3, HOST_MEMORY_SPACE))


def may_mention_host(encoded: bytes) -> bool:
    """Whether encoded bytes may hold a shape in host memory; no false negatives."""
    return _HOST_MARK in encoded


def mentions_host(message: Message) -> bool:
    """Whether any array of a ShapeProto lies in host memory."""
    on_host: bool = message.layout.memory_space == HOST_MEMORY_SPACE
    return on_host or any(map(mentions_host, message.tuple_shapes))


_MOST_TAPS: Final = 2**20
"""Of a window's dimension; to count those takes about a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDimension:
    """One dimension of the window that a convolution or a reduce-window slides over its base."""

    size: int
    stride: int
    padding_low: int
    window_dilation: int
    base_dilation: int

    def valid_positions(self, base: int, outputs: int) -> int:
        """Pairs of an output and a tap of the window that read an element of the base.

        The others read padding or the holes of a dilated base, and need no arithmetic.

        Raises:
            MalformedModule: the window has more than ``_MOST_TAPS`` taps.
        """
        if self.size > _MOST_TAPS:
            raise MalformedModule(f"got a window of {self.size} taps, wanted at most {_MOST_TAPS}")
        common = gcd(self.stride, self.base_dilation)
        period = self.base_dilation // common
        inverse = pow(self.stride // common, -1, period)
        total = 0
        for tap in range(self.size):
            # Outputs k for which k * stride + offset is an element of the dilated base
            offset = tap * self.window_dilation - self.padding_low
            first = max(0, -(offset // self.stride))
            first += (-offset // common * inverse - first) % period
            end = min(outputs, ((base - 1) * self.base_dilation - offset) // self.stride + 1)
            if offset % common == 0:
                total += len(range(first, end, period))
        return total


_ALLOCATIONS: Final = frozenset({"AllocateBuffer", "CreateBuffer"})
_T = TypeVar("_T")


class _Field(Generic[_T]):
    """An attribute of an instruction that is a field of its message."""

    def __init__(self, path: str, kind: Callable[[Any], _T]) -> None:
        self._read = attrgetter(f"_message.{path}")
        self._kind = kind

    def __get__(self, instruction: "Instruction", owner: "type[Instruction]") -> _T:
        return self._kind(self._read(instruction))


class Instruction:
    """One instruction. Compared by identity; ``name`` is for people, never for a verdict."""

    __slots__ = ("_message", "_operands", "_shape", "computation", "id", "opcode")

    name = _Field("name", str)
    unique_id = _Field("id", int)  # as in the proto; a buffer assignment refers to it
    parameter_number = _Field("parameter_number", int)
    tuple_index = _Field("tuple_index", int)  # of a get-tuple-element
    comparison_direction = _Field("comparison_direction", str)  # EQ, NE, LT, LE, GT or GE
    custom_call_target = _Field("custom_call_target", str)
    fusion_kind = _Field("fusion_kind", str)  # kLoop, kInput, kOutput or kCustom
    execution_thread = _Field("async_execution_thread", str)  # empty: the device's main thread
    channel_id = _Field("channel_id", int)  # shared by the parts of one collective; 0 for none
    # Of a collective with a channel: its groups name devices, not replicas.
    use_global_device_ids = _Field("use_global_device_ids", bool)
    is_host_transfer = _Field("is_host_transfer", bool)  # of a send or recv: to or from the host
    backend_config = _Field("backend_config", bytes)  # often JSON
    op_name = _Field("metadata.op_name", str)  # the framework's; of a parameter, the argument's
    # Of a transpose, reverse, concatenate or reduce: the dimensions that it acts on.
    dimensions = _Field[tuple[int, ...]]("dimensions", nonnegative)
    layout = _Field[tuple[int, ...]]("shape.layout.minor_to_major", nonnegative)
    # Of a dot: the dimensions of its first operand that it sums over.
    contracting_dimensions = _Field[tuple[int, ...]](
        "dot_dimension_numbers.lhs_contracting_dimensions", nonnegative
    )

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
    def shape(self) -> Shape:
        """The shape of the result."""
        if self._shape is None:
            self._shape = read_shape(self._message.shape)
        return self._shape

    @property
    def layouts(self) -> tuple[str, ...]:
        """The layout of each array of the result, as HLO text writes it, without memory spaces."""
        return tuple(_layouts(self._message.shape))

    @property
    def operands(self) -> tuple["Instruction", ...]:
        """The operands, in order."""
        if self._operands is None:
            find = self.computation.instruction
            self._operands = tuple(find(each & LOCAL_ID) for each in self._message.operand_ids)
        return self._operands

    @property
    def control_predecessors(self) -> tuple["Instruction", ...]:
        """The instructions, besides its operands, that run before it."""
        find = self.computation.instruction
        return tuple(find(each & LOCAL_ID) for each in self._message.control_predecessor_ids)

    @property
    def called(self) -> tuple["Computation", ...]:
        """The computations it calls; of a while, the body and then the condition."""
        return tuple(map(self.computation.module.computation, self._message.called_computation_ids))

    @property
    def allocates(self) -> bool:
        """Whether the result is memory without content, for other instructions to write."""
        return self.opcode == "custom-call" and self.custom_call_target in _ALLOCATIONS

    @property
    def window(self) -> tuple[WindowDimension, ...]:
        """The window of a convolution or a reduce-window, by dimension."""
        return tuple(
            WindowDimension(
                size=each.size,
                stride=each.stride or 1,
                padding_low=each.padding_low,
                window_dilation=each.window_dilation or 1,
                base_dilation=each.base_dilation or 1,
            )
            for each in self._message.window.dimensions
        )

    @property
    def convolution(self) -> Message | None:
        """ConvolutionDimensionNumbers of a convolution, or of a backend's call for one."""
        if not self._message.HasField("convolution_dimension_numbers"):
            return None
        return self._message.convolution_dimension_numbers

    @property
    def overwrites(self) -> Mapping[tuple[int, ...], tuple[int, tuple[int, ...]]]:
        """For paths of results that a fusion or custom-call writes in place: operand and path."""
        return {
            nonnegative(each.output_shape_index): (
                nonnegative((each.operand_index,))[0],
                nonnegative(each.operand_shape_index),
            )
            for each in self._message.output_operand_aliasing
        }

    @property
    def group_size(self) -> int:
        """The members of the largest group of a collective; 0 where its groups are not named."""
        message = self._message
        listed = message.replica_groups or message.collective_device_list.replica_groups
        if listed:
            return max(len(group.replica_ids) for group in listed)
        if message.HasField("mesh_axes_replica_groups"):
            groups = message.mesh_axes_replica_groups
            sizes = (
                axis.sub_axis_info.size or groups.mesh.axes[axis.mesh_axis_index].size
                for axis in groups.axes
            )
            return prod(sizes)
        counted = (message.iota_replica_groups, message.collective_device_list.iota_replica_groups)
        return max(int(each.num_devices_per_group) for each in counted)

    @property
    def sends_to_another(self) -> bool:
        """Whether a device sends to another than itself, of a collective-permute."""
        return any(pair.source != pair.target for pair in self._message.source_target_pairs)

    @property
    def integer(self) -> int | None:
        """The value of a scalar integer constant of 8 bits or more; None for anything else."""
        if self.opcode != "constant" or self.shape.dimensions:
            return None
        held = self.shape.integer_range
        if held is None:
            return None
        literal = getattr(self._message.literal, f"{self.shape.element_type}s", ())
        if isinstance(literal, bytes):  # how XLA writes integers of 8 and 16 bits
            literal = [int.from_bytes(literal, "little", signed=held.start < 0)] if literal else ()
        return int(literal[0]) if literal else None

    @property
    def source(self) -> str | None:
        """``file:line`` in the user's program; None if the compiler did not store it."""
        if not self._message.HasField("metadata"):
            return None
        return self.computation.module.source_index.line(self._message.metadata)
