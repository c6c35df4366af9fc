"""All targets by name: the machine's own, the device models, and other packages'."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from assay.model.target import (
    NAME_SHAPE,
    Availability,
    DeviceModel,
    Kind,
    TargetError,
    TargetName,
    misuse,
)
from assay.targets.compile_only import CompileOnlyTarget
from assay.targets.device_models import device_models
from assay.targets.live import LiveTarget
from assay.targets.target import Target
from assay.targets.third_party import third_party_targets

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
