"""A run makes the rerun that a claim asks for, once, on the toolchain that is named."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from assay import claims
from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.rerun import KeepRerun, Pair, Rerun, RerunRequest
from assay.model.timing import Change, Ending, ProcessTimes, Ratio
from assay.model.verdict import Outcome
from assay.model.workload import Variant, Workload
from assay.run import BaselineUpdate, Run
from assay.store import evidence

from .fakes import BASELINE_TEMP, NOW, OFFLOAD, OLD, SAVE, TARGET, Harness, measuring, trial

CLAIM = claims.TimeAgainst()


def _taken(seconds: float) -> ProcessTimes:
    samples = (seconds,) * 8
    return ProcessTimes(trace=None, compile=None, first=1.0, runs_per_sample=1, samples=samples)


@dataclass
class Rerunner:
    """Stands for two toolchains; a negative control takes twice as long, as it must."""

    asked: list[RerunRequest] = field(default_factory=list)

    def __call__(self, request: RerunRequest, keep: KeepRerun) -> Rerun:
        self.asked.append(request)
        seen = 2.0 if request.negative_control else 1.0
        change = Change.SLOWER if request.negative_control else Change.SAME
        known = Rerun(
            suite="scan",
            workload="stack",
            variant=request.variant.name,
            target=request.target,
            negative_control=request.negative_control,
            pairs=(Pair(old=_taken(1.0), new=_taken(seen)),) * 4,
            ratio=Ratio(ratio=seen, low=seen, high=seen, units=4, change=change),
        )
        keep(known)
        return replace(known, ended=Ending.ENOUGH)


@pytest.fixture
def rerunner() -> Rerunner:
    return Rerunner()


@pytest.fixture
def run(harness: Harness, rerunner: Rerunner) -> Run:
    return measuring(harness.start(), rerun=rerunner, against="0.9.0")


def test_a_claim_is_judged_by_a_rerun_that_the_run_makes_and_keeps(
    run: Run, rerunner: Rerunner
) -> None:
    record, made = run.judge_timed(trial(claim=CLAIM))
    assert (record.verdict, record.measured) == (Outcome.PASSED, 1.0)
    assert isinstance(made, Rerun)
    assert evidence.RERUNS.load_all(run.directory) == ((made,), ())
    (asked,) = rerunner.asked
    assert (asked.variant, asked.target, asked.baseline) == (OFFLOAD, TARGET, "0.9.0")
    assert not asked.negative_control


def test_the_control_is_the_variant_itself_done_twice(run: Run, rerunner: Rerunner) -> None:
    record = run.judge_timed(trial(claim=CLAIM, must_fail=True))[0]
    assert (record.verdict, record.measured) == (Outcome.PASSED, 2.0)
    assert (record.variant, record.claim) == ("offload", "time-against.negative-control")
    assert [asked.negative_control for asked in rerunner.asked] == [True]


def test_a_control_that_is_called_the_same_fails_the_run(harness: Harness) -> None:
    def blind(request: RerunRequest, keep: KeepRerun) -> Rerun:
        return Rerunner()(replace(request, negative_control=False), keep)

    run = measuring(harness.start(), rerun=blind, against="0.9.0")
    assert run.judge_timed(trial(claim=CLAIM, must_fail=True))[0].verdict is Outcome.FAILED


def test_the_same_is_rerun_once_and_another_question_by_itself(
    run: Run, rerunner: Rerunner
) -> None:
    for claim in (CLAIM, claims.TimeAgainst(), claims.TimeAgainst(seen_change=0.5)):
        run.judge_timed(trial(claim=claim))
    run.judge_timed(trial(claim=CLAIM, must_fail=True))
    run.judge_timed(trial(SAVE, claim=CLAIM))
    assert len(rerunner.asked) == 4


def test_it_is_timing_so_that_nothing_else_is_at_work() -> None:
    assert trial(claim=CLAIM).is_timing


def test_a_program_that_failed_is_not_rerun(harness: Harness, rerunner: Rerunner) -> None:
    def fails(workload: Workload, variant: Variant, target: str, _growth: float | None) -> Evidence:
        seen = harness.observed(workload, variant, target)
        return replace(seen, failure=Failure(kind=FailureKind.COMPILER, message="it broke"))

    run = measuring(harness.start(), observe=fails, rerun=rerunner, against="0.9.0")
    assert run.judge_timed(trial(claim=CLAIM))[0].verdict is Outcome.FAILED
    assert rerunner.asked == []


def test_without_a_toolchain_nothing_is_measured(harness: Harness, rerunner: Rerunner) -> None:
    record = measuring(harness.start(), rerun=rerunner).judge_timed(trial(claim=CLAIM))[0]
    assert record.verdict is Outcome.INCONCLUSIVE
    assert record.advice == "name one with --assay-against VERSION"
    assert rerunner.asked == []


def against_baseline(harness: Harness, rerunner: Rerunner, variant: Variant = OFFLOAD) -> str:
    run = measuring(harness.start(), rerun=rerunner, against="baseline")
    return run.judge_timed(trial(variant, claim=CLAIM))[0].reason


def test_the_baseline_is_the_toolchain_of_the_variants_nearest_baseline(
    harness: Harness, rerunner: Rerunner
) -> None:
    harness.judge(trial(claim=BASELINE_TEMP), update=BaselineUpdate.NEW)
    harness.observed.versions = dict(NOW)
    against_baseline(harness, rerunner)
    assert [asked.baseline for asked in rerunner.asked] == [OLD]
    assert "no number of stack/save is stored" in against_baseline(harness, rerunner, SAVE)


def test_the_present_toolchain_is_not_rerun_beside_itself(
    harness: Harness, rerunner: Rerunner
) -> None:
    harness.judge(trial(claim=BASELINE_TEMP), update=BaselineUpdate.NEW)
    assert "on the present toolchain itself" in against_baseline(harness, rerunner)
    assert rerunner.asked == []
