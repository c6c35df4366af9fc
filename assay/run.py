"""Judge a variant on a target: combine measurements, claims, baselines and negative controls."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from time import perf_counter

from assay.judge.baseline import nearest_baseline, no_newer
from assay.judge.case import judge, judge_negative_control, judge_variant, no_control, vouched
from assay.measure.program import Measurement, Programs
from assay.model.claim import Case, Claim, TimingClaim, Trial, record_of
from assay.model.evidence import Evidence, GrowthTimes
from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.model.units import Unit
from assay.model.verdict import BaselineNumber, Finding, Outcome, Record
from assay.store import baselines, evidence

Measured = Times | Rerun | GrowthTimes
"""The measurement that a claim on times is judged by."""


class BaselineUpdate(Enum):
    """What ``--assay-update-baselines`` stores."""

    NOTHING = "nothing"
    NEW = "new"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run's folder, its measurements and its baselines.

    ``further`` are kinds of measurement in addition to ``programs``, such as times.
    """

    name: str
    directory: Path
    baselines: Path
    update: BaselineUpdate
    programs: Programs
    further: tuple[Measurement, ...] = ()
    _controls: dict[tuple[str, str, str], tuple[Finding, Case]] = field(default_factory=dict)

    def judge_timed(self, trial: Trial) -> tuple[Record, Measured | None]:
        """Judge the trial. Returns the record, and the times that decided the verdict, or None.

        Each measurement is made once per run.

        Raises:
            BaselineError: the baseline file is damaged.
            MeasurementCacheError: a file of times or reruns is damaged.
        """
        start = perf_counter()
        defect = None
        if trial.must_fail:
            finding, case = self._control(trial)
        else:
            seen = self._measured(trial)
            found, defect = judge_variant(trial.check.claim, seen)
            finding, case = self._updated(trial, seen, found)
            if finding.outcome.holds and not self._stores_times(trial):
                controls = ((each.variant.name, self._control(each)[0]) for each in trial.controls)
                finding = vouched(finding, controls)
                case = case if finding.outcome.holds else replace(case, baseline=seen.baseline)
            finding = self._with_hlo(trial, finding, case)
        record = record_of(
            self.name,
            trial,
            finding,
            seen=(case.evidence, *case.others.values()),
            baseline=case.baseline,
            upstream=defect.upstream if defect else "",
            seconds=perf_counter() - start,
        )
        return record, case.times or case.rerun or case.evidence.growth

    def _with_hlo(self, trial: Trial, finding: Finding, case: Case) -> Finding:
        """The finding. A byte regression also gets the command that compares the HLO."""
        in_bytes = trial.check.claim.unit is Unit.BYTES and finding.measured is not None
        if finding.outcome is not Outcome.FAILED or not in_bytes:
            return finding
        workload, names = trial.workload, (trial.variant.name, *case.others)
        keys = [(workload.suite, workload.name, name, trial.target) for name in names]
        hints = (finding.advice, evidence.keep_to_compare(self.directory, keys))
        return replace(finding, advice="; ".join(filter(None, hints)))

    def _stores_times(self, trial: Trial) -> bool:
        """Whether this run stores a time that later negative controls are compared with."""
        return _is_of_a_machine(trial.check.claim) and self.update is not BaselineUpdate.NOTHING

    def _measured(self, trial: Trial) -> Case:
        """The case with all measurements that the claim needs."""
        case = self._measurement(trial).added_to(self._case(trial), trial)
        machine = _machine(trial.check.claim, case)
        if not machine:
            return case
        return replace(case, baseline=self._baseline_number(trial, case.evidence, machine))

    def _measurement(self, trial: Trial) -> Measurement:
        claim = trial.check.claim
        found = next((kind for kind in (self.programs, *self.further) if kind.serves(claim)), None)
        if found is None:
            raise NotImplementedError(
                f"got the claim {claim.name!r} on {trial.variant.name!r}, wanted a run that makes "
                "the measurement it needs; give Run(further=...)"
            )
        return found

    def _control(self, trial: Trial) -> tuple[Finding, Case]:
        """The verdict on a negative control, computed once per process."""
        if trial.key not in self._controls:
            case = self._measured(trial)
            finding = self._judge_negative_control(trial, case)
            if self._is_missing(trial, finding):
                finding = no_control(finding)
            self._controls[trial.key] = finding, case
        return self._controls[trial.key]

    def _is_missing(self, trial: Trial, finding: Finding) -> bool:
        """Whether the control was not judged although one of its variants can be judged.

        An inconclusive time does not count as missing: one of the two can be too noisy to decide.
        """
        outcome = finding.outcome
        noisy = trial.is_timing and outcome is Outcome.INCONCLUSIVE
        if outcome.judged or outcome is Outcome.ERROR or noisy:
            return False
        variants = (replace(trial, variant=each, must_fail=False) for each in trial.variants)
        cases = map(self._measured, variants)
        return any(judge(trial.check.claim, case).outcome.judged for case in cases)

    def _case(self, trial: Trial) -> Case:
        workload, target = trial.workload, trial.target
        mine = self._measurement(trial).evidence(workload, trial.variant, target)
        others = {
            name: self.programs.evidence(workload, workload.variant(name), target)
            for name in trial.check.claim.needs(trial.variant)
        }
        return Case(
            workload=workload,
            variant=trial.variant,
            evidence=mine,
            others=others,
            baseline=self._baseline_number(trial, mine),
            earlier=no_newer(self._stored(trial), mine.toolchain.identity),
        )

    def _baseline_number(
        self, trial: Trial, seen: Evidence, machine: str = ""
    ) -> BaselineNumber | None:
        """The baseline of the variant, or of a negative control's reference variant."""
        claim = trial.check.claim
        if not claim.uses_baseline:
            return None
        if trial.must_fail and self.update is not BaselineUpdate.NOTHING and not trial.is_timing:
            # The number that this run stores, if it stores one.
            reference = trial.workload.variant(trial.variant.reference)
            variant = replace(trial, variant=reference, must_fail=False)
            case = self._case(variant)
            return self._updated(variant, case, judge_variant(claim, case)[0])[1].baseline
        if trial.must_fail and isinstance(claim, TimingClaim) and claim.unit is Unit.RATIO:
            # The time of the reference variant divided by itself.
            return BaselineNumber(value=1, toolchain=seen.toolchain.identity)
        return nearest_baseline(self._stored(trial, machine), seen.toolchain.identity)

    def _stored(self, trial: Trial, machine: str = "") -> tuple[BaselineNumber, ...]:
        """All baselines of the variant, or of a negative control's reference variant."""
        claim, workload = trial.check.claim, trial.workload
        if not claim.uses_baseline:
            return ()
        name = trial.variant.reference if trial.must_fail else trial.variant.name
        stored = baselines.load(self.baselines, workload.suite, trial.target)
        numbers = stored.numbers((workload.name, name, claim.name))
        return tuple(number for number in numbers if number.machine == machine)

    def _judge_negative_control(self, trial: Trial, case: Case) -> Finding:
        claim = trial.check.claim
        if claim.uses_baseline and case.baseline is None and judge(claim, case).outcome.judged:
            return Finding(
                outcome=Outcome.INCONCLUSIVE,
                reason=f"no baseline is stored for its reference {trial.variant.reference!r}",
                advice="store one with --assay-update-baselines=new",
            )
        return judge_negative_control(claim, case)

    def _updated(self, trial: Trial, case: Case, finding: Finding) -> tuple[Finding, Case]:
        claim = trial.check.claim
        if not self._stores(claim, case, finding) or finding.measured is None:
            return finding, case
        versions = case.evidence.toolchain.identity
        value = finding.measured
        if isinstance(claim, TimingClaim) and case.baseline and finding.outcome is Outcome.PASSED:
            # Repeated updates must not add up to a slowdown larger than the tolerance.
            value = min(value, case.baseline.value)
        number = BaselineNumber(value=value, toolchain=versions, machine=_machine(claim, case))
        reason = f"stored now: {finding.reason}"
        passed = replace(finding, outcome=Outcome.PASSED, limit=value, reason=reason, advice="")
        return passed, replace(case, baseline=number)

    def _stores(self, claim: Claim, case: Case, finding: Finding) -> bool:
        """Whether ``--assay-update-baselines`` stores this measurement as the baseline.

        ``new`` stores a number that has no baseline, and a new toolchain's number that is no worse.
        An error has no measured number and is never stored.
        """
        # A new machine has no stored time to compare with.
        is_first = _is_of_a_machine(claim) and case.baseline is None
        if not claim.uses_baseline or not (finding.outcome.judged or is_first):
            return False
        if self.update is BaselineUpdate.NEW:
            return case.baseline is None or (
                finding.outcome in (Outcome.PASSED, Outcome.IMPROVED)
                and dict(case.baseline.toolchain) != case.evidence.toolchain.identity
            )
        return self.update is BaselineUpdate.ALL


def _is_of_a_machine(claim: Claim) -> bool:
    """Whether its number is valid only on the machine that measured it (a time)."""
    return claim.uses_baseline and claim.unit is Unit.SECONDS


def _machine(claim: Claim, case: Case) -> str:
    """The machine that the claim's number is valid on; empty where that is any."""
    machine = case.times.machine if case.times and _is_of_a_machine(claim) else None
    return machine.fingerprint if machine else ""


def update_baselines(run: Run, records: Iterable[Record]) -> tuple[Path, ...]:
    """Write the numbers that this run stores as baselines. Returns the files.

    One process calls this once, at the end of a run. No two processes write the same file.
    """
    changed: dict[tuple[str, str], baselines.Baseline] = {}
    for record in records:
        if run.update is BaselineUpdate.NOTHING or record.baseline is None or record.must_fail:
            continue
        place = (record.suite, record.target)
        if place not in changed:
            changed[place] = baselines.load(run.baselines, *place)
        key = (record.workload, record.variant, record.claim)
        changed[place] = changed[place].storing(key, record.baseline)
    return tuple(baselines.save(run.baselines, baseline) for baseline in changed.values())
