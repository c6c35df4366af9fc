"""Assay: regression and benchmark harness for the XLA features that training frameworks lean on."""

from typing import TYPE_CHECKING

from assay.model.claim import Case, Check, Claim, Formula
from assay.model.evidence import Evidence, FailureKind
from assay.model.expected import Expected, Fails, Measures, exactly
from assay.model.module import Direction
from assay.model.steps import Loop, Steps
from assay.model.target import TargetError
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import (
    Arm,
    Growth,
    KnownDefect,
    Level,
    Program,
    Role,
    Scope,
    SizedArm,
    Workload,
)

if TYPE_CHECKING:
    from assay import claims
else:

    def __getattr__(name: str) -> object:
        """Import ``claims``, and with it numpy, only for who asks: the words alone need neither."""
        if name == "claims":
            from importlib import import_module

            return import_module("assay.claims")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "Arm",
    "Case",
    "Check",
    "Claim",
    "Direction",
    "Evidence",
    "Expected",
    "Fails",
    "FailureKind",
    "Finding",
    "Formula",
    "Growth",
    "KnownDefect",
    "Level",
    "Loop",
    "Measures",
    "Outcome",
    "Program",
    "Quantity",
    "Role",
    "Scope",
    "SizedArm",
    "Steps",
    "TargetError",
    "Unit",
    "Workload",
    "claims",
    "exactly",
]
