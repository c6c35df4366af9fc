"""Protobuf's text format, written from nested mappings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping


def text_proto(message: Mapping[str, object]) -> str:
    """`message` in protobuf's text format: mappings are messages, lists repeated fields."""
    return "".join(f"{line}\n" for line in _lines(message))


def _lines(message: Mapping[str, object]) -> Iterator[str]:
    for name, value in message.items():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, Mapping):
                yield f"{name} {{"
                yield from (f"  {line}" for line in _lines(item))
                yield "}"
            else:
                yield f"{name}: {_scalar(name, item)}"


def _scalar(name: str, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=True)
    raise TypeError(
        f"got {value!r} for field {name}; wanted a number, string, truth value, table or list; "
        "do this: write it as one of these"
    )
