"""Hand-written HLO, compiled for a real target: what the detectors see of a compiler's own work."""

from __future__ import annotations

import functools

from assay.frameworks.framework import Compiled
from assay.frameworks.hlo import compile_parsed, parse, recognise
from assay.hlo.schema import split
from assay.hlo.summary import read
from assay.model.summary import ModuleSummary
from assay.model.target import TargetName
from assay.targets import known, prepare, resolve


def compile_text(text: str, target: str) -> ModuleSummary:
    """What the target's compiler makes of the text: HLO, or StableHLO that begins with `module`.

    A tuple of one at the root is flattened, and its aliases are then wrong: return an array, and
    alias the output ``{}``.
    """
    proto = executable(text, target).hlo_proto()
    return read(*split(proto), platform=resolve(target).platform)


@functools.cache
def executable(text: str, target: str) -> Compiled:
    """The executable of the text, compiled once per test run."""
    _ready_for_every_compiler()
    file = recognise(text.encode(), "the text")
    devices = resolve(target).devices()
    return compile_parsed(parse(file, devices), devices)


@functools.cache
def _ready_for_every_compiler() -> None:
    prepare(map(TargetName.parse, known()))
