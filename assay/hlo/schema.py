"""The part of XLA's HloModuleProto that Assay reads, as protobuf message classes.

A module's instructions stay bytes, which on the wire is what a message in a message is, until one
is asked for: decoded all at once they take several times the memory of the bytes, and time that
grows faster than the module.

The classes are built at import with protobuf's descriptor API, in a descriptor pool and a package
of their own: XLA's full schema may be registered in the same process (tensorflow, torch_xla), and
the two do not collide.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from assay.hlo.messages import MESSAGES

Message = Any
"""A decoded message. Its class is made at run time, so no static type describes it; `module`,
`instruction` and `shape` turn messages into typed values and let none of them out."""

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


def wrap(module: bytes, buffer_assignment: bytes = b"") -> bytes:
    """The HloProto of a serialized module, alone or with its buffer assignment."""
    message = _HLO_PROTO_CLASS(hlo_module=module, buffer_assignment=buffer_assignment)
    return bytes(message.SerializeToString())


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
    return _each(_OUTLINE_CLASS, encoded)


def decode_instruction(encoded: bytes) -> Message:
    """All that Assay reads of an instruction.

    Raises:
        MalformedModule: ``encoded`` is no HloInstructionProto.
    """
    return _one(_INSTRUCTION_CLASS, encoded, _BROKEN_INSTRUCTION)


def decode_anonymous(encoded: Iterable[bytes]) -> Iterator[Message]:
    """Each instruction, its names, ids and references apart from all the rest.

    Raises:
        MalformedModule: one of them is no HloInstructionProto.
    """
    return _each(_ANONYMOUS_CLASS, encoded)


def decode_placed(encoded: bytes) -> Message:
    """An instruction's shape, parameter number and tuple index, apart from all the rest.

    Raises:
        MalformedModule: ``encoded`` is no HloInstructionProto.
    """
    return _one(_PLACED_CLASS, encoded, _BROKEN_INSTRUCTION)


def decode_labels(encoded: Iterable[bytes]) -> Iterator[Message]:
    """The opcode, source and undecoded shape of each instruction.

    Raises:
        MalformedModule: one of them is no HloInstructionProto.
    """
    return _each(_LABEL_CLASS, encoded)


def decode_shape(encoded: bytes) -> Message:
    """The shape of a label.

    Raises:
        MalformedModule: ``encoded`` is no ShapeProto.
    """
    return _one(_SHAPE_CLASS, encoded, "a shape that protobuf cannot read")


def decode_metadata(encoded: bytes) -> Message:
    """The metadata of a label.

    Raises:
        MalformedModule: ``encoded`` is no OpMetadata.
    """
    return _one(_METADATA_CLASS, encoded, "metadata that protobuf cannot read")


def _each(kind: type[Message], encoded: Iterable[bytes]) -> Iterator[Message]:
    try:  # around the loop, not in it: a module has hundreds of thousands of instructions
        yield from map(kind.FromString, encoded)
    except DecodeError as error:
        raise MalformedModule(_advice(_BROKEN_INSTRUCTION)) from error


def _one(kind: type[Message], encoded: bytes, broken: str) -> Message:
    try:
        return kind.FromString(encoded)
    except DecodeError as error:
        raise MalformedModule(_advice(broken)) from error


def _advice(got: str) -> str:
    return (
        f"got {got}, wanted a serialized HloModuleProto; "
        "pass what as_serialized_hlo_module_proto() returns, "
        "not HLO text and not an HloProto, which wraps the module"
    )


def _describe_message(name: str, fields: Mapping[str, tuple[int, str]]) -> DescriptorProto:
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
            message_type=[_describe_message(*message) for message in MESSAGES.items()],
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
_PLACED_CLASS: Final = _class(_POOL, "Placed")
_LABEL_CLASS: Final = _class(_POOL, "Label")
_SHAPE_CLASS: Final = _class(_POOL, "Shape")
_METADATA_CLASS: Final = _class(_POOL, "OpMetadata")
_HLO_PROTO_CLASS: Final = _class(_POOL, "HloProto")
_BUFFER_ASSIGNMENT_CLASS: Final = _class(_POOL, "BufferAssignment")
