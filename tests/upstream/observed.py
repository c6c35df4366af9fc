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


def entry(*lines: str, computations: str = "", header: str = "", alias: str = "") -> Hlo:
    """A module whose entry computation has these lines; ``alias`` is its input_output_alias."""
    aliased = f", input_output_alias={{ {alias} }}" if alias else ""
    body = "\n  ".join(lines)
    return Hlo(f"HloModule case{header}{aliased}\n{computations}\nENTRY main {{\n  {body}\n}}\n")


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


def moved(array: str, operand: str, where: str, name: str) -> str:
    return f'{name} = {array} custom-call({operand}), custom_call_target="MoveTo{where}"'


def annotated(*lines: str, computations: str = "", header: str = "") -> tuple[Hlo, Hlo]:
    """The module, and the same without its annotations, as a negative control."""
    plain = tuple(
        line.replace("custom-call(", "negate(").partition(", custom_call_target=")[0]
        for line in lines
    )
    bare = "\n".join(
        line.replace("custom-call(", "negate(").partition(", custom_call_target=")[0]
        if "MoveTo" in line
        else line
        for line in computations.split("\n")
    )
    return (
        entry(*lines, computations=computations, header=header),
        entry(*plain, computations=bare, header=header),
    )
