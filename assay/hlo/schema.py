"""Decodes the messages of XLA's HloProto that ``hlo.proto`` describes.

The instructions of a decoded module are bytes, because decoding all of them at once takes several
times the memory of the bytes, and time that grows faster than the module. The messages
``INSTRUCTION``, ``OUTLINE``, ``LABEL``, ``ANONYMOUS`` and ``RESULT`` each decode the fields of an
instruction that one analysis reads.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClassesForFiles

Message = Any
"""A decoded message. Its class is made at run time, so it has no static type. Only `assay.hlo`
handles messages. Other packages receive typed records."""

_PACKAGE: Final = re.compile(r"^package ([\w.]+);", re.MULTILINE)
_MESSAGE: Final = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD: Final = re.compile(r"^  (repeated )?(\w+) (\w+) = (\d+);", re.MULTILINE)


def message_classes(proto: Path) -> Mapping[str, type[Message]]:
    """The classes of the messages of a ``.proto`` file, by name.

    Reads proto3 files with one field per line, without nested messages, enums and maps. The classes
    have a descriptor pool of their own. XLA's full schema may be registered in the same process
    (by tensorflow or torch_xla), and the two do not collide.
    """
    text = proto.read_text(encoding="utf-8")
    package = _PACKAGE.findall(text)[0]
    file = FileDescriptorProto(name=str(proto), package=package, syntax="proto3")
    for message, body in _MESSAGE.findall(text):
        described = file.message_type.add(name=message)
        for repeated, kind, name, number in _FIELD.findall(body):
            field = described.field.add(name=name, number=int(number))
            label = "LABEL_REPEATED" if repeated else "LABEL_OPTIONAL"
            field.label = FieldDescriptorProto.Label.Value(label)
            scalar = f"TYPE_{kind.upper()}"
            if scalar in FieldDescriptorProto.Type.keys():  # noqa: SIM118 - it is no mapping
                field.type = FieldDescriptorProto.Type.Value(scalar)
            else:
                field.type_name = f".{package}.{kind}"
    pool = DescriptorPool()
    pool.Add(file)
    classes = GetMessageClassesForFiles([file.name], pool)
    return {name.removeprefix(f"{package}."): found for name, found in classes.items()}


_CLASSES: Final = message_classes(Path(__file__).with_name("hlo.proto"))
MODULE: Final = _CLASSES["HloModuleProto"]
INSTRUCTION: Final = _CLASSES["HloInstructionProto"]
OUTLINE: Final = _CLASSES["InstructionOutline"]
LABEL: Final = _CLASSES["InstructionLabel"]
ANONYMOUS: Final = _CLASSES["AnonymousInstruction"]
RESULT: Final = _CLASSES["InstructionResult"]
SHAPE: Final = _CLASSES["ShapeProto"]
METADATA: Final = _CLASSES["OpMetadata"]
BUFFER_ASSIGNMENT: Final = _CLASSES["BufferAssignmentProto"]
_HLO_PROTO: Final = _CLASSES["HloProto"]

_HINTS: Final = {
    BUFFER_ASSIGNMENT: "pass the field of the HloProto that the compiler dumped",
    _HLO_PROTO: "pass a file that XLA dumped as .hlo.pb",
}
_OF_MODULE: Final = (
    "pass what as_serialized_hlo_module_proto() returns, not HLO text and not an HloProto, which "
    "wraps the module"
)


class MalformedModule(ValueError):
    """Bytes that are not one whole HLO module."""


def decode(kind: type[Message], data: bytes) -> Message:
    """The message of this kind that ``data`` holds.

    Raises:
        MalformedModule: ``data`` is another message, or only a part of one.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise _malformed(f"{len(data)} bytes that protobuf cannot read", kind) from error


def decode_all(kind: type[Message], encoded: Iterable[bytes]) -> Iterator[Message]:
    """The messages of this kind, in order.

    Raises:
        MalformedModule: one of them is another message, or only a part of one.
    """
    try:  # around the loop, not in it: a module has hundreds of thousands of instructions
        yield from map(kind.FromString, encoded)
    except DecodeError as error:
        raise _malformed("an instruction that protobuf cannot read", kind) from error


def decode_module(data: bytes) -> Message:
    """The module that ``data`` holds.

    Raises:
        MalformedModule: ``data`` is no HloModuleProto, or only a part of one.
    """
    message = decode(MODULE, data)
    if not message.computations:
        raise _malformed(f"{len(data)} bytes that hold no computation", MODULE)
    return message


def split(data: bytes) -> tuple[bytes, bytes]:
    """The serialized module and the serialized buffer assignment of an HloProto; either may be b"".

    Raises:
        MalformedModule: ``data`` is no HloProto, or only a part of one.
    """
    message = decode(_HLO_PROTO, data)
    return message.hlo_module, message.buffer_assignment


def wrap(module: bytes, buffer_assignment: bytes = b"") -> bytes:
    """The HloProto of a serialized module, alone or with its buffer assignment."""
    message = _HLO_PROTO(hlo_module=module, buffer_assignment=buffer_assignment)
    return bytes(message.SerializeToString())


def _malformed(got: str, kind: type[Message]) -> MalformedModule:
    wanted, hint = kind.DESCRIPTOR.name, _HINTS.get(kind, _OF_MODULE)
    return MalformedModule(f"got {got}, wanted a serialized {wanted}; {hint}")
