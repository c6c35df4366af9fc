"""Claims, checks that put them to workloads, and trials: one check, one variant, one target."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from assay.model.blame import WrongType, check_name, line_of
from assay.model.evidence import Evidence, GrowthTimes
from assay.model.rerun import Rerun, Sought
from assay.model.timing import Times, Turns
from assay.model.units import Quantity, Unit
from assay.model.verdict import MUST_FAIL, RECORD_SCHEMA, BaselineNumber, Finding, Record
from assay.model.workload import Variant, Workload, matches_any


class MeasurementMissing(LookupError):
    """A claim asked for a measurement that the evidence does not hold: an error, never a pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All that a claim may look at: one variant's evidence, other variants', and the baseline.

    ``earlier`` are the baselines stored on toolchains no newer than this one, oldest first.
    ``times`` are there for a ``TimingClaim`` alone, ``rerun`` for a ``RerunClaim``.
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
        """Another variant's evidence on the same target.

        Raises:
            MeasurementMissing: the claim did not announce that it needs the variant.
        """
        try:
            return self.others[variant]
        except KeyError:
            raise MeasurementMissing(
                f"got no evidence of variant {variant!r} beside {self.variant.name!r}, "
                "wanted it for the comparison; list it in the claim's needs()"
            ) from None


def _no_other(_variant: Variant) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Formula:
    """A limit computed from shapes; ``text`` is what the verdict prints of it.

    ``needs`` names the other variants whose evidence it reads for a variant.
    """

    text: str
    of: Callable[[Case], Quantity]
    needs: Callable[[Variant], tuple[str, ...]] = _no_other

    def __post_init__(self) -> None:
        """Have ``of`` say so where it gives no quantity."""
        formula = self.of

        def of(case: Case) -> Quantity:
            limit = formula(case)
            if not isinstance(limit, Quantity):
                raise WrongType(
                    f"{line_of(formula)}: got {limit!r} from the formula {self.text!r}, wanted a "
                    "Quantity; return Quantity(…, Unit.BYTES)"
                )
            return limit

        object.__setattr__(self, "of", of)


class Stopped(Exception):
    """Evidence ends before the measurement; carries the finding that follows from that."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


class Claim(Protocol):
    """A promise with a name and a unit.

    Law: ``judge`` is pure, and returns ``passed`` only if it compared a measurement with a limit.
    It may raise ``Stopped``; anything else it raises is an ``error`` verdict.
    """

    @property
    def name(self) -> str:
        """The claim's name in ids and records."""

    @property
    def unit(self) -> Unit:
        """The unit of its measurement and its limit."""

    @property
    def uses_baseline(self) -> bool:
        """Whether its limit is a baseline."""

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """Names of the other variants whose evidence ``judge`` looks at."""

    def judge(self, case: Case) -> Finding:
        """The verdict on one case."""


@runtime_checkable
class TimingClaim(Claim, Protocol):
    """A claim on times taken in turns, which are then in the case that it judges."""

    def turns(self, case: Case) -> Turns:
        """What is to be timed for a case without times; what it raises, ``judge`` raises too."""


@runtime_checkable
class GrowthClaim(Claim, Protocol):
    """A claim on how time grows with a length; its case's evidence is of the growing loop alone."""

    def growth(self, case: Case) -> GrowthTimes:
        """The times that it judges, or ``Stopped`` where there are none."""


@runtime_checkable
class RerunClaim(Claim, Protocol):
    """A claim on times beside those on another toolchain; the rerun is in the case it judges."""

    def sought(self, case: Case) -> Sought:
        """What a case without a rerun asks of one; what it raises, ``judge`` raises too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A claim put to some variants of some workloads; a module-level ``test_…`` value is collected.

    ``variants`` are shell patterns. ``negative_control`` names the negative control, or several,
    one for each path of the detector: variants that must fail the claim by a measurement. Wherever
    a variant is judged, all of them are judged on the same workload and target. If one does not
    fail the claim, the run fails, and no variant's verdict there is ``passed``. A ``RerunClaim``
    gets its control from the run.
    """

    claim: Claim
    workloads: Sequence[Workload]
    variants: tuple[str, ...] = ("*",)
    negative_control: str | tuple[str, ...] = ()

    @property
    def negative_controls(self) -> tuple[str, ...]:
        """Names of the negative controls, each once."""
        names = (
            (self.negative_control,)
            if isinstance(self.negative_control, str)
            else self.negative_control
        )
        return tuple(dict.fromkeys(filter(None, names)))

    def covers(self, variant: str) -> bool:
        """Whether the check is put to the variant of that name."""
        return matches_any(variant, self.variants)


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
