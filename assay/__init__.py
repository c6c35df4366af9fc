"""Assay: regression and benchmark harness for the XLA features that training frameworks lean on."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from assay import claims
    from assay.api import Compiled, CompileError, compile  # noqa: A004 - the public name
    from assay.model.claim import Case, Check, Claim, Formula
    from assay.model.evidence import Evidence, FailureKind
    from assay.model.module import Direction
    from assay.model.steps import Loop, Steps
    from assay.model.target import TargetError, TargetUnavailable
    from assay.model.units import Quantity, Unit
    from assay.model.verdict import Finding, Outcome
    from assay.model.workload import (
        Expected,
        Fails,
        Growth,
        KnownDefect,
        Level,
        Measures,
        Program,
        RemedyEffect,
        Role,
        Scope,
        SizedVariant,
        UpstreamIssue,
        Variant,
        Workload,
        exactly,
    )

_MODULES: Final = {
    "api": ("CompileError", "Compiled", "compile"),
    "model.claim": ("Case", "Check", "Claim", "Formula"),
    "model.evidence": ("Evidence", "FailureKind"),
    "model.module": ("Direction",),
    "model.steps": ("Loop", "Steps"),
    "model.target": ("TargetError", "TargetUnavailable"),
    "model.units": ("Quantity", "Unit"),
    "model.verdict": ("Finding", "Outcome"),
    "model.workload": (
        *("Variant", "Growth", "KnownDefect", "Level", "Program", "RemedyEffect", "Role", "Scope"),
        *("SizedVariant", "UpstreamIssue", "Workload"),
        *("Expected", "Fails", "Measures", "exactly"),
    ),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: pytest loads this package in every project."""
    if name == "claims":
        return import_module("assay.claims")
    if name in _MODULE_OF:
        return getattr(import_module(f"assay.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Case",
    "Check",
    "Claim",
    "CompileError",
    "Compiled",
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
    "RemedyEffect",
    "Role",
    "Scope",
    "SizedVariant",
    "Steps",
    "TargetError",
    "TargetUnavailable",
    "Unit",
    "UpstreamIssue",
    "Variant",
    "Workload",
    "claims",
    "compile",
    "exactly",
]
