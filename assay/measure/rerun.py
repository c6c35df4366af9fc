"""The times of a program on two toolchains: the present one and a baseline."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from assay.judge.baseline import nearest_baseline
from assay.measure.program import BesidesEvidence, asked
from assay.model.claim import Case, Claim, RerunClaim, Trial
from assay.model.evidence import Unavailable
from assay.model.rerun import KeepRerun, Rerun, RerunRequest, Side, not_rerun
from assay.store import baselines, evidence

BASELINE = "baseline"
"""The value of ``--assay-against`` that selects the toolchain of the nearest baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reruns(BesidesEvidence):
    """Reruns, added to the evidence of the judged program.

    ``against`` is the value of ``--assay-against``. It is empty if none was given.
    """

    rerun: Callable[[RerunRequest, KeepRerun], Rerun]
    baselines: Path
    against: str = ""

    def serves(self, claim: Claim) -> bool:
        """As in ``Measurement``."""
        return isinstance(claim, RerunClaim)

    def added_to(self, case: Case, trial: Trial) -> Case:
        """The case with the rerun that its claim asks for."""
        claim = trial.check.claim
        sought = asked(claim.sought, case) if isinstance(claim, RerunClaim) else None
        if sought is None:
            return case
        other = self._other_toolchain(trial, case)
        request = RerunRequest(
            workload=trial.workload,
            variant=trial.variant,
            target=trial.target,
            baseline="" if isinstance(other, Unavailable) else other,
            sought=sought,
            negative_control=trial.must_fail,
        )
        if isinstance(other, Unavailable):
            return replace(case, rerun=not_rerun(request, Side.OLD, other))
        directory = self.programs.directory
        made = evidence.RERUNS.once(directory, request.key, lambda keep: self.rerun(request, keep))
        return replace(case, rerun=made)

    def _other_toolchain(self, trial: Trial, case: Case) -> Mapping[str, str] | str | Unavailable:
        """The toolchain to rerun the program on, or why there is none."""
        if self.against != BASELINE:
            none = Unavailable(
                reason="none is named", remedy="name one with --assay-against VERSION"
            )
            return self.against or none
        name = f"{trial.workload.name}/{trial.variant.name}"
        here = case.evidence.toolchain.identity
        stored = baselines.load(self.baselines, trial.workload.suite, trial.target)
        numbers = stored.of_variant(trial.workload.name, trial.variant.name)
        nearest = nearest_baseline(numbers, here)
        if nearest is None:
            reason = f"no number of {name} is stored on {trial.target}"
        elif nearest.toolchain == here:
            reason = f"the newest number of {name} was stored on the present toolchain itself"
        else:
            return nearest.toolchain
        return Unavailable(reason=reason, remedy="name a version with --assay-against VERSION")
