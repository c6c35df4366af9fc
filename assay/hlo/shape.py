"""Shapes as a serialised module writes them."""

from collections.abc import Iterator
from typing import Final

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
            "xla_data.proto; if XLA has a new one, add it to assay/hlo/shape.py"
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
