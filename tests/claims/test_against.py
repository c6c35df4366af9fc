"""A rerun's ratio keeps or fails the claim; what ends on the old toolchain is no evidence."""

import pytest

from assay import claims
from assay.judge.case import judge, judge_negative_control
from assay.model.claim import RerunClaim, TimingClaim
from assay.model.evidence import Failure, FailureKind
from assay.model.rerun import Side
from assay.model.target import Unavailable
from assay.model.timing import Change, Ending, Ratio, Sensitivity
from assay.model.verdict import Outcome

from .cases import case, failure, rerun

CLAIM = claims.TimeAgainst()
FAILED = Failure(kind=FailureKind.CRASH, message="SIGABRT")
ABSENT = Unavailable(reason="there is no jax 9", remedy="ask for one that exists: jax 0.10.2")
NOISY = Ratio(ratio=1.1, low=0.9, high=1.3, units=12, change=Change.TOO_NOISY)


def test_it_is_no_claim_on_times_in_one_run() -> None:
    assert isinstance(CLAIM, RerunClaim)
    assert not isinstance(CLAIM, TimingClaim)
    assert not isinstance(claims.TimeRatio(), RerunClaim)


def test_a_slower_program_fails_it_and_the_words_name_toolchains_ratio_and_pairs() -> None:
    finding = judge(CLAIM, rerun(0.010, 0.015))
    assert finding.outcome is Outcome.FAILED
    assert finding.measured == pytest.approx(1.5)
    assert finding.limit == 1
    assert finding.reason.startswith(
        "a run on jax 0.12.0, jaxlib 0.12.0 takes 1.5 times what it takes on jax 0.10.2, "
        "jaxlib 0.10.2 ("
    )
    assert finding.reason.endswith("by 4 pairs of processes: 15 ms against 10 ms): slower")


@pytest.mark.parametrize("new", [1.0, 0.5])
def test_a_program_that_is_as_fast_or_faster_passes_it(new: float) -> None:
    finding = judge(CLAIM, rerun(1.0, new))
    assert (finding.outcome, finding.measured) == (Outcome.PASSED, pytest.approx(new))
    assert judge_negative_control(CLAIM, rerun(1.0, new)).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("ended", "advice"),
    [(Ending.SECONDS, "raise --assay-against-seconds"), (Ending.TURNS, "ask for a larger change")],
)
def test_too_noisy_is_no_pass(ended: Ending, advice: str) -> None:
    finding = judge(CLAIM, rerun(1.0, 1.1, ratio=NOISY, ended=ended))
    assert (finding.outcome, finding.measured) == (Outcome.INCONCLUSIVE, 1.1)
    assert finding.limit == 1
    assert "too noisy to decide" in finding.reason
    assert f"{ended.phrase} was reached" in finding.reason
    assert advice in finding.advice


def test_the_rerun_looks_for_the_change_that_the_claim_names() -> None:
    claim = claims.TimeAgainst(least_change=0.1, seen_change=0.3)
    assert claim.rerun_sensitivity(case()) == Sensitivity(least=0.1, seen=0.3)
    assert CLAIM.rerun_sensitivity(case()) == Sensitivity()


def test_too_few_pairs_are_no_pass() -> None:
    finding = judge(CLAIM, rerun(1.0, 1.0, pairs=1, ended=Ending.SECONDS))
    assert (finding.outcome, finding.measured) == (Outcome.INCONCLUSIVE, None)
    assert "--assay-against-seconds" in finding.advice


@pytest.mark.parametrize(
    ("side", "outcome"), [(Side.OLD, Outcome.INCONCLUSIVE), (Side.NEW, Outcome.FAILED)]
)
def test_only_a_failure_on_the_present_toolchain_fails_it(side: Side, outcome: Outcome) -> None:
    finding = judge(CLAIM, rerun(1.0, 1.0, failure=FAILED, side=side))
    assert (finding.outcome, finding.measured) == (outcome, None)
    assert f"on {side.phrase}, it crashes its process: SIGABRT" in finding.reason


@pytest.mark.parametrize(
    ("side", "outcome"),
    [
        (Side.OLD, Outcome.INCONCLUSIVE),
        (Side.NEW, Outcome.UNSUPPORTED),
        (None, Outcome.UNSUPPORTED),
    ],
)
def test_a_toolchain_that_cannot_be_had_is_told_with_its_remedy(
    side: Side | None, outcome: Outcome
) -> None:
    finding = judge(CLAIM, rerun(1.0, 1.0, unavailable=ABSENT, side=side))
    assert finding.outcome is outcome
    assert finding.reason.endswith(ABSENT.reason)
    assert finding.advice == ABSENT.remedy


def test_a_control_that_could_not_be_measured_proves_nothing() -> None:
    failed = rerun(1.0, 1.0, failure=FAILED, side=Side.NEW)
    assert judge_negative_control(CLAIM, failed).outcome is Outcome.FAILED


def test_a_program_that_fails_here_fails_it_without_a_rerun() -> None:
    assert judge(CLAIM, case(failure=failure())).outcome is Outcome.FAILED


def test_a_rerun_that_was_never_made_is_an_error_not_a_pass() -> None:
    finding = judge(CLAIM, case())
    assert finding.outcome is Outcome.ERROR
    assert "got no rerun of 'offload'" in finding.reason
