"""Evidence of a program by Assay's own ``observe``, and claims about it. Each compiles once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.frameworks.hlo import program_of, recognise
from assay.model.claim import Case as ClaimCase
from assay.model.claim import Claim, Stopped
from assay.model.evidence import Evidence
from assay.model.verdict import Outcome
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Whether an expectation holds; ``measured`` is None where Assay has nothing to measure."""

    holds: bool
    measured: Any
    wanted: Any
    words: str = ""

    def __str__(self) -> str:
        return f"measured {self.measured}, upstream has {self.wanted}; {self.words}"


def judged(claim: Claim, program: Build, target: str) -> Look:
    """What the claim says of the program."""
    evidence = observed(program, target)
    workload, variant = workload_of(program)
    try:
        finding = claim.judge(ClaimCase(workload=workload, variant=variant, evidence=evidence))
    except Stopped as stopped:
        finding = stopped.finding
    return Look(
        holds=finding.outcome is Outcome.PASSED,
        measured=finding.measured,
        wanted=finding.limit,
        words=finding.reason,
    )


def ended(evidence: Evidence) -> str:
    """Why there is no measurement, if there is none."""
    if evidence.unavailable is not None:
        return f"unavailable: {evidence.unavailable.reason}"
    if evidence.failure is not None:
        return f"{evidence.failure.kind.phrase}: {evidence.failure.message}"
    return evidence.module_unreadable
