"""Shapes: what an HLO value is made of, how many bytes it has, and in which memory it lies."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

from assay.hlo.schema import MalformedModule, Message

HOST_MEMORY_SPACE: Final = 5
"""The memory space that XLA gives to host memory; every other space is on the device."""

_TUPLE: Final = 13
_BUFFER: Final = 34

# PrimitiveType of xla_data.proto -> XLA's name in HLO text, and the bits of one element.
_ELEMENT_TYPES: Final[dict[int, tuple[str, int]]] = {
    1: ("pred", 8),
    30: ("s1", 1),
    26: ("s2", 2),
    21: ("s4", 4),
    2: ("s8", 8),
    3: ("s16", 16),
    4: ("s32", 32),
    5: ("s64", 64),
    31: ("u1", 1),
    27: ("u2", 2),
    22: ("u4", 4),
    6: ("u8", 8),
    7: ("u16", 16),
    8: ("u32", 32),
    9: ("u64", 64),
    10: ("f16", 16),
    11: ("f32", 32),
    12: ("f64", 64),
    16: ("bf16", 16),
    19: ("f8e5m2", 8),
    28: ("f8e4m3", 8),
    20: ("f8e4m3fn", 8),
    23: ("f8e4m3b11fnuz", 8),
    29: ("f8e3m4", 8),
    24: ("f8e5m2fnuz", 8),
    25: ("f8e4m3fnuz", 8),
    32: ("f4e2m1fn", 4),
    33: ("f8e8m0fnu", 8),
    15: ("c64", 64),
    18: ("c128", 128),
    _TUPLE: ("tuple", 0),
    14: ("opaque", 0),
    17: ("token", 0),
    _BUFFER: ("buffer", 0),
}
_BITS: Final = dict(_ELEMENT_TYPES.values())
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
        if self.element_type in {"tuple", "buffer"}:
            for element in self.elements:
                yield from element.leaves()
        else:
            yield self

    def __str__(self) -> str:
        if self.element_type == "tuple":
            return f"({', '.join(map(str, self.elements))})"
        if self.element_type == "buffer":
            return f"b({', '.join(map(str, self.elements))})"
        space = f"S({self.memory_space})" if self.memory_space else ""
        return f"{self.element_type}[{','.join(map(str, self.dimensions))}]{space}"


def read_shape(message: Message) -> Shape:
    """The shape that a ShapeProto describes.

    Raises:
        MalformedModule: the element type is none that XLA is known to have.
    """
    try:
        name, _ = _ELEMENT_TYPES[message.element_type]
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


def mentions_host(message: Message) -> bool:
    """Whether any array of a ShapeProto lies in host memory, without reading the whole shape."""
    if message.element_type in {_TUPLE, _BUFFER}:
        return any(map(mentions_host, message.tuple_shapes))
    return bool(message.layout.memory_space == HOST_MEMORY_SPACE)
