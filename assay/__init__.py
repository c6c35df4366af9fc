"""Assay: regression and benchmark harness for the XLA features that training frameworks lean on."""

from assay import claims
from assay.model.claim import Case, Check, Claim, Formula
from assay.model.evidence import Evidence
from assay.model.module import Direction
from assay.model.target import TargetError
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Arm, KnownDefect, Level, Program, Role, Scope, Workload

__all__ = [
    "Arm",
    "Case",
    "Check",
    "Claim",
    "Direction",
    "Evidence",
    "Finding",
    "Formula",
    "KnownDefect",
    "Level",
    "Outcome",
    "Program",
    "Quantity",
    "Role",
    "Scope",
    "TargetError",
    "Unit",
    "Workload",
    "claims",
]
