"""Device models: one TOML file each, every number with its source."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import TypeGuard, cast

from assay.model.target import DeviceModel, Kind, TargetError, TargetName, misuse

_WORDS = ("name", "kind", "title", "default_topology")
_REQUIRED = ("memory_bytes", "nominal_memory_bytes", "memory_bandwidth_bytes_per_second")
_OPTIONAL = (
    "host_link_bandwidth_bytes_per_second",
    "peak_bf16_flops_per_second",
    "on_chip_memory_bytes",
)
_TABLES = (*_REQUIRED, *_OPTIONAL, "compiler")
_KINDS = ("gpu", "tpu")


@functools.cache
def device_models() -> Mapping[str, DeviceModel]:
    """The models that come with Assay, by name, in the order of the names."""
    folder = files("assay.targets").joinpath("models")
    found = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml"))
    models = [device_model(folder.joinpath(file).read_text("utf-8"), file) for file in found]
    return MappingProxyType({model.name: model for model in models})


def device_model(text: str, origin: str) -> DeviceModel:
    """The model that TOML `text` describes; `origin` names the file in errors.

    Raises TargetError on anything but: the words name, kind, title and default_topology;
    for each number a table of `value` and `source`; `compiler` with `source` and `fields`.
    """
    table = _toml(text, origin)
    _only(table, (*_WORDS, *_TABLES), origin)
    word = {key: _text(table, key, origin) for key in _WORDS}
    numbers = {key: _number(table, key, origin) for key in (*_REQUIRED, *_OPTIONAL)}
    compiler, sources = _table(table, "compiler", origin), {}
    _only(compiler, ("source", "fields"), f"{origin}, [compiler]")
    for key in _TABLES:
        if key in table:
            sources[key] = _text(_table(table, key, origin), "source", f"{origin}, [{key}]")
    return DeviceModel(
        name=word["name"],
        kind=_kind(word["kind"], origin),
        title=word["title"],
        default_topology=TargetName.parse(f"{word['name']}:{word['default_topology']}").topology,
        memory_bytes=cast("int", numbers["memory_bytes"]),
        nominal_memory_bytes=cast("int", numbers["nominal_memory_bytes"]),
        memory_bandwidth_bytes_per_second=cast("int", numbers[_REQUIRED[-1]]),
        host_link_bandwidth_bytes_per_second=numbers[_OPTIONAL[0]],
        peak_bf16_flops_per_second=numbers[_OPTIONAL[1]],
        on_chip_memory_bytes=numbers[_OPTIONAL[2]] or 0,
        compiler=MappingProxyType(dict(_table(compiler, "fields", f"{origin}, [compiler]"))),
        sources=MappingProxyType(sources),
    )


def _toml(text: str, origin: str) -> Mapping[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(origin, f"{error}", "TOML", "fix the file's syntax") from error


def _number(table: Mapping[str, object], key: str, origin: str) -> int | None:
    if key in _OPTIONAL and key not in table:
        return None
    entry, where = _table(table, key, origin), f"{origin}, [{key}]"
    _only(entry, ("value", "source"), where)
    value = entry.get("value")
    if type(value) is not int or value <= 0:
        raise _wrong(where, f"value = {value!r}", "a positive whole number", "write it in full")
    return value


def _text(table: Mapping[str, object], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise _wrong(where, f"{key} = {value!r}", "a text that says something", f"write {key}")
    return value


def _table(table: Mapping[str, object], key: str, where: str) -> Mapping[str, object]:
    value = table.get(key)
    if not _is_table(value):
        raise _wrong(where, f"{key} = {value!r}", "a table", f"write a table [{key}]")
    return value


def _is_table(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, dict)


def _kind(text: str, origin: str) -> Kind:
    if text not in _KINDS:
        raise _wrong(origin, f"kind = {text!r}", " or ".join(_KINDS), "write one of them")
    return cast("Kind", text)


def _only(table: Mapping[str, object], allowed: tuple[str, ...], where: str) -> None:
    if unknown := sorted(table.keys() - set(allowed)):
        raise _wrong(where, ", ".join(unknown), ", ".join(allowed), "remove or rename the rest")


def _wrong(where: str, got: str, wanted: str, do: str) -> TargetError:
    return misuse(got=f"{got} in {where}", wanted=wanted, do=do)
