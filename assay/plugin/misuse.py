"""Checks that no run can make sense of, told in words while they are collected."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from assay.frameworks.installed import KNOWN
from assay.model.claim import Check, Formula
from assay.model.trial import Trial
from assay.model.workload import Workload, matches_any


def reject_check(name: str, check: Check) -> None:
    """Refuse limits that are no formulas, unknown frameworks, and names of arms that are not there.

    Raises:
        CollectError: the check of that name has one.
    """
    if isinstance(check.claim, type):
        raise pytest.Collector.CollectError(
            f"got the class {check.claim.__name__} for a claim in {name}, wanted one of its "
            f"objects; do this: claim={check.claim.__name__}(…)"
        )
    for field in ("workloads", "arms"):
        if not getattr(check, field):
            raise pytest.Collector.CollectError(f"got no {field} in {name}, wanted one or more")
    _reject_limits(name, check.claim)
    if _is_text(check.arms):  # Its letters would be taken for patterns.
        raise pytest.Collector.CollectError(
            f"got arms={check.arms!r}, one text, in {name}, wanted several; do this: "
            f"arms=({check.arms!r},)"
        )
    arms = [arm.name for workload in check.workloads for arm in workload.arms]
    for pattern in check.arms:
        if not any(matches_any(arm, (pattern,)) for arm in arms):
            raise _refused(name, f"arms={pattern!r}, which match none", *check.workloads)
    for workload in check.workloads:
        _reject_workload(name, check, workload)


def reject_namesakes(name: str, check: Check, earlier: Sequence[Check]) -> None:
    """Refuse a second workload of one name in a suite: one's evidence would judge the other.

    Raises:
        CollectError: the check of that name has one.
    """
    known = {(w.suite, w.name): w for each in earlier for w in each.workloads}
    for workload in check.workloads:
        place = (workload.suite, workload.name)
        if known.setdefault(place, workload) is not workload:
            raise pytest.Collector.CollectError(
                f"got two workloads named {workload.name!r} in suite {workload.suite!r}, the "
                f"second in {name}, wanted one; import the first, or rename one of them"
            )


def reject_trial(name: str, trial: Trial) -> None:
    """Refuse an arm without those that its claim compares it with.

    Raises:
        CollectError: one of them is not in the workload.
    """
    workload, arm, claim = trial.workload, trial.arm, trial.check.claim
    # A twin is held against the accepted number of the arm that it is compared with.
    accepted = (arm.reference,) if trial.must_fail and claim.uses_baseline else ()
    for needed in (*claim.needs(arm), *accepted):
        if not needed:
            raise pytest.Collector.CollectError(
                f"got {trial.claim_name} put to {workload.name}/{arm.name} in {name}, which is "
                f"compared with no arm; wanted one; do this: Arm(name={arm.name!r}, reference=…)"
            )
        if needed not in {each.name for each in workload.arms}:
            raise _refused(name, f"{trial.claim_name} compared with {needed!r}", workload)


def _reject_workload(name: str, check: Check, workload: Workload) -> None:
    if workload.framework not in KNOWN:
        raise pytest.Collector.CollectError(
            f"got framework={workload.framework!r} of workload {workload.name!r} in {name}, "
            f"wanted one of {', '.join(KNOWN)}"
        )
    arms = [arm.name for arm in workload.arms]
    for twin in check.twins if any(map(check.covers, arms)) else ():
        if twin not in arms:
            raise _refused(name, f"twin={twin!r}", workload)


def _reject_limits(name: str, claim: Any) -> None:
    if not is_dataclass(claim):
        return
    for field in fields(claim):
        # A module of annotations that are not evaluated has types by name.
        wants_formula = getattr(field.type, "__name__", field.type) == Formula.__name__
        limit = getattr(claim, field.name)
        if wants_formula and not isinstance(limit, Formula):
            got = f"{field.name}={limit!r} for {type(claim).__name__}"
            raise pytest.Collector.CollectError(
                f"got {got} in {name}, wanted a Formula; do this: "
                f"{field.name}=Formula('what it says', lambda case: Quantity(…, Unit.…))"
            )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _refused(name: str, got: str, *workloads: Workload) -> Exception:
    known = "; ".join(
        f"{workload.name} has {', '.join(arm.name for arm in workload.arms)}"
        for workload in workloads
    )
    return pytest.Collector.CollectError(f"got {got} in {name}, wanted an arm: {known}")
