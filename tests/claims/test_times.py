"""A ratio of times is passed or failed by its interval; what the noise hides is never a pass."""

from dataclasses import replace

import pytest

from assay import claims
from assay.judge.case import judge, judge_negative_control
from assay.model.claim import GrowthClaim, Stopped, TimingClaim
from assay.model.evidence import Failure, FailureKind
from assay.model.target import Unavailable
from assay.model.timing import Calibration, Change, Ending, Sensitivity, VariantTimes
from assay.model.units import Unit
from assay.model.verdict import Outcome
from assay.stats.ratios import LOOKS, ratio_of_turns

from .cases import NOTHING, REFERENCE, VARIANT, case, failure, formula, noisy, timed

CLAIM = claims.TimeRatio()
FAILED = Failure(kind=FailureKind.EXECUTION, message="RuntimeError: not again")


def test_a_program_of_half_as_much_work_again_fails_the_claim() -> None:
    finding = judge(CLAIM, timed(*noisy(1.5, 0.05)))
    assert finding.outcome is Outcome.FAILED
    assert finding.measured == pytest.approx(1.5, rel=0.05)
    assert finding.limit == 1
    assert f"what {REFERENCE!r} takes" in finding.reason


def test_a_slowdown_within_what_a_pass_rules_out_still_fails() -> None:
    """3.5 % lies between the least change, 2 %, and the seen one, 5 %."""
    assert judge(CLAIM, timed(*noisy(1.035, 0.001))).outcome is Outcome.FAILED


def test_the_limit_is_the_formulas() -> None:
    twice = claims.TimeRatio(at_most=formula(2, Unit.RATIO))
    assert judge(twice, timed(*noisy(1.5, 0.05))).outcome is Outcome.PASSED
    assert judge(twice, timed(*noisy(2.5, 0.05))).outcome is Outcome.FAILED


def test_a_faster_program_passes_the_claim() -> None:
    assert judge(CLAIM, timed(*noisy(0.5, 0.2))).outcome is Outcome.PASSED


def test_it_need_not_be_told_whether_it_is_faster_or_as_fast() -> None:
    judged, reference = noisy(0.975, 0.04, 64), noisy(1.0, 0.04, 64, seed=1)
    assert ratio_of_turns(reference, judged).change is Change.TOO_NOISY
    assert judge(CLAIM, timed(*judged, reference=reference)).outcome is Outcome.PASSED


def test_an_interval_that_is_wide_for_the_question_is_no_pass_though_it_lies_below() -> None:
    judged, reference = noisy(0.8, 0.6, 64), noisy(1.0, 0.6, 64, seed=1)
    assert ratio_of_turns(reference, judged).change is Change.TOO_NOISY
    assert judge(CLAIM, timed(*judged, reference=reference)).outcome is Outcome.INCONCLUSIVE


def test_too_noisy_is_inconclusive_and_says_what_to_do() -> None:
    seen = timed(*noisy(1.0, 0.8), reference=noisy(1.0, 0.8, seed=1), ended=Ending.SECONDS)
    finding = judge(CLAIM, seen)
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.reason.startswith("too noisy to decide")
    assert "the time limit" in finding.reason
    assert "--assay-timing-seconds" in finding.advice


def test_a_control_that_is_lost_in_the_noise_is_no_proof_of_the_detector() -> None:
    seen = timed(*noisy(1.0, 0.8), reference=noisy(1.0, 0.8, seed=1), ended=Ending.TURNS)
    assert judge_negative_control(CLAIM, seen).outcome is Outcome.INCONCLUSIVE


def test_fewer_samples_than_tell_anything_are_no_pass() -> None:
    for pairs in (2, 4):
        finding = judge(CLAIM, timed(*[1.0] * pairs, ended=Ending.SECONDS))
        assert finding.outcome is Outcome.INCONCLUSIVE


def test_a_run_longer_than_the_cap_is_inconclusive() -> None:
    unstarted = VariantTimes(variant=VARIANT.name)
    for seen in (timed(ended=Ending.SECONDS), timed(ended=Ending.SECONDS, judged=unstarted)):
        finding = judge(CLAIM, seen)
        assert finding.outcome is Outcome.INCONCLUSIVE
        assert "a run takes up to 2 s" in finding.reason


def test_a_run_too_short_for_the_clock_is_inconclusive() -> None:
    short = VariantTimes(variant=VARIANT.name, runs_per_sample=1024)
    finding = judge(CLAIM, timed(ended=Ending.BELOW_CLOCK, judged=short))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "even 1024 runs in one sample" in finding.reason


def test_a_machine_that_changed_its_pace_is_named() -> None:
    before = Calibration(matmul=(1.0, 1.0, 1.1), copy=(1.0,), dispatch=(1.0,))
    after = Calibration(matmul=(1.6, 1.7, 9.0), copy=(1.1,), dispatch=(0.5,))
    drifted = judge(CLAIM, timed(*noisy(1.5, 0.05), before=before, after=after))
    assert "the machine's speed changed" in drifted.reason
    assert "a matmul took 1.7 times as long" in drifted.reason
    assert "a dispatch took 0.5 times as long" in drifted.reason
    assert "a copy took" not in drifted.reason
    steady = judge(CLAIM, timed(*noisy(1.5, 0.05), before=before, after=before))
    assert "speed" not in steady.reason


def test_the_variants_own_failure_when_it_is_run_again_fails_the_claim() -> None:
    finding = judge(CLAIM, timed(failure=FAILED, failed_variant=VARIANT.name))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, None)
    assert "not again" in finding.reason


@pytest.mark.parametrize("variant", [REFERENCE, ""])
def test_anothers_failure_leaves_the_claim_inconclusive(variant: str) -> None:
    finding = judge(CLAIM, timed(*[1.0] * 12, failure=FAILED, failed_variant=variant))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert (repr(variant) if variant else "one of the two") in finding.reason


def test_a_target_that_runs_nothing_is_unsupported_for_the_claim() -> None:
    why = Unavailable(reason="a compile-only target runs nothing", remedy="use cpu")
    finding = judge(CLAIM, timed(unavailable=why))
    assert finding.outcome is Outcome.UNSUPPORTED
    assert (finding.reason, finding.advice) == (why.reason, why.remedy)


def test_a_case_without_times_is_an_error_not_a_pass() -> None:
    assert judge(CLAIM, case()).outcome is Outcome.ERROR


def test_a_limit_in_another_unit_fails_the_claim() -> None:
    finding = judge(claims.TimeRatio(at_most=formula(1, Unit.BYTES)), timed(*[1.0] * 12))
    assert finding.outcome is Outcome.FAILED


def test_a_variant_may_be_named_in_the_place_of_the_reference() -> None:
    claim = claims.TimeRatio(against=NOTHING)
    assert claim.needs(VARIANT) == (NOTHING,)
    assert claim.turns(case()).reference == NOTHING
    assert CLAIM.turns(case()).reference == REFERENCE


def test_it_is_a_claim_on_times_and_others_are_not() -> None:
    assert isinstance(CLAIM, TimingClaim)
    for claim in (claims.TimeGrowth(), claims.TimeExponent(at_most=formula(1, Unit.RATIO))):
        assert isinstance(claim, GrowthClaim)
        assert not isinstance(claim, TimingClaim)
    assert not isinstance(CLAIM, GrowthClaim)


def test_a_program_that_does_not_compile_is_not_timed() -> None:
    with pytest.raises(Stopped):
        CLAIM.turns(case(failure=failure()))


def test_turns_go_on_until_they_decide() -> None:
    turns = CLAIM.turns(case())
    assert (turns.fewest, turns.most) == (12, 1536)
    enough = turns.enough
    reference = [1.0] * LOOKS[0]
    assert enough(reference, noisy(1.5, 0.01, LOOKS[0]))
    assert enough(reference, noisy(0.9, 0.01, LOOKS[0]))
    assert not enough(reference, noisy(1.0, 0.5, LOOKS[0]))
    assert not enough(reference[:-2], noisy(1.5, 0.01, LOOKS[0] - 2))
    assert enough([1.0], [10.0])
    assert not enough([10.0], [1.0])


def test_another_question_has_times_of_its_own() -> None:
    twice = replace(CLAIM, at_most=formula(2, Unit.RATIO))
    assert twice.turns(case()).question != CLAIM.turns(case()).question
    assert replace(CLAIM).turns(case()).question == CLAIM.turns(case()).question


def test_the_question_names_the_limit_and_both_changes() -> None:
    assert CLAIM.turns(case()).question == "at most 1, 0.02 to 0.05"
    traced = claims.TraceTimeRatio(at_most=formula(2, Unit.RATIO), least_change=0.01)
    assert traced.turns(case()).question == "tracing: at most 2, 0.01 to 0.05"
    assert (CLAIM.turns(case()).limit, traced.turns(case()).limit) == (1, 2)


def test_a_wide_interval_below_the_line_is_no_pass() -> None:
    samples = noisy(0.8, 0.195, pairs=12, seed=1)
    found = ratio_of_turns([1.0] * 12, samples, Sensitivity(least=0.02, seen=0.05))
    assert found.low < 0.7
    assert 1.03 < found.high < 1.05
    assert judge(CLAIM, timed(*samples)).outcome is Outcome.INCONCLUSIVE
