"""Validation of checks while pytest collects them."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from assay.frameworks.installed import KNOWN
from assay.model.claim import Check, Formula, Trial
from assay.model.workload import Workload, matches_any


def reject_check(name: str, check: Check) -> None:
    """Refuse limits that are no formulas, unknown frameworks and unknown variants.

    Raises:
        CollectError: the check of that name has one.
    """
    if isinstance(check.claim, type):
        raise pytest.Collector.CollectError(
            f"got the class {check.claim.__name__} for a claim in {name}, wanted one of its "
            f"objects; do this: claim={check.claim.__name__}(…)"
        )
    for field in ("workloads", "variants"):
        if not getattr(check, field):
            raise pytest.Collector.CollectError(f"got no {field} in {name}, wanted one or more")
    _reject_limits(name, check.claim)
    if _is_text(check.variants):  # Its letters would be taken for patterns.
        raise pytest.Collector.CollectError(
            f"got variants={check.variants!r}, one text, in {name}, wanted several; do this: "
            f"variants=({check.variants!r},)"
        )
    variants = [variant.name for workload in check.workloads for variant in workload.variants]
    for pattern in check.variants:
        if not any(matches_any(variant, (pattern,)) for variant in variants):
            raise _refused(name, f"variants={pattern!r}, which match none", *check.workloads)
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
    """Refuse a variant without those that its claim compares it with.

    Raises:
        CollectError: one of them is not in the workload.
    """
    workload, variant, claim = trial.workload, trial.variant, trial.check.claim
    # A negative control is held against the baseline of the variant that it is compared with.
    baseline = (variant.reference,) if trial.must_fail and claim.uses_baseline else ()
    for needed in (*claim.needs(variant), *baseline):
        if not needed:
            raise pytest.Collector.CollectError(
                f"got {trial.claim_name} put to {workload.name}/{variant.name} in {name}, which is "
                f"compared with no variant; wanted one; do this: Variant(name={variant.name!r}, "
                "reference=…)"
            )
        if needed not in {each.name for each in workload.variants}:
            raise _refused(name, f"{trial.claim_name} compared with {needed!r}", workload)


def _reject_workload(name: str, check: Check, workload: Workload) -> None:
    if workload.framework not in KNOWN:
        raise pytest.Collector.CollectError(
            f"got framework={workload.framework!r} of workload {workload.name!r} in {name}, "
            f"wanted one of {', '.join(KNOWN)}"
        )
    variants = [variant.name for variant in workload.variants]
    for negative_control in check.negative_controls if any(map(check.covers, variants)) else ():
        if negative_control not in variants:
            raise _refused(name, f"negative_control={negative_control!r}", workload)


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
        f"{workload.name} has {', '.join(variant.name for variant in workload.variants)}"
        for workload in workloads
    )
    return pytest.Collector.CollectError(f"got {got} in {name}, wanted a variant: {known}")
