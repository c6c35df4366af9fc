"""A stored time holds for one machine, and a busy machine blames nobody."""

from dataclasses import replace

import pytest

from assay import claims
from assay.judge.case import judge
from assay.model.claim import TimingClaim
from assay.model.evidence import Failure, FailureKind
from assay.model.timing import PROCESSES_ALONE, Times, pooled
from assay.model.verdict import Outcome

from .cases import alone, case

CLAIM = claims.BaselineTime()
BUSY = 7.0
"""A load average on two cores."""


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [
        (0.0112, Outcome.FAILED),
        (0.0109, Outcome.PASSED),
        (0.0091, Outcome.PASSED),
        (0.0088, Outcome.IMPROVED),
    ],
)
def test_the_fastest_sample_is_held_to_the_stored_time(seconds: float, outcome: Outcome) -> None:
    finding = judge(CLAIM, alone(seconds))
    assert finding.outcome is outcome
    assert (finding.measured, finding.limit) == (pytest.approx(seconds), 0.01)


def test_a_busy_machine_is_not_called_slower_and_may_be_called_faster() -> None:
    finding = judge(CLAIM, alone(0.02, load=BUSY))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "load average is 7.0 on 2 cores, wanted at most 6" in finding.reason
    assert judge(CLAIM, alone(0.005, load=BUSY)).outcome is Outcome.IMPROVED
    assert judge(CLAIM, alone(0.01, load=BUSY)).outcome is Outcome.PASSED


def test_a_machine_of_unknown_load_counts_as_idle() -> None:
    assert judge(CLAIM, alone(0.02, load=None)).outcome is Outcome.FAILED


def test_a_machine_without_a_stored_time_has_nothing_to_compare_with() -> None:
    finding = judge(CLAIM, alone(0.01, stored=None))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.measured == pytest.approx(0.01)
    assert "no time is stored for this machine, cores 2, cpu some" in finding.reason
    assert judge(CLAIM, alone(0.01, stored=None, load=BUSY)).measured is None


def test_ten_samples_of_each_process_decide_and_fewer_do_not() -> None:
    enough = 10 * PROCESSES_ALONE
    assert judge(CLAIM, alone(0.02, count=enough)).outcome is Outcome.FAILED
    assert judge(CLAIM, alone(0.02, count=enough - 1)).outcome is Outcome.INCONCLUSIVE


def test_a_program_that_fails_fails_it() -> None:
    failed = Failure(kind=FailureKind.EXECUTION, message="not again")
    times = alone(0.01).times
    assert times is not None
    seen = replace(alone(0.01), times=replace(times, failure=failed))
    assert judge(CLAIM, seen).outcome is Outcome.FAILED


def test_a_case_without_times_is_an_error() -> None:
    assert judge(CLAIM, case()).outcome is Outcome.ERROR


def test_it_asks_for_the_variant_alone_until_a_process_reached_its_minimum() -> None:
    assert isinstance(CLAIM, TimingClaim)
    turns = CLAIM.turns(case())
    assert turns.reference == ""
    assert turns.enough([], [0.01] * 48)
    assert turns.question == "alone"
    assert not turns.enough([], [0.01] * 47)
    assert not turns.enough([], [0.001] * 48)


def test_processes_are_pooled_and_the_last_says_how_it_ended() -> None:
    first = alone(0.01, count=2).times
    assert isinstance(first, Times)
    failed = Failure(kind=FailureKind.CRASH, message="gone")
    both = pooled([first, replace(first, failure=failed, seconds=2.0)])
    assert both.judged.samples == first.judged.samples * 2
    assert (both.failure, both.seconds) == (failed, first.seconds + 2.0)
