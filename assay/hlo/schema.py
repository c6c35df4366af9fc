"""The part of XLA's HloModuleProto that Assay reads, as protobuf message classes.

A module's instructions stay bytes, which on the wire is what a message in a message is, until one
is asked for: decoded all at once they take several times the memory of the bytes, and time that
grows faster than the module.

The classes are built at import with protobuf's descriptor API, in a descriptor pool and a package
of their own: XLA's full schema may be registered in the same process (tensorflow, torch_xla), and
the two do not collide. Field numbers are those of ``xla/service/hlo.proto`` and
``xla/xla_data.proto``; fields that are not named here are skipped.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

Message = Any
"""A decoded message. Its class is made at run time, so no static type describes it; `module` and
`shape` turn messages into typed values and let none of them out."""

_PACKAGE: Final = "assay.hlo"
_BROKEN_INSTRUCTION: Final = "an instruction that protobuf cannot read"

_SCALARS: Final = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
}

# Message -> field -> (number, type); "*" marks a repeated field. A map is, on the wire, a repeated
# message of key and value; an enum is an int32; a message that is decoded later is bytes.
_MESSAGES: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "Module": {
        "name": (1, "string"),
        "computations": (3, "Computation*"),
        "entry_computation_id": (6, "int64"),
        "schedule": (7, "Schedule"),
        "input_output_alias": (8, "InputOutputAlias"),
        "buffer_donor": (18, "BufferDonor"),
        "stack_frame_index": (17, "StackFrameIndex"),
    },
    "Computation": {
        "name": (1, "string"),
        "instructions": (2, "bytes*"),
        "id": (5, "int64"),
        "root_id": (6, "int64"),
        "execution_thread": (8, "string"),
    },
    # Of an Instruction, what tells whether to decode the rest.
    "Outline": {"opcode": (2, "string"), "id": (35, "int64"), "operand_ids": (36, "int64*")},
    "Instruction": {
        "name": (1, "string"),
        "opcode": (2, "string"),
        "shape": (3, "Shape"),
        "metadata": (7, "OpMetadata"),
        "literal": (8, "Literal"),
        "parameter_number": (9, "int64"),
        "fusion_kind": (11, "string"),
        "tuple_index": (13, "int64"),
        "dimensions": (14, "int64*"),
        "window": (15, "Window"),
        "convolution_dimension_numbers": (16, "ConvolutionDimensionNumbers"),
        "slice_dimensions": (17, "SliceDimensions*"),
        "dynamic_slice_sizes": (20, "int64*"),
        "channel_id": (26, "int64"),
        "custom_call_target": (28, "string"),
        "dot_dimension_numbers": (30, "DotDimensionNumbers"),
        "id": (35, "int64"),
        "operand_ids": (36, "int64*"),
        "control_predecessor_ids": (37, "int64*"),
        "called_computation_ids": (38, "int64*"),
        "backend_config": (43, "bytes"),
        "is_host_transfer": (47, "bool"),
        "comparison_direction": (63, "string"),
        "frontend_attributes": (68, "FrontendAttributes"),
        "output_operand_aliasing": (74, "OutputOperandAliasing*"),
        "async_execution_thread": (79, "string"),
    },
    # Of an Instruction, what it is counted by.
    "Label": {
        "opcode": (2, "string"),
        "shape": (3, "bytes"),
        "metadata": (7, "bytes"),
        "custom_call_target": (28, "string"),
    },
    # Of an Instruction, what says nothing of its meaning, or says it by reference; all that is not
    # named here stays in the message as bytes.
    "Anonymous": {
        "name": (1, "bytes"),
        "opcode": (2, "string"),
        "metadata": (7, "bytes"),
        "channel_id": (26, "int64"),
        "id": (35, "int64"),
        "operand_ids": (36, "int64*"),
        "control_predecessor_ids": (37, "int64*"),
        "called_computation_ids": (38, "int64*"),
        "sharding": (40, "AnonymousSharding"),
        "backend_config": (43, "bytes"),
        "all_reduce_id": (45, "int64"),
        "custom_call_has_side_effect": (65, "bool"),
        "frontend_attributes": (68, "FrontendAttributes"),
        "statistics_viz": (82, "bytes"),
        "original_value": (88, "bytes"),
    },
    "AnonymousSharding": {"tuple_shardings": (5, "AnonymousSharding*"), "metadata": (7, "bytes*")},
    "Window": {"dimensions": (1, "WindowDimension*")},
    "WindowDimension": {
        "size": (1, "int64"),
        "stride": (2, "int64"),
        "padding_low": (3, "int64"),
        "window_dilation": (5, "int64"),
        "base_dilation": (6, "int64"),
    },
    "ConvolutionDimensionNumbers": {
        "kernel_input_feature_dimension": (3, "int64"),
        "kernel_output_feature_dimension": (4, "int64"),
        "output_batch_dimension": (9, "int64"),
        "output_feature_dimension": (10, "int64"),
        "input_spatial_dimensions": (11, "int64*"),
        "output_spatial_dimensions": (12, "int64*"),
    },
    "DotDimensionNumbers": {"lhs_contracting_dimensions": (1, "int64*")},
    "SliceDimensions": {"start": (1, "int64"), "limit": (2, "int64"), "stride": (3, "int64")},
    "FrontendAttributes": {"map": (1, "FrontendAttribute*")},
    "FrontendAttribute": {"key": (1, "string"), "value": (2, "string")},
    "OutputOperandAliasing": {
        "output_shape_index": (1, "int64*"),
        "operand_index": (2, "int64"),
        "operand_shape_index": (3, "int64*"),
    },
    "OpMetadata": {
        "op_type": (1, "string"),
        "op_name": (2, "string"),
        "source_file": (3, "string"),
        "source_line": (4, "int32"),
        "stack_frame_id": (15, "int32"),
    },
    "Shape": {
        "element_type": (2, "int32"),
        "dimensions": (3, "int64*"),
        "tuple_shapes": (4, "Shape*"),
        "layout": (5, "Layout"),
    },
    "Layout": {
        "minor_to_major": (1, "int64*"),
        "tiles": (6, "Tile*"),
        "element_size_in_bits": (7, "int64"),
        "memory_space": (8, "int64"),
    },
    "Tile": {"dimensions": (1, "int64*")},
    "Literal": {
        "shape": (1, "Shape"),
        "preds": (2, "bool*"),
        "u8s": (3, "bytes"),
        "s32s": (4, "int32*"),
        "s64s": (5, "int64*"),
        "u32s": (6, "uint32*"),
        "u64s": (7, "uint64*"),
        "s8s": (15, "bytes"),
        "u16s": (16, "bytes"),
        "s16s": (17, "bytes"),
    },
    "Schedule": {"sequences": (1, "ScheduleEntry*")},
    "ScheduleEntry": {"key": (1, "int64"), "value": (2, "InstructionSequence")},
    "InstructionSequence": {"instruction_ids": (1, "int64*")},
    "InputOutputAlias": {"entries": (1, "AliasEntry*")},
    "AliasEntry": {
        "output_shape_index": (1, "int64*"),
        "parameter_number": (2, "int64"),
        "parameter_shape_index": (3, "int64*"),
        "kind": (4, "int32"),
    },
    "BufferDonor": {"entries": (1, "BufferDonorEntry*")},
    "BufferDonorEntry": {
        "parameter_number": (1, "int64"),
        "parameter_shape_index": (2, "int64*"),
    },
    "StackFrameIndex": {
        "file_names": (1, "string*"),
        "function_names": (2, "string*"),
        "file_locations": (3, "FileLocation*"),
        "stack_frames": (4, "StackFrame*"),
    },
    "FileLocation": {
        "file_name_id": (1, "int32"),
        "function_name_id": (2, "int32"),
        "line": (3, "int32"),
        "column": (4, "int32"),
    },
    "StackFrame": {"file_location_id": (1, "int32"), "parent_frame_id": (2, "int32")},
}


# The compiler's buffer assignment, in HloProto beside the module.
_MESSAGES.update(
    {
        "HloProto": {"hlo_module": (1, "bytes"), "buffer_assignment": (3, "bytes")},
        "BufferAssignment": {
            "logical_buffers": (1, "LogicalBuffer*"),
            "buffer_aliases": (2, "BufferAlias*"),
            "buffer_allocations": (3, "BufferAllocation*"),
            "heap_simulator_traces": (4, "HeapSimulatorTrace*"),
        },
        "Location": {"shape_index": (3, "int64*"), "instruction_id": (4, "int64")},
        "LogicalBuffer": {
            "id": (1, "int64"),
            "size": (2, "int64"),
            "defined_at": (3, "Location"),
            "color": (4, "int64"),
        },
        "BufferAlias": {"source_buffer_id": (1, "int64"), "location": (2, "Location")},
        "BufferAllocation": {
            "index": (1, "int64"),
            "size": (2, "int64"),
            "is_thread_local": (3, "bool"),
            "is_entry_computation_parameter": (5, "bool"),
            "parameter_number": (6, "int64"),
            "maybe_live_out": (7, "bool"),
            "color": (8, "int64"),
            "assigned": (9, "Assigned*"),
            "parameter_shape_index": (10, "int64*"),
            "is_tuple": (11, "bool"),
            "is_constant": (12, "bool"),
        },
        "Assigned": {
            "logical_buffer_id": (1, "int64"),
            "offset": (2, "int64"),
            "size": (3, "int64"),
        },
        "HeapSimulatorTrace": {
            "events": (1, "HeapEvent*"),
            "whole_module_simulation": (2, "bool"),
            "buffer_allocation_index": (3, "int64"),
        },
        "HeapEvent": {
            "kind": (1, "int32"),
            "buffer_id": (2, "int64"),
            "computation_name": (3, "string"),
            "instruction_name": (4, "string"),
            "share_with_canonical_id": (5, "int64"),
        },
    }
)


class MalformedModule(ValueError):
    """Bytes that are not one whole HLO module."""


def decode(data: bytes) -> Message:
    """The module message that ``data`` holds.

    Raises:
        MalformedModule: ``data`` is no HloModuleProto, or only a part of one.
    """
    message = _MODULE_CLASS()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedModule(_advice(f"{len(data)} bytes that protobuf cannot read")) from error
    if not message.computations:
        raise MalformedModule(_advice(f"{len(data)} bytes that hold no computation"))
    return message


def split(data: bytes) -> tuple[bytes, bytes]:
    """The serialized module and the serialized buffer assignment of an HloProto; either may be b"".

    Raises:
        MalformedModule: ``data`` is no HloProto, or only a part of one.
    """
    message = _HLO_PROTO_CLASS()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedModule(_advice(f"{len(data)} bytes that protobuf cannot read")) from error
    return bytes(message.hlo_module), bytes(message.buffer_assignment)


def wrap(module: bytes) -> bytes:
    """The HloProto of a serialized module alone."""
    return bytes(_HLO_PROTO_CLASS(hlo_module=module).SerializeToString())


def decode_buffer_assignment(data: bytes) -> Message:
    """The buffer assignment that ``data`` holds.

    Raises:
        MalformedModule: ``data`` is no BufferAssignmentProto, or only a part of one.
    """
    message = _BUFFER_ASSIGNMENT_CLASS()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedModule(
            f"got {len(data)} bytes that protobuf cannot read, wanted a BufferAssignmentProto; "
            "pass the field of the HloProto that the compiler dumped"
        ) from error
    return message


def decode_outlines(encoded: Iterable[bytes]) -> Iterator[Message]:
    """The id, opcode and operands of each instruction.

    Raises:
        MalformedModule: one of them is no HloInstructionProto.
    """
    try:  # around the loop, not in it: a module has hundreds of thousands of instructions
        yield from map(_OUTLINE_CLASS.FromString, encoded)
    except DecodeError as error:
        raise MalformedModule(_advice(_BROKEN_INSTRUCTION)) from error


def decode_instruction(encoded: bytes) -> Message:
    """All that Assay reads of an instruction.

    Raises:
        MalformedModule: ``encoded`` is no HloInstructionProto.
    """
    try:
        return _INSTRUCTION_CLASS.FromString(encoded)
    except DecodeError as error:
        raise MalformedModule(_advice(_BROKEN_INSTRUCTION)) from error


def decode_anonymous(encoded: Iterable[bytes]) -> Iterator[Message]:
    """Each instruction, its names, ids and references apart from all the rest.

    Raises:
        MalformedModule: one of them is no HloInstructionProto.
    """
    try:
        yield from map(_ANONYMOUS_CLASS.FromString, encoded)
    except DecodeError as error:
        raise MalformedModule(_advice(_BROKEN_INSTRUCTION)) from error


def decode_labels(encoded: Iterable[bytes]) -> Iterator[Message]:
    """The opcode, source and undecoded shape of each instruction.

    Raises:
        MalformedModule: one of them is no HloInstructionProto.
    """
    try:
        yield from map(_LABEL_CLASS.FromString, encoded)
    except DecodeError as error:
        raise MalformedModule(_advice(_BROKEN_INSTRUCTION)) from error


def decode_shape(encoded: bytes) -> Message:
    """The shape of a label.

    Raises:
        MalformedModule: ``encoded`` is no ShapeProto.
    """
    try:
        return _SHAPE_CLASS.FromString(encoded)
    except DecodeError as error:
        raise MalformedModule(_advice("a shape that protobuf cannot read")) from error


def decode_metadata(encoded: bytes) -> Message:
    """The metadata of a label.

    Raises:
        MalformedModule: ``encoded`` is no OpMetadata.
    """
    try:
        return _METADATA_CLASS.FromString(encoded)
    except DecodeError as error:
        raise MalformedModule(_advice("metadata that protobuf cannot read")) from error


def _advice(got: str) -> str:
    return (
        f"got {got}, wanted a serialized HloModuleProto; "
        "pass what as_serialized_hlo_module_proto() returns, "
        "not HLO text and not an HloProto, which wraps the module"
    )


def _describe_message(name: str, fields: dict[str, tuple[int, str]]) -> DescriptorProto:
    return DescriptorProto(
        name=name,
        field=[_describe_field(field, number, kind) for field, (number, kind) in fields.items()],
    )


def _describe_field(name: str, number: int, kind: str) -> FieldDescriptorProto:
    repeated = kind.endswith("*")
    kind = kind.removesuffix("*")
    field = FieldDescriptorProto(
        name=name,
        number=number,
        label=FieldDescriptorProto.LABEL_REPEATED
        if repeated
        else FieldDescriptorProto.LABEL_OPTIONAL,
    )
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    return field


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    pool.Add(
        FileDescriptorProto(
            name="assay/hlo.proto",
            package=_PACKAGE,
            syntax="proto3",
            message_type=[_describe_message(*message) for message in _MESSAGES.items()],
        )
    )
    return pool


def _class(pool: DescriptorPool, name: str) -> type[Message]:
    return GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


_POOL: Final = _pool()
_MODULE_CLASS: Final = _class(_POOL, "Module")
_INSTRUCTION_CLASS: Final = _class(_POOL, "Instruction")
_OUTLINE_CLASS: Final = _class(_POOL, "Outline")
_ANONYMOUS_CLASS: Final = _class(_POOL, "Anonymous")
_LABEL_CLASS: Final = _class(_POOL, "Label")
_SHAPE_CLASS: Final = _class(_POOL, "Shape")
_METADATA_CLASS: Final = _class(_POOL, "OpMetadata")
_HLO_PROTO_CLASS: Final = _class(_POOL, "HloProto")
_BUFFER_ASSIGNMENT_CLASS: Final = _class(_POOL, "BufferAssignment")
