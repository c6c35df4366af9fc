"""Judge a variant on a target: combine measurements, claims, baselines and negative controls."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from time import perf_counter

from assay.judge.baseline import no_newer
from assay.judge.case import judge_negative_control, judge_variant, vouched
from assay.judge.differences.inspections import compare
from assay.measure import Measurements
from assay.model.claim import Case, Claim, TimingClaim, Trial, record_of
from assay.model.defect import KnownDefect
from assay.model.evidence import Evidence, GrowthTimes
from assay.model.inspection import Difference, Inspection, Means
from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.model.units import Unit
from assay.model.verdict import BaselineNumber, Finding, Outcome, Record
from assay.store import baseline_programs, baselines, evidence

_SHOWN = 3
_NOT_KEPT = (
    "the program of the baseline is not kept on this machine: to compare with it, check out the "
    "commit that stored it, run --assay-update-baselines=all there, and come back"
)

Measured = Times | Rerun | GrowthTimes
"""The measurement that a claim on times is judged by."""


class BaselineUpdate(Enum):
    """What ``--assay-update-baselines`` stores."""

    NOTHING = "nothing"
    NEW = "new"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run's folder, its measurements and its baselines."""

    name: str
    directory: Path
    baselines: Path
    update: BaselineUpdate
    measurements: Measurements
    _controls: dict[tuple[str, ...], tuple[Finding, Case]] = field(default_factory=dict)

    def judge_timed(self, trial: Trial) -> tuple[Record, Measured | None]:
        """Judge the trial. Returns the record, and the times that decided the verdict, or None.

        Each measurement is made once per run.

        Raises:
            BaselineError: the baseline file is damaged.
            MeasurementCacheError: a file of measurements is damaged.
        """
        start = perf_counter()
        defect = None
        if trial.must_fail:
            finding, case = self._control(trial)
        else:
            finding, case, defect = self._variant(trial)
        record = record_of(
            self.name,
            trial,
            finding,
            seen=(case.evidence, *case.others.values()),
            baseline=case.baseline,
            defect=defect,
            seconds=perf_counter() - start,
        )
        if case.times is not None:
            record = replace(record, retries=(*record.retries, *case.times.retries))
        return record, case.times or case.rerun or case.evidence.growth

    def _variant(self, trial: Trial) -> tuple[Finding, Case, KnownDefect | None]:
        """The verdict on a variant, which holds only if every negative control fails the claim."""
        claim, seen = trial.check.claim, self._measured(trial)
        found, defect = judge_variant(claim, seen)
        finding, case = self._updated(claim, seen, found)
        # A time's controls are compared with the stored time, which this run writes at its end.
        stores_time = _is_of_a_machine(claim) and self.update is not BaselineUpdate.NOTHING
        if finding.outcome.holds and not stores_time:
            controls = ((each.variant.name, self._control(each)[0]) for each in trial.controls)
            finding = vouched(finding, controls)
            case = case if finding.outcome.holds else replace(case, baseline=seen.baseline)
        of_program = claim.unit is Unit.BYTES or (claim.uses_baseline and not trial.is_timing)
        if finding.outcome is Outcome.FAILED and of_program and finding.measured is not None:
            finding = self._compared(trial, case, finding)
        return finding, case, defect

    def _compared(self, trial: Trial, case: Case, finding: Finding) -> Finding:
        """The finding with what changed since the baseline, and how to compare the programs."""
        names = (trial.variant.name, *case.others)
        keys = [trial.workload.key(name, trial.target) for name in names]
        reasons, advice, before = [finding.reason], [finding.advice], None
        if number := case.baseline:
            claim = trial.check.claim.name
            before = baseline_programs.find(self.baselines, keys[0], claim, number)
        if before:
            old = replace(case.evidence, memory=before.memory, module=before.module)
            changed = list(map(str, _differences(old, case.evidence)))
            more = [f"{len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else []
            reasons += [f"changed since: {'; '.join((*changed[:_SHOWN], *more)) or 'nothing'}"]
        elif number:
            advice.append(_NOT_KEPT)
        hlo_gz = before.hlo_gz if before else b""
        advice.append(evidence.keep_to_compare(self.directory, keys, hlo_gz))
        return replace(finding, reason="; ".join(reasons), advice="; ".join(filter(None, advice)))

    def _control(self, trial: Trial) -> tuple[Finding, Case]:
        """The verdict on a negative control, computed once per process."""
        if trial.key not in self._controls:
            case = self._measured(trial)
            variants = (replace(trial, variant=each, must_fail=False) for each in trial.variants)
            cases = map(self._measured, variants)
            finding = judge_negative_control(trial.check.claim, case, cases)
            self._controls[trial.key] = finding, case
        return self._controls[trial.key]

    def _measured(self, trial: Trial) -> Case:
        """The case with all measurements that the claim needs, and its baseline."""
        workload = trial.workload
        case = Case(
            workload=workload,
            variant=trial.variant,
            evidence=self.measurements.judged(trial),
            others={
                name: self.measurements.evidence(workload, workload.variant(name), trial.target)
                for name in trial.check.claim.needs(trial.variant)
            },
        )
        if not trial.check.claim.uses_baseline:
            return self.measurements.with_times(case, trial)
        case = self.measurements.with_times(self._with_baseline(trial, case), trial)
        # The times name their machine, and its baseline is the one to compare with.
        return self._with_baseline(trial, case) if case.times else case

    def _with_baseline(self, trial: Trial, case: Case) -> Case:
        """The case with the baseline of the variant, or of a negative control's reference."""
        claim, workload, name = trial.check.claim, trial.workload, trial.variant.name
        versions = case.evidence.toolchain.identity
        if trial.must_fail:
            name = trial.variant.reference
            if isinstance(claim, TimingClaim) and claim.unit is Unit.RATIO:
                # The time of the reference variant divided by itself.
                return replace(case, baseline=BaselineNumber(value=1, toolchain=versions))
            if self.update is not BaselineUpdate.NOTHING and not trial.is_timing:
                # The number that this run stores, if it stores one.
                reference = replace(trial, variant=workload.variant(name), must_fail=False)
                seen = self._measured(reference)
                _, stored = self._updated(claim, seen, judge_variant(claim, seen)[0])
                return replace(case, baseline=stored.baseline, earlier=stored.earlier)
        machine = _machine(claim, case)
        found = baselines.load(self.baselines, workload.suite, trial.target)
        numbers = found.numbers((workload.name, name, claim.name))
        earlier = no_newer([each for each in numbers if each.machine == machine], versions)
        return replace(case, baseline=earlier[-1] if earlier else None, earlier=earlier)

    def _updated(self, claim: Claim, case: Case, finding: Finding) -> tuple[Finding, Case]:
        """The verdict, and the case with the number that ``--assay-update-baselines`` stores.

        ``new`` stores a number that has no baseline, and a new toolchain's number that is no worse.
        An error has no measured number and is never stored; nor is the number of a known defect.
        """
        stored, value = case.baseline, finding.measured
        versions = case.evidence.toolchain.identity
        # A new machine has no stored time to compare with, which is inconclusive.
        judged = finding.outcome.judged or (_is_of_a_machine(claim) and stored is None)
        no_worse = finding.outcome in (Outcome.PASSED, Outcome.IMPROVED)
        is_new = stored is None or (no_worse and stored.toolchain != versions)
        stores = {BaselineUpdate.NEW: is_new, BaselineUpdate.ALL: True}.get(self.update, False)
        is_defect = finding.outcome is Outcome.KNOWN_DEFECT
        if value is None or is_defect or not (claim.uses_baseline and judged and stores):
            return finding, case
        if isinstance(claim, TimingClaim) and stored and finding.outcome is Outcome.PASSED:
            # Repeated updates must not add up to a slowdown larger than the tolerance.
            value = min(value, stored.value)
        number = BaselineNumber(value=value, toolchain=versions, machine=_machine(claim, case))
        reason = f"stored now: {finding.reason}"
        passed = replace(finding, outcome=Outcome.PASSED, limit=value, reason=reason, advice="")
        return passed, replace(case, baseline=number)


def _differences(before: Evidence, after: Evidence) -> Sequence[Difference]:
    """How the program after differs, most important first, as in ``assay inspect --diff``."""
    old, new = (
        Inspection(subject=each.variant, means=Means.COMPILED, evidence=each)
        for each in (before, after)
    )
    return compare(old, new).differences or ()


def _is_of_a_machine(claim: Claim) -> bool:
    """Whether its number is valid only on the machine that measured it (a time)."""
    return claim.uses_baseline and claim.unit is Unit.SECONDS


def _machine(claim: Claim, case: Case) -> str:
    """What the claim's number is valid on: for a time a machine, else a kind of live accelerator.

    Empty if the number is valid on all of them, or the machine is not known.
    """
    if not _is_of_a_machine(claim):
        return case.evidence.device
    machine = case.times.machine if case.times else None
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
        known = changed.get(place) or baselines.load(run.baselines, *place)
        key = (record.workload, record.variant, record.claim)
        changed[place] = known.storing(key, record.baseline)
        baseline_programs.keep(run.baselines, run.directory, record)
    return tuple(baselines.save(run.baselines, baseline) for baseline in changed.values())
