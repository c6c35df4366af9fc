"""Every program of the suites is reached by a run that names no target."""

import importlib
from pathlib import Path

import pytest

from assay import Check
from assay.model.workload import Workload, matches_any
from assay.targets import known

SUITES = Path(__file__).parents[2] / "suites"
MODULES = sorted(f"suites.{path.parent.name}.{path.stem}" for path in SUITES.glob("*/test_*.py"))


def workloads() -> dict[str, Workload]:
    checks = (
        value
        for module in MODULES
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, Check)
    )
    return {f"{each.suite}/{each.name}": each for check in checks for each in check.workloads}


@pytest.mark.parametrize("workload", workloads().values(), ids=workloads())
def test_every_scope_names_targets_that_are_tried_by_default(workload: Workload) -> None:
    """One that names `cpu` alone is never run there: the target tried by default is `cpu:8`."""
    unreached = [
        pattern
        for scope in workload.scopes
        for pattern in scope.targets
        if not any(matches_any(name, [pattern]) for name in known())
    ]
    assert unreached == []
