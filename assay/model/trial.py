"""A trial: one check put to one variant on one target, and the record that is kept of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.model.claim import Check, GrowthClaim, RerunClaim, TimingClaim
from assay.model.evidence import Evidence
from assay.model.names import check_name
from assay.model.verdict import MUST_FAIL, RECORD_SCHEMA, BaselineNumber, Finding, Record
from assay.model.workload import Variant, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One item: a check put to one variant on one target, or to a negative control there.

    ``controls`` are the trials of a variant's negative controls, on the same workload and target.
    ``variants`` are those that a control is there for.
    """

    check: Check
    workload: Workload
    variant: Variant
    target: str
    must_fail: bool = False
    controls: tuple["Trial", ...] = ()
    variants: tuple[Variant, ...] = ()

    def __post_init__(self) -> None:
        """Reject a claim whose name cannot stand in an id, a record and a path."""
        check_name("a claim", self.check.claim.name)

    @property
    def claim_name(self) -> str:
        """The claim's name on the record."""
        return self.check.claim.name + (MUST_FAIL if self.must_fail else "")

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells its verdict from all others of a run."""
        return (self.workload.suite, str(self), self.claim_name)

    @property
    def program(self) -> str:
        """What is compiled, and for what."""
        return f"{self.workload.name}/{self.variant.name}@{self.target}"

    @property
    def is_timing(self) -> bool:
        """Whether programs are timed for it, and nothing else may then be at work."""
        return isinstance(self.check.claim, TimingClaim | GrowthClaim | RerunClaim)

    def __str__(self) -> str:
        return self.program + ("/must-fail" if self.must_fail else "")


def record_of(
    run: str,
    trial: Trial,
    finding: Finding,
    *,
    seconds: float,
    seen: Sequence[Evidence] = (),
    baseline: BaselineNumber | None = None,
    upstream: str = "",
) -> Record:
    """The record of a finding on a trial; ``seen`` is what it was judged by, its own first."""
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
        upstream=upstream,
        seconds=round(seconds, 6),
        cached=any(each.cached for each in seen),
    )
