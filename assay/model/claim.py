"""Claims, checks of claims on workloads, and trials: one check, one variant, one target."""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import ClassVar

from assay.model.blame import WrongType, check_name, line_of
from assay.model.defect import KnownDefect
from assay.model.evidence import Evidence, GrowthTimes
from assay.model.rerun import Rerun
from assay.model.timing import Sensitivity, Times, Turns
from assay.model.units import Quantity, Unit
from assay.model.verdict import (
    MUST_FAIL,
    RECORD_SCHEMA,
    BaselineNumber,
    Finding,
    Outcome,
    Record,
    Relation,
)
from assay.model.workload import Level, Variant, Workload, matches_any


class MeasurementMissing(LookupError):
    """A claim needs a measurement that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The input of a claim: the measurements of a variant and of others, and the baseline.

    ``earlier`` are the baselines stored on toolchains no newer than this one, oldest first.
    """

    workload: Workload
    variant: Variant
    evidence: Evidence
    others: Mapping[str, Evidence] = field(default_factory=dict)
    baseline: BaselineNumber | None = None
    earlier: tuple[BaselineNumber, ...] = ()
    times: Times | None = None
    rerun: Rerun | None = None

    def other(self, variant: str) -> Evidence:
        """The evidence of another variant, one that ``Claim.needs`` names, on the same target.

        Raises MeasurementMissing for a variant that it does not name.
        """
        if variant not in self.others:
            raise MeasurementMissing(
                f"got no evidence of variant {variant!r}, wanted it to compare "
                f"{self.variant.name!r} with; list it in the claim's needs()"
            )
        return self.others[variant]


@dataclass(frozen=True, slots=True)
class Formula:
    """A limit from shapes, or from measurements of the variants that ``needs(variant)`` names."""

    text: str
    function: Callable[[Case], Quantity]
    needs: Callable[[Variant], tuple[str, ...]] = lambda _: ()

    def of(self, case: Case) -> Quantity:
        """The limit of a case. Raises WrongType if the function returns no quantity."""
        limit = self.function(case)
        if not isinstance(limit, Quantity):
            raise WrongType(
                f"{line_of(self.function)}: got {limit!r} from the formula {self.text!r}, wanted a "
                "Quantity; return Quantity(…, Unit.BYTES)"
            )
        return limit


class Stopped(Exception):
    """There is no measurement to judge, and this finding follows."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


_HOLDS: Mapping[Relation, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "≤": operator.le,
    "≥": operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The measurements that a property needs, and a pure function from them to a verdict.

    By default it measures bytes, and its limit is no baseline. ``judges_compiled`` says that the
    compiled program alone decides: no jaxpr, run, time or baseline is needed.
    """

    uses_baseline: ClassVar[bool] = False
    judges_compiled: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The claim's name in ids and records."""
        raise NotImplementedError

    @property
    def unit(self) -> Unit:
        """The unit of the measurement and its limit."""
        return Unit.BYTES

    def judge(self, case: Case) -> Finding:
        """The verdict on one case; ``passed`` only if a measurement was compared with a limit.

        It may raise ``Stopped``. Any other exception becomes an ``error`` verdict if Assay's own
        code raised it, and otherwise ``failed``.
        """
        raise NotImplementedError

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that this one is compared with, and those that the formulas read."""
        values = (getattr(self, field.name) for field in fields(self))
        formulas = (value for value in values if isinstance(value, Formula))
        read = (name for formula in formulas for name in formula.needs(variant))
        return (*self._references(variant), *read)

    def _references(self, variant: Variant) -> tuple[str, ...]:
        return ()

    def _compare(
        self, case: Case, what: str, number: float, relation: Relation, formula: Formula
    ) -> Finding:
        """Passes if a number of the claim's unit is in this relation to the formula."""
        limit = self._limit(case, formula)
        measured, expected, gap = (
            Quantity(each, self.unit) for each in (number, limit, abs(number - limit))
        )
        passed = _HOLDS[relation](number, limit)
        reason = f"{what}: {measured}, expected {relation} {expected} ({formula.text})"
        if not passed:
            reason += f"; {gap} too {'much' if number > limit else 'little'}"
        outcome = Outcome.PASSED if passed else Outcome.FAILED
        return Finding(
            outcome=outcome, measured=number, limit=limit, relation=relation, reason=reason
        )

    def _limit(self, case: Case, formula: Formula) -> float:
        """The number of a formula. Raises WrongType if its unit is not that of the claim."""
        limit = formula.of(case)
        if limit.unit is not self.unit:
            raise WrongType(
                f"got a limit of {limit.value} {limit.unit.value}, wanted {self.unit.value}; name "
                "the same unit in the claim and in its limit"
            )
        return limit.value


class TimingClaim(Claim):
    """A claim on the times of two programs that alternate, or of one alone."""

    __slots__ = ()

    def turns(self, case: Case) -> Turns:
        """What to time for a case; ``judge`` raises the same exceptions."""
        raise NotImplementedError


class GrowthClaim(Claim):
    """A claim on how time grows with a length; its evidence holds only these times."""

    __slots__ = ()

    def growth(self, case: Case) -> GrowthTimes:
        """The times that it judges, or ``Stopped``."""
        raise NotImplementedError


class RerunClaim(Claim):
    """A claim on times compared with those of another toolchain."""

    __slots__ = ()

    def rerun_sensitivity(self, case: Case) -> Sensitivity:
        """The change to detect in a case; ``judge`` raises the same exceptions."""
        raise NotImplementedError


def is_on_times(claim: Claim) -> bool:
    """Whether the measurement of a claim needs exclusive use of the machine."""
    return isinstance(claim, TimingClaim | GrowthClaim | RerunClaim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A claim on variants of workloads; pytest collects a module-level ``test_…`` value.

    ``variants`` are shell patterns. ``negative_control`` names variants that must fail the claim by
    a measurement, one for each path of the detector. They are judged on every workload and target
    on which a variant is judged. If one passes the claim, or fails it for another reason, the
    run fails. A variant passes only where all of them fail the claim by a measurement. A
    ``RerunClaim`` has a negative control of its own.
    """

    claim: Claim
    workloads: Sequence[Workload]
    variants: tuple[str, ...] = ("*",)
    negative_control: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        controls: object = self.negative_control
        workloads: object = self.workloads
        if isinstance(workloads, Workload):
            raise WrongType(f"got workloads={workloads.name!r} alone, wanted a tuple; write (…,)")
        if not isinstance(controls, str | tuple | list):
            raise WrongType(
                f"got negative_control={controls!r}, wanted the name of a variant, or a tuple of "
                "names; leave it out if there is none"
            )

    @property
    def negative_controls(self) -> tuple[str, ...]:
        """The names of the negative controls."""
        names = self.negative_control
        return tuple(dict.fromkeys(filter(None, (names,) if isinstance(names, str) else names)))

    def covers(self, variant: str) -> bool:
        """Whether the check includes the variant of that name."""
        return matches_any(variant, self.variants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One pytest item: a check of one variant or negative control on one target.

    ``controls`` are the trials of a variant's negative controls; ``variants`` are those that a
    negative control is judged for.
    """

    check: Check
    workload: Workload
    variant: Variant
    target: str
    must_fail: bool = False
    controls: tuple["Trial", ...] = ()
    variants: tuple[Variant, ...] = ()

    def __post_init__(self) -> None:
        check_name("a claim", self.check.claim.name)

    @property
    def claim_name(self) -> str:
        """The claim's name on the record."""
        return self.check.claim.name + (MUST_FAIL if self.must_fail else "")

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """The identity of its verdict in a run, as ``Record.key``."""
        workload = self.workload
        return (workload.suite, workload.name, self.variant.name, self.claim_name, self.target)

    @property
    def program(self) -> str:
        """Workload, variant and target."""
        return f"{self.workload.name}/{self.variant.name}@{self.target}"

    @property
    def is_timing(self) -> bool:
        """Whether it needs exclusive use of the machine."""
        return is_on_times(self.check.claim)

    def __str__(self) -> str:
        return self.program + ("/negative-control" if self.must_fail else "")


def trials_of(check: Check, targets: Iterable[str], level: Level) -> Iterator[Trial]:
    """The trials of a check on the targets at a level, and those of its negative controls."""
    for workload in check.workloads:
        for target in targets:
            variants = tuple(
                variant
                for variant in workload.variants
                if check.covers(variant.name) and workload.tries(variant, target, level)
            )
            if not variants:
                continue
            names = check.negative_controls
            if isinstance(check.claim, RerunClaim):  # The first variant is its own control.
                names = (variants[0].name,)
            trial = partial(Trial, check=check, workload=workload, target=target)
            controls = tuple(
                trial(variant=workload.variant(name), must_fail=True, variants=variants)
                for name in names
            )
            yield from (trial(variant=variant, controls=controls) for variant in variants)
            yield from controls


def record_of(
    run: str,
    trial: Trial,
    finding: Finding,
    *,
    seconds: float,
    seen: Sequence[Evidence] = (),
    baseline: BaselineNumber | None = None,
    defect: KnownDefect | None = None,
) -> Record:
    """The record of a finding; ``seen`` are its measurements, the judged variant's first."""
    is_known = finding.outcome is Outcome.KNOWN_DEFECT
    return Record(
        schema=RECORD_SCHEMA,
        run=run,
        suite=trial.workload.suite,
        workload=trial.workload.name,
        variant=trial.variant.name,
        claim=trial.claim_name,
        target=trial.target,
        toolchain=dict(seen[0].toolchain.identity) if seen else {},
        verdict=finding.outcome,
        measured=finding.measured,
        limit=finding.limit,
        unit=trial.check.claim.unit,
        baseline=baseline,
        reason=finding.reason,
        advice=finding.advice,
        upstream=defect.upstream.link if defect else "",
        seconds=round(seconds, 6),
        cached=any(each.cached for each in seen),
        retries=tuple(how for each in seen for how in each.retries),
        relation=finding.relation,
        remedy=defect.remedy(trial.variant.name) if defect and is_known else "",
    )
