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
        "slice_dimensions": (17, "SliceDimensions*"),
        "dynamic_slice_sizes": (20, "int64*"),
        "channel_id": (26, "int64"),
        "custom_call_target": (28, "string"),
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
