"""All targets by name: live ones, device models (TOML files), and those of other packages."""

from __future__ import annotations

import difflib
import functools
import math
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeGuard, cast

from assay.model.target import (
    NAME_SHAPE,
    Availability,
    DeviceModel,
    Kind,
    TargetError,
    TargetName,
    TargetUnavailable,
    misuse,
    unavailable,
)
from assay.targets.devices import CompileOnlyTarget, LiveTarget, Target

if TYPE_CHECKING:
    from assay.targets.jax_internals import Device

GROUP = "assay.targets"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenTarget:
    """Stands in for an entry point that gives no target, and says why."""

    name: TargetName
    why: Availability
    model: DeviceModel | None = None
    platform: str = "none"
    executes: bool = False

    def availability(self) -> Availability:
        """Unavailable: what went wrong with the entry point."""
        return self.why

    def check(self) -> Availability:
        """Unavailable: what went wrong with the entry point."""
        return self.why

    def devices(self) -> tuple[Device, ...]:
        """None, ever."""
        raise TargetUnavailable(str(self.name), self.why)


def third_party_targets(reserved: Collection[str]) -> tuple[Target, ...]:
    """The targets of every installed package, with a BrokenTarget for each that is none.

    `reserved` are the models that no package may name a target after.
    """
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple(_admitted(point, it, reserved) for point in points for it in _loaded(point))


def _loaded(point: EntryPoint) -> tuple[object, ...]:
    try:
        loaded = point.load()
        made = loaded() if callable(loaded) else loaded
        return tuple(made) if isinstance(made, Iterable) else (made,)
    except Exception as error:  # noqa: BLE001 - third-party code: every exception is a reason
        return (_broken(point, f"{type(error).__name__}: {error}"),)


def _admitted(point: EntryPoint, candidate: object, reserved: Collection[str]) -> Target:
    if not (isinstance(candidate, Target) and isinstance(candidate.name, TargetName)):
        return _broken(point, f"got {candidate!r}, wanted an assay.targets.Target")
    if candidate.name.model in reserved:
        return _broken(point, f"got the name {candidate.name}, which is Assay's own")
    return candidate


def _broken(point: EntryPoint, reason: str) -> BrokenTarget:
    owner = point.dist.name if point.dist else point.value
    slug = re.sub(r"[^a-z]+", "-", point.name.lower()).strip("-")
    return BrokenTarget(
        name=TargetName(model=f"broken-{slug}" if slug else "broken"),
        why=unavailable(
            f"entry point {point.name} = {point.value} fails: {reason}",
            f"fix, upgrade or uninstall {owner}",
        ),
    )


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
        raise _wrong(where, f"value = {value!r}", "a positive integer", "write it in full")
    return value


def _text(table: Mapping[str, object], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise _wrong(where, f"{key} = {value!r}", "a non-empty text", f"write {key}")
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


_LIVE: Mapping[str, Kind] = MappingProxyType({"cpu": "cpu", "gpu": "gpu", "tpu": "tpu"})
_LIVE_DEFAULTS = ("cpu:8", "gpu", "tpu")


def resolve(name: str) -> Target:
    """The target called `name`, whether it is available or not.

    Raises TargetError where there is no such name, or the topology cannot be meant.
    """
    try:
        parsed = TargetName.parse(name)
    except TargetError as error:
        raise misuse(got=repr(name), wanted=NAME_SHAPE, do=_advice(name)) from error
    if kind := _LIVE.get(parsed.model):
        return LiveTarget(name=_counted(parsed, one_is_default=kind == "cpu"), kind=kind)
    if model := device_models().get(parsed.model):
        return CompileOnlyTarget(name=_laid_out(parsed, model), model=model)
    for target in _others():
        if target.name == parsed:
            return target
    raise misuse(got=repr(name), wanted="a known device model", do=_advice(name))


def known() -> tuple[str, ...]:
    """The names of the targets tried by default: one topology of each model."""
    return tuple(str(target.name) for target in _defaults())


def survey(*, thorough: bool = False) -> tuple[tuple[Target, Availability], ...]:
    """Every known target and what it can do here; `thorough` compiles for each."""
    return tuple(
        (target, target.check() if thorough else target.availability()) for target in _defaults()
    )


def _defaults() -> tuple[Target, ...]:
    models = sorted(device_models().values(), key=lambda model: (model.kind, model.name))
    named = [TargetName(model=model.name, topology=model.default_topology) for model in models]
    own = (resolve(str(name)) for name in (*_LIVE_DEFAULTS, *named))
    return (*own, *_others())


def _others() -> tuple[Target, ...]:
    return third_party_targets(reserved={*_LIVE, *device_models()})


def _laid_out(name: TargetName, model: DeviceModel) -> TargetName:
    """`name` in its one spelling, if its topology has the rank that the model's has."""
    if model.kind == "gpu":
        return _counted(name, one_is_default=True)
    if len(name.topology) == len(model.default_topology):
        return name
    default = TargetName(model=model.name, topology=model.default_topology)
    raise misuse(
        got=repr(str(name)),
        wanted=f"a topology of {len(model.default_topology)} sizes",
        do=f"write {default}, or other sizes in that form",
    )


def _counted(name: TargetName, *, one_is_default: bool) -> TargetName:
    """`name` in its one spelling, if its topology is a count of devices."""
    if len(name.topology) > 1:
        raise misuse(
            got=repr(str(name)),
            wanted="a number of devices",
            do=f"write {name.model}:{math.prod(name.topology)}",
        )
    return replace(name, topology=()) if one_is_default and name.topology == (1,) else name


def _advice(name: str) -> str:
    spellings = {**{text.partition(":")[0]: text for text in known()}, **{t: t for t in known()}}
    close = difflib.get_close_matches(name.lower(), spellings, n=3, cutoff=0.6)
    best = dict.fromkeys(spellings[match] for match in close)
    return f"write {' or '.join(best)}" if best else f"write one of {', '.join(known())}"
