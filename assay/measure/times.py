"""The times of two programs, measured in turns, or of one program in processes of its own."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from assay.measure.program import BesidesEvidence, asked
from assay.model.claim import Case, Claim, TimingClaim, Trial
from assay.model.timing import PROCESSES_ALONE, Keep, TimedPair, Times
from assay.store import evidence

Time = Callable[[TimedPair, Keep], Times]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTimes(BesidesEvidence):
    """Times, added to the evidence of the judged program.

    ``most_seconds`` limits the sampling time of one pair.
    """

    time: Time
    most_seconds: float

    def serves(self, claim: Claim) -> bool:
        """As in ``Measurement``."""
        return isinstance(claim, TimingClaim)

    def added_to(self, case: Case, trial: Trial) -> Case:
        """The case with the times that its claim asks for."""
        claim = trial.check.claim
        turns = asked(claim.turns, case) if isinstance(claim, TimingClaim) else None
        if turns is None:
            return case
        pair = TimedPair(
            workload=trial.workload,
            reference=trial.workload.variant(turns.reference) if turns.reference else None,
            judged=trial.variant,
            target=trial.target,
            turns=turns,
            # The processes of a single variant share the time limit of a pair.
            most_seconds=self.most_seconds / (1 if turns.reference else PROCESSES_ALONE),
        )
        directory = self.programs.directory
        times = evidence.TIMES.once(directory, pair.key, lambda keep: self.time(pair, keep))
        return replace(case, times=times)
