"""Assay: regression and benchmark harness for the XLA features that training frameworks lean on."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from assay import claims
    from assay.api import Compiled, CompileError, compile  # noqa: A004 - the public name
    from assay.model.claim import Case, Check, Claim, Formula
    from assay.model.defect import (
        Expected,
        Fails,
        KnownDefect,
        Measures,
        RemedyEffect,
        Upstream,
        UpstreamIssue,
        UpstreamState,
        exactly,
    )
    from assay.model.evidence import Evidence, FailureKind, Loop, Steps
    from assay.model.module import Direction
    from assay.model.target import TargetError, TargetUnavailable
    from assay.model.units import Quantity, Unit
    from assay.model.verdict import Finding, Outcome
    from assay.model.workload import (
        Growth,
        Level,
        Program,
        Role,
        Scope,
        SizedVariant,
        Variant,
        Workload,
    )

_MODULES: Final = (
    *("model.claim", "model.defect", "model.evidence", "model.module", "model.target"),
    *("model.units", "model.verdict", "model.workload", "api"),
)
"""Modules that hold the public names; ``api`` loads the compilers' rooms and is last."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: pytest loads this package in every project."""
    if name == "claims":
        return import_module("assay.claims")
    for module in _MODULES if name in __all__ else ():
        if (found := getattr(import_module(f"assay.{module}"), name, None)) is not None:
            return found
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
    "Upstream",
    "UpstreamIssue",
    "UpstreamState",
    "Variant",
    "Workload",
    "claims",
    "compile",
    "exactly",
]
