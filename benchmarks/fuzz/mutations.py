"""Mutations of inputs: of bytes, of protobuf messages, of JSON and of texts.

Each mutator takes a source of randomness and the seeds of its reader, and makes one input. The same
randomness and seeds give the same input.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from typing import Any, Final

import msgspec

Mutator = Callable[[Random, Sequence[bytes]], bytes]

_STEPS: Final = (1, 1, 1, 2, 4)
_DEEP: Final = (5, 90, 150, 2_000)
_NUMBERS: Final = (0, 1, 2, 5, 127, 128, 255, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63)
_LEAST: Final = 2**64 - 1  # minus one, as protobuf writes it

HOSTILE: Final = (
    "",
    "../../x",
    "/etc/passwd",
    "\x1b]8;;https://example.org\x07here\x1b]8;;\x07",
    "\x1b[2J\x1b[31m",
    "\x9b31m",
    "one\rtwo",
    "a\nb\n::error::c",
    "%0A::set-output name=x::y",
    "\u202eright to left",
    "\0",
    "\ufdd0\uffff\U0010ffff",
    "<script>alert(1)</script>",
    "]]>&lt;\"'",
    "[link](javascript:alert(1)) | `code` | **bold**",
    "[red]markup[/]",
    "{0} %s {{ 7*7 }}",
    "x" * 5_000,
)
"""Names and messages that attack a terminal, a page, a path or a parser."""


def of_bytes(random: Random, seeds: Sequence[bytes]) -> bytes:
    """A seed with some of its bytes changed, removed, repeated, or taken from another seed."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.choice(_STEPS)):
        _change(random, data, seeds)
    return bytes(data)


def _change(random: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    at = random.randint(0, len(data))
    end = min(len(data), at + random.choice((1, 2, 4, 16, 256)))
    match random.randrange(7):
        case 0 if at < len(data):
            data[at] ^= 1 << random.randrange(8)
        case 1:
            data[at:end] = random.randbytes(end - at)
        case 2:
            del data[at:end]
        case 3:
            data[at:at] = data[at:end] * random.choice((1, 2, 50))
        case 4:
            del data[at:]
        case 5:
            other = random.choice(seeds)
            begin = random.randint(0, len(other))
            data[at:end] = other[begin : begin + random.choice((4, 64, 1024))]
        case _:
            data[at:end] = random.choice((b"\0", b"\x7f", b"\x80", b"\xff")) * (end - at)


# The wire format of protobuf: https://protobuf.dev/programming-guides/encoding/
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class _Field:
    """A field: its number, wire type, and a number, bytes, or the fields of a message."""

    number: int
    kind: int
    value: "int | bytes | tuple[_Field, ...]"


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise ValueError


@lru_cache(4096)
def _fields(data: bytes) -> tuple[_Field, ...]:
    """The fields of a message. Raises ValueError or IndexError for bytes that are none."""
    found, at = [], 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1000 or kind not in {_VARINT, _FIXED64, _BYTES, _FIXED32}:
            raise ValueError
        value: int | bytes | tuple[_Field, ...]
        if kind == _VARINT:
            value, at = _varint(data, at)
        else:
            size, at = _varint(data, at) if kind == _BYTES else ({1: 8, 5: 4}[kind], at)
            if at + size > len(data):
                raise ValueError
            value, at = data[at : at + size], at + size
            if kind == _BYTES:
                value = _as_message(value)
        found.append(_Field(number, kind, value))
    return tuple(found)


def _as_message(data: bytes) -> "bytes | tuple[_Field, ...]":
    # Names and opcodes may read as messages by chance; a letter is rarely a tag of small numbers.
    if len(data) < 2 or (data.isascii() and data.decode().isprintable()):
        return data
    try:
        return _fields(data)
    except (ValueError, IndexError):
        return data


def _encoded_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encoded(fields: Sequence[_Field]) -> bytes:
    out = []
    for field in fields:
        value = field.value
        out.append(_encoded_varint(field.number << 3 | field.kind))
        if isinstance(value, int):
            out.append(_encoded_varint(value))
            continue
        data = _encoded(value) if isinstance(value, tuple) else value
        out += [_encoded_varint(len(data)), data] if field.kind == _BYTES else [data]
    return b"".join(out)


_Tree = tuple[_Field, ...]


def of_messages(random: Random, seeds: Sequence[bytes]) -> bytes:
    """A message with fields dropped, repeated, renumbered, exchanged, and numbers at extremes."""
    try:
        tree = _fields(random.choice(seeds))
    except (ValueError, IndexError):
        return of_bytes(random, seeds)
    for _ in range(random.choice(_STEPS)):
        tree = _mutated(random, tree, tree)
    data = _encoded(tree)
    return data if random.random() < 0.95 else of_bytes(random, [data])


def _mutated(random: Random, fields: _Tree, whole: _Tree) -> _Tree:
    """The fields with one change, at a level that is drawn on the way down."""
    at = random.randrange(len(fields)) if fields else 0
    inside = [k for k, each in enumerate(fields) if isinstance(each.value, tuple) and each.value]
    if inside and random.random() < 0.85:
        at = random.choice(inside)
        below = fields[at].value
        assert isinstance(below, tuple)
        changed: tuple[_Field, ...] = (replace(fields[at], value=_mutated(random, below, whole)),)
    elif fields:
        changed = _changed(random, fields[at], whole)
    else:
        changed = (_Field(random.randint(1, 90), _VARINT, random.choice(_NUMBERS)),)
    if random.random() < 0.03:
        return tuple(random.sample(fields, len(fields)))
    return (*fields[:at], *changed, *fields[at + 1 :])


def _changed(random: Random, field: _Field, whole: _Tree) -> _Tree:
    match random.randrange(8):
        case 0:
            return ()
        case 1:
            return (field,) * random.choice((2, 3, 40))
        case 2:
            return (replace(field, number=random.choice((1, 2, 3, 5, 6, 7, 8, 9, 35, 36, 38))),)
        case 3:
            other = _drawn(random, whole)
            return (replace(other, number=field.number),)
        case 4:
            nested: _Tree = (field,)
            for _ in range(random.choice(_DEEP[:3])):
                nested = (_Field(field.number, _BYTES, nested),)
            return nested
    return (replace(field, value=_other_value(random, field, whole)),)


def _other_value(random: Random, field: _Field, whole: _Tree) -> "int | bytes | _Tree":
    value = field.value
    if isinstance(value, int):
        drawn = random.choice((*_NUMBERS, _LEAST, value + 1, max(0, value - 1)))
        others = [each.value for each in (_drawn(random, whole) for _ in range(4))]
        # Another's: a cross-reference.
        return random.choice((drawn, *(each for each in others if isinstance(each, int))))
    if field.kind != _BYTES:
        return random.randbytes(8 if field.kind == _FIXED64 else 4)
    if isinstance(value, tuple):
        return random.choice((b"", value[::-1], value * 2, _encoded(value)[:-1]))
    drawn_texts = [each.value for each in (_drawn(random, whole) for _ in range(4))]
    texts = [each for each in drawn_texts if isinstance(each, bytes)] or [value]
    packed = b"".join(_encoded_varint(random.choice((*_NUMBERS, _LEAST))) for _ in range(3))
    hostile = random.choice(HOSTILE).encode(errors="replace")
    return random.choice((random.choice(texts), hostile, packed, value[:-1], value * 3))


def _drawn(random: Random, fields: _Tree) -> _Field:
    """Any field of the message, or of a message in it."""
    field = random.choice(fields)
    while isinstance(field.value, tuple) and field.value and random.random() < 0.9:
        field = random.choice(field.value)
    return field


_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 2**53, 2**63 - 1, -(2**63), 2**64, 0.5, -0.0, 1e308, 5e-324),
    *([], {}, [[]], [0], {"": None}, {"n": 1}),
)


def of_json(random: Random, seeds: Sequence[bytes]) -> bytes:
    """JSON with values exchanged, keys dropped or repeated, deep nesting, or odd spellings."""
    try:
        value = json.loads(random.choice(seeds))
        for _ in range(random.choice(_STEPS)):
            value = _other_json(random, value, value)
        return _misspelled(random, json.dumps(value, ensure_ascii=random.random() < 0.5))
    except (ValueError, RecursionError):
        return of_bytes(random, seeds)


def _misspelled(random: Random, text: str) -> bytes:
    """The JSON, rarely with a spelling that no encoder gives."""
    data = text.encode(errors="surrogatepass")
    if random.random() < 0.8:
        return data
    odd = random.choice(
        (b"1e999", b"NaN", b"-Infinity", b"9" * 400, b'"\\ud800"', b'"\xff"', b"\xef\xbb\xbf")
    )
    at = random.choice([k for k, byte in enumerate(data) if byte in b":,[{ "] or [0])
    made = (
        data[: at + 1] + odd + data[at + 1 :],
        data.replace(b"{", b'{"schema":1,"schema":2,', 1),
        b"[" * random.choice(_DEEP) + data,
        of_bytes(random, [data]),
    )
    return random.choice(made)


def _other_json(random: Random, value: Any, whole: Any) -> Any:
    """The value with one change, at a level that is drawn on the way down."""
    if isinstance(value, dict | list) and value and random.random() < 0.8:
        return _other_items(random, value, whole)
    alike = [each for each in (*_VALUES, *HOSTILE) if type(each) is type(value)]
    if alike and random.random() < 0.7:  # which its reader may accept
        return random.choice(alike)
    if random.random() < 0.1:
        for _ in range(random.choice(_DEEP[:3])):
            value = [value] if random.random() < 0.5 else {"x": value}
        return value
    if random.random() < 0.3:
        return random.choice(list(_every_value(whole)))
    return random.choice((*_VALUES, *HOSTILE))


def _other_items(random: Random, value: Any, whole: Any) -> Any:
    key = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
    changed = value.copy()
    match random.randrange(8):
        case 0:
            del changed[key]
        case 1 if isinstance(changed, dict):
            changed[random.choice((*HOSTILE, *value))] = changed.pop(key)
        case 1:
            changed += changed[: random.choice((1, 10))]
        case _:
            changed[key] = _other_json(random, value[key], whole)
    return changed


def _every_value(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _every_value(each)


def of_json_lines(random: Random, seeds: Sequence[bytes]) -> bytes:
    """JSON lines of which some are changed, repeated, exchanged or torn."""
    lines = random.choice(seeds).splitlines()
    for _ in range(random.randint(1, 2)):
        at = random.randrange(len(lines))
        lines[at] = of_json(random, [lines[at]])
        if random.random() < 0.1:
            lines.insert(at, random.choice(lines))
    end = random.choice((b"\n", b"\n", b"", b"\r\n", b"\n\n"))
    return b"\n".join(lines) + end


def of_msgpack(random: Random, seeds: Sequence[bytes]) -> bytes:
    """MessagePack with values exchanged as in JSON, or its bytes changed."""
    try:
        value = msgspec.msgpack.decode(random.choice(seeds))
        for _ in range(random.choice(_STEPS)):
            value = _other_json(random, value, value)
        return msgspec.msgpack.encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return of_bytes(random, seeds)


def of_lines(words: Sequence[str]) -> Mutator:
    """A mutator of texts: lines and words exchanged, with ``words`` of the language thrown in."""

    def mutate(random: Random, seeds: Sequence[bytes]) -> bytes:
        lines = random.choice(seeds).decode(errors="replace").split("\n")
        for _ in range(random.choice(_STEPS)):
            at = random.randrange(len(lines))
            match random.randrange(5):
                case 0:
                    del lines[at]
                    lines = lines or [""]
                case 1:
                    lines.insert(at, random.choice(lines))
                case 2:
                    lines[at] = random.choice(lines)
                case _:
                    lines[at] = _other_words(random, lines[at], words)
        data = "\n".join(lines).encode(errors="replace")
        return data if random.random() < 0.9 else of_bytes(random, [data])

    return mutate


def _other_words(random: Random, line: str, words: Sequence[str]) -> str:
    numbers = re.findall(r"\d+", line)
    if numbers and random.random() < 0.4:
        other = random.choice((*numbers, "0", "1", "2", str(random.choice(_NUMBERS))))
        return re.sub(rf"\b{random.choice(numbers)}\b", other, line, count=1)
    parts = line.split(" ")
    at = random.randrange(len(parts))
    kinds = (words, parts, parts, ("-1", str(10**30)), HOSTILE, (parts[at] * 2, parts[at][:-1]))
    parts[at] = random.choice(random.choice(kinds))
    return " ".join(parts)
