"""Evidence of a program on a target, by Assay's own ``observe``; every program is compiled once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.frameworks.hlo import program_of, recognise
from assay.model.evidence import Evidence
from assay.model.workload import Program, Role, Variant, Workload
from assay.observe import observe

Build = Callable[[Sequence[Any]], Program]


@dataclass(frozen=True, slots=True)
class Hlo:
    """A program that is HLO text."""

    text: str

    def __call__(self, devices: Sequence[Any]) -> Program:
        return program_of(recognise(self.text.encode(), "the text"), devices)


@functools.cache
def observed(program: Build, target: str) -> Evidence:
    """What Assay sees of the program."""
    workload, variant = workload_of(program)
    return observe(workload, variant, target)


@functools.cache
def workload_of(program: Build) -> tuple[Workload, Variant]:
    """The program as the one variant of a workload."""
    variant = Variant(name="program", role=Role.CONTROL, program=program)
    framework = "hlo" if isinstance(program, Hlo) else "jax"
    return Workload(
        suite="upstream", name="case", variants=(variant,), framework=framework
    ), variant
