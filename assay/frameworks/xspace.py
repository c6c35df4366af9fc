"""A device's time from a profile: XLA's XSpace, read with protobuf.

Field numbers are those of ``xplane.proto`` (openxla/xla). A plane is a device or the host, a line a
stream or a thread, and an event a stretch of work on it. On a GPU each stream is a line, and a
transfer is an event by the name of ``MemcpyD2H`` or ``MemcpyH2D``. A TPU has a line of whole
modules. A CPU has no plane: its work is the host's events that name an HLO operation.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from assay.model.timing import DeviceTimes

Message = Any
"""A decoded message; its class is made at run time."""

_PACKAGE: Final = "assay.xspace"
_KINDS: Final = {
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
}
_MESSAGES: Final = {
    "XSpace": {"planes": (1, "XPlane*")},
    "XPlane": {
        "name": (2, "string"),
        "lines": (3, "XLine*"),
        "event_metadata": (4, "EventEntry*"),
        "stat_metadata": (5, "StatEntry*"),
    },
    # A map is on the wire a list of entries of a key and a value.
    "EventEntry": {"key": (1, "int64"), "value": (2, "XEventMetadata")},
    "StatEntry": {"key": (1, "int64"), "value": (2, "XStatMetadata")},
    "XLine": {
        "name": (2, "string"),
        "timestamp_ns": (3, "int64"),
        "events": (4, "XEvent*"),
    },
    "XEvent": {
        "metadata_id": (1, "int64"),
        "offset_ps": (2, "int64"),
        "duration_ps": (3, "int64"),
        "stats": (4, "XStat*"),
    },
    "XStat": {"metadata_id": (1, "int64")},
    "XEventMetadata": {"name": (2, "string")},
    "XStatMetadata": {"name": (2, "string")},
}
_GPU: Final = "/device:GPU:"
# libtpu always adds a plane /device:CUSTOM:Megascale Trace, which is not a device.
_DEVICES: Final = (_GPU, "/device:TPU:")
_HOST: Final = "/host:CPU"
_OPERATION: Final = "hlo_op"
_MODULES: Final = "XLA Modules"
# Lines that sum up a GPU's streams. Their events are not additional work.
_DERIVED: Final = frozenset(
    {"Steps", _MODULES, "XLA Ops", "Framework Ops", "Framework Name Scope", "Source code"}
)
_PICOSECONDS: Final = 1e-12
_TO_HOST: Final = "MemcpyD2H"
_TO_DEVICE: Final = "MemcpyH2D"

Span = tuple[int, int]


class MalformedProfile(ValueError):
    """Bytes that are no XSpace."""


def device_times(profiles: Sequence[bytes], runs: int) -> DeviceTimes | None:
    """Seconds of one of so many runs, summed over devices that worked; None if none did.

    Raises:
        MalformedProfile: one of them is no XSpace.
    """
    planes = [plane for profile in profiles for plane in _decode(profile).planes]
    devices = [plane for plane in planes if plane.name.startswith(_DEVICES)]
    if devices:
        seen = [_on_device(plane) for plane in devices]
    else:
        seen = [_on_host(plane) for plane in planes if plane.name == _HOST]
    worked = [times for times in seen if times.busy]
    if not worked:
        return None
    return DeviceTimes(
        busy=sum(each.busy for each in worked) / runs,
        to_host=_sum((each.to_host for each in worked), runs),
        to_device=_sum((each.to_device for each in worked), runs),
    )


def _on_device(plane: Message) -> DeviceTimes:
    names = {entry.key: entry.value.name for entry in plane.event_metadata}
    modules = [line for line in plane.lines if line.name == _MODULES]
    if modules and not plane.name.startswith(_GPU):
        return DeviceTimes(busy=_seconds(span for line in modules for _, span in _events(line)))
    events = [
        (names.get(event.metadata_id, ""), span)
        for line in plane.lines
        if line.name not in _DERIVED
        for event, span in _events(line)
    ]
    return DeviceTimes(
        busy=_seconds(span for _, span in events),
        to_host=_seconds(span for name, span in events if name.startswith(_TO_HOST)),
        to_device=_seconds(span for name, span in events if name.startswith(_TO_DEVICE)),
    )


def _on_host(plane: Message) -> DeviceTimes:
    operation = {e.key for e in plane.stat_metadata if e.value.name == _OPERATION}
    return DeviceTimes(
        busy=_seconds(
            span
            for line in plane.lines
            for event, span in _events(line)
            if any(stat.metadata_id in operation for stat in event.stats)
        )
    )


def _events(line: Message) -> Iterator[tuple[Message, Span]]:
    start = line.timestamp_ns * 1000
    for event in line.events:
        begin = start + event.offset_ps
        yield event, (begin, begin + event.duration_ps)


def _seconds(spans: Iterable[Span]) -> float:
    """How long at least one of the spans lasted."""
    total, until = 0, 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total * _PICOSECONDS


def _sum(parts: Iterable[float | None], runs: int) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) / runs if known else None


def _decode(data: bytes) -> Message:
    message = _SPACE()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise MalformedProfile(
            f"got {len(data)} bytes that protobuf cannot read, wanted an XSpace; "
            "pass the content of an .xplane.pb file"
        ) from error
    return message


def _field(name: str, number: int, kind: str) -> FieldDescriptorProto:
    single = kind.removesuffix("*")
    repeated = FieldDescriptorProto.LABEL_REPEATED
    label = repeated if kind != single else FieldDescriptorProto.LABEL_OPTIONAL
    field = FieldDescriptorProto(name=name, number=number, label=label)
    if single in _KINDS:
        field.type = _KINDS[single]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{single}"
    return field


def _space() -> type[Message]:
    pool = DescriptorPool()
    messages = [
        DescriptorProto(name=name, field=[_field(field, *rest) for field, rest in fields.items()])
        for name, fields in _MESSAGES.items()
    ]
    file = FileDescriptorProto(
        name="assay/xspace.proto", package=_PACKAGE, syntax="proto3", message_type=messages
    )
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.XSpace"))


_SPACE: Final = _space()
