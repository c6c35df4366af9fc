"""The measurements that claims need, each made once per run and stored in the run's folder."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from assay.judge.baseline import no_newer
from assay.model.claim import Case, GrowthClaim, RerunClaim, TimingClaim, Trial
from assay.model.evidence import Evidence
from assay.model.rerun import KeepRerun, Rerun, RerunRequest, Side
from assay.model.target import Unavailable
from assay.model.timing import PROCESSES_ALONE, Ending, Keep, Sensitivity, TimedPair, Times, Turns
from assay.model.workload import Variant, Workload
from assay.store import baselines, evidence

BASELINE = "baseline"
"""The value of ``--assay-against`` that selects the toolchain of the nearest baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """The measurements of a run; the first process that needs one makes it.

    Each method raises ``MeasurementCacheError`` if the stored file is damaged.

    ``observe`` compiles and runs a program, or with a number of seconds only times its growing
    loop. ``time`` times two programs alternately, or one alone. ``rerun`` times a program on two
    toolchains. ``most_seconds`` limits the sampling time of one pair or loop. ``against`` is the
    value of ``--assay-against``, empty if none was given.
    """

    directory: Path
    baselines: Path
    observe: Callable[[Workload, Variant, str, float | None], Evidence]
    time: Callable[[TimedPair, Keep], Times]
    rerun: Callable[[RerunRequest, KeepRerun], Rerun]
    most_seconds: float
    against: str = ""

    def evidence(
        self, workload: Workload, variant: Variant, target: str, growth_seconds: float | None = None
    ) -> Evidence:
        """The evidence of a program; with ``growth_seconds`` only the times of its growing loop."""
        cache = evidence.PROGRAMS if growth_seconds is None else evidence.GROWTH
        observe = partial(self.observe, workload, variant, target, growth_seconds)
        return evidence.once(self.directory, workload.key(variant.name, target), observe, cache)

    def judged(self, trial: Trial) -> Evidence:
        """The evidence of the judged variant that the trial's claim needs."""
        seconds = self.most_seconds if isinstance(trial.check.claim, GrowthClaim) else None
        return self.evidence(trial.workload, trial.variant, trial.target, seconds)

    def with_times(self, case: Case, trial: Trial) -> Case:
        """The case with the times or the rerun that its claim asks for."""
        claim = trial.check.claim
        asked: Turns | Sensitivity | None = None
        # Where this raises, ``Claim.judge`` raises the same again, which becomes the verdict.
        with suppress(Exception):
            if isinstance(claim, TimingClaim):
                asked = claim.turns(case)
            elif isinstance(claim, RerunClaim):
                asked = claim.rerun_sensitivity(case)
        if isinstance(asked, Turns):
            return replace(case, times=self._times(trial, asked))
        return replace(case, rerun=self._rerun(trial, case, asked)) if asked else case

    def _times(self, trial: Trial, turns: Turns) -> Times:
        pair = TimedPair(
            workload=trial.workload,
            reference=trial.workload.variant(turns.reference) if turns.reference else None,
            judged=trial.variant,
            target=trial.target,
            turns=turns,
            # The processes of a single variant share the time limit of a pair.
            most_seconds=self.most_seconds / (1 if turns.reference else PROCESSES_ALONE),
        )
        return evidence.TIMES.once(self.directory, pair.key, partial(self.time, pair))

    def _rerun(self, trial: Trial, case: Case, sensitivity: Sensitivity) -> Rerun:
        other = self._other_toolchain(trial, case)
        if isinstance(other, Unavailable):
            return Rerun(
                suite=trial.workload.suite,
                workload=trial.workload.name,
                variant=trial.variant.name,
                target=trial.target,
                negative_control=trial.must_fail,
                ended=Ending.STOPPED,
                unavailable=other,
                side=Side.OLD,
            )
        request = RerunRequest(
            workload=trial.workload,
            variant=trial.variant,
            target=trial.target,
            baseline=other,
            sensitivity=sensitivity,
            negative_control=trial.must_fail,
        )
        return evidence.RERUNS.once(self.directory, request.key, partial(self.rerun, request))

    def _other_toolchain(self, trial: Trial, case: Case) -> Mapping[str, str] | str | Unavailable:
        """The toolchain to rerun the program on, or why there is none."""
        if self.against != BASELINE:
            return self.against or Unavailable(
                reason="none is named", remedy="name one with --assay-against VERSION"
            )
        name = f"{trial.workload.name}/{trial.variant.name}"
        here = case.evidence.toolchain.identity
        stored = baselines.load(self.baselines, trial.workload.suite, trial.target)
        numbers = stored.of_variant(trial.workload.name, trial.variant.name)
        older = no_newer(numbers, here)
        if not older:
            reason = f"no number of {name} is stored on {trial.target}"
        elif older[-1].toolchain == here:
            reason = f"the newest number of {name} was stored on the present toolchain itself"
        else:
            return older[-1].toolchain
        return Unavailable(reason=reason, remedy="name a version with --assay-against VERSION")
