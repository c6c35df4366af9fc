"""All targets by name: live ones, device models (TOML files), and those of other packages."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NoReturn

import msgspec

from assay.model.suggestion import nearest
from assay.model.target import (
    NAME_SHAPE,
    DeviceModel,
    Kind,
    TargetError,
    TargetName,
    TargetUnavailable,
    Unavailable,
    misuse,
)
from assay.targets.devices import Target, check, compile_only_target, live_target

_GROUP: Final = "assay.targets"
_LIVE: Final[Mapping[str, Kind]] = MappingProxyType({"cpu": "cpu", "gpu": "gpu", "tpu": "tpu"})
_LIVE_DEFAULTS: Final = ("cpu:8", "gpu", "tpu")

_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]


class _Number(msgspec.Struct, forbid_unknown_fields=True):
    value: Annotated[int, msgspec.Meta(gt=0)]
    source: _Text


class _Compiler(msgspec.Struct, forbid_unknown_fields=True):
    source: _Text
    fields: dict[str, Any]


class _ModelFile(msgspec.Struct, forbid_unknown_fields=True):
    name: _Text
    kind: Literal["gpu", "tpu"]
    title: _Text
    default_topology: _Text
    memory_bytes: _Number
    nominal_memory_bytes: _Number
    memory_bandwidth_bytes_per_second: _Number
    compiler: _Compiler
    host_link_bandwidth_bytes_per_second: _Number | None = None
    peak_bf16_flops_per_second: _Number | None = None
    on_chip_memory_bytes: _Number | None = None


@functools.cache
def device_models() -> Mapping[str, DeviceModel]:
    """The models that come with Assay, by name, in the order of the names."""
    folder = files("assay.targets").joinpath("models")
    found = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml"))
    models = [device_model(folder.joinpath(file).read_text("utf-8"), file) for file in found]
    return MappingProxyType({model.name: model for model in models})


def device_model(text: str, origin: str) -> DeviceModel:
    """The model that TOML `text` describes; `origin` names the file in errors.

    Raises TargetError if a required field or the source of a number is missing, a field is
    unknown, or a value has the wrong type.
    """
    try:
        table = msgspec.toml.decode(text, type=_ModelFile)
    except msgspec.DecodeError as error:
        raise misuse(
            got=f"{origin}: {error}",
            wanted="a device model in TOML, of kind gpu or tpu",
            do="correct the field; the files in assay/targets/models show the form",
        ) from error
    entries = {field: getattr(table, field) for field in table.__struct_fields__}
    numbers = {field: entry for field, entry in entries.items() if isinstance(entry, _Number)}
    sources = {field: number.source for field, number in numbers.items()}
    return DeviceModel(
        name=table.name,
        kind=table.kind,
        title=table.title,
        default_topology=TargetName.parse(f"{table.name}:{table.default_topology}").topology,
        compiler=MappingProxyType(table.compiler.fields),
        sources=MappingProxyType({**sources, "compiler": table.compiler.source}),
        **{field: number.value for field, number in numbers.items()},
    )


def resolve(name: str) -> Target:
    """The target called `name`, whether it is available or not.

    Raises TargetError where there is no such name, or the topology does not fit the model.
    """
    try:
        parsed = TargetName.parse(name)
    except TargetError as error:
        raise misuse(got=repr(name), wanted=NAME_SHAPE, do=_advice(name)) from error
    if kind := _LIVE.get(parsed.model):
        return live_target(_normal(parsed), kind)
    if model := device_models().get(parsed.model):
        return compile_only_target(_normal(parsed, model), model)
    for target in _of_other_packages():
        if target.name == parsed:
            return target
    raise misuse(got=repr(name), wanted="a known device model", do=_advice(name))


def models_of(names: Iterable[str]) -> dict[str, DeviceModel]:
    """The device model of each target that has one; a name that is unknown here has none."""
    found = {}
    for name in names:
        with suppress(TargetError):
            if model := resolve(name).model:
                found[name] = model
    return found


def known() -> tuple[str, ...]:
    """The targets tried by default: live ones, one topology of each model, other packages' ones."""
    return tuple(str(target.name) for target in _defaults())


def survey(
    names: Sequence[str] = (), *, thorough: bool = False
) -> tuple[tuple[Target, Unavailable | None], ...]:
    """The targets, each with why it is unavailable, or None; `thorough` compiles for each.

    Without names these are all known targets. Raises TargetError for an unknown name.
    """
    chosen = map(resolve, names) if names else _defaults()
    return tuple((target, check(target) if thorough else target.unavailable()) for target in chosen)


def _defaults() -> tuple[Target, ...]:
    models = sorted(device_models().values(), key=lambda model: (model.kind, model.name))
    named = [str(TargetName(model=each.name, topology=each.default_topology)) for each in models]
    return (*map(resolve, (*_LIVE_DEFAULTS, *named)), *_of_other_packages())


def _normal(name: TargetName, model: DeviceModel | None = None) -> TargetName:
    """`name` in its one spelling. Raises TargetError where the topology does not fit the model."""
    if model and model.kind == "tpu":
        if len(name.topology) == len(model.default_topology):
            return name
        default = TargetName(model=model.name, topology=model.default_topology)
        raise misuse(
            got=repr(str(name)),
            wanted=f"a topology of {len(model.default_topology)} sizes",
            do=f"write {default}, or other sizes in that form",
        )
    if len(name.topology) > 1:
        raise misuse(
            got=repr(str(name)),
            wanted="a number of devices",
            do=f"write {name.model}:{math.prod(name.topology)}",
        )
    # Without a count, a live accelerator means all of its devices, anything else one device.
    is_default = name.topology == (1,) and (model or name.model == "cpu")
    return replace(name, topology=()) if is_default else name


def _advice(name: str) -> str:
    names = known()
    spellings = {text.partition(":")[0]: text for text in names} | {text: text for text in names}
    best = dict.fromkeys(spellings[match] for match in nearest(name, spellings))
    return f"write {' or '.join(best)}" if best else f"write one of {', '.join(names)}"


def _of_other_packages() -> Iterator[Target]:
    """The targets of every installed package, with an unavailable one in place of anything else."""
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        try:
            loaded = point.load()
            made = loaded() if callable(loaded) else loaded
            candidates = tuple(made) if isinstance(made, Iterable) else (made,)
        except Exception as error:  # noqa: BLE001 - third-party code may raise any exception
            yield _broken(point, f"{type(error).__name__}: {error}")
            continue
        for candidate in candidates:
            if not isinstance(candidate, Target):
                yield _broken(point, f"got {candidate!r}, wanted an assay.targets.Target")
            elif candidate.name.model in {*_LIVE, *device_models()}:
                yield _broken(point, f"got the name {candidate.name}, which is Assay's own")
            else:
                yield candidate


def _broken(point: EntryPoint, reason: str) -> Target:
    owner = point.dist.name if point.dist else point.value
    slug = re.sub(r"[^a-z]+", "-", f"broken-{point.name.lower()}").strip("-")
    why = Unavailable(
        f"entry point {point.name} = {point.value} fails: {reason}",
        f"fix, upgrade or uninstall {owner}",
    )

    def devices() -> NoReturn:
        raise TargetUnavailable(slug, why)

    return Target(
        name=TargetName(model=slug),
        platform="none",
        executes=False,
        unavailable=lambda: why,
        devices=devices,
    )
