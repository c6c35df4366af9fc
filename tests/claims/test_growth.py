"""What two lengths' times say of growth: nearer to none of it, to all of it, or cannot say."""

from dataclasses import replace

import pytest

from assay import claims
from assay.judge.case import judge
from assay.model.evidence import GrowthTimes
from assay.model.verdict import Finding, Outcome

from .cases import case, growth


def _judged(times: GrowthTimes) -> Finding:
    return judge(claims.TimeGrowth(), case(growth=times))


def test_it_tells_the_ratio_its_interval_and_the_limit() -> None:
    finding = _judged(growth(short=0.001, long=0.006))
    assert finding.outcome is Outcome.FAILED
    assert finding.measured == pytest.approx(6 / 8)
    assert finding.limit == pytest.approx(8**-0.5)
    assert "6 × the time at 8 × the length (64 and 8): 6 / 8 = 0.75" in finding.reason
    assert finding.reason.endswith("fastest runs: 6 ms and 1 ms")
    assert "0.75 (0.75 to 0.75 from 7 pairs), expected at most 0.354" in finding.reason


def test_of_several_lengths_the_shortest_and_the_longest_count() -> None:
    seconds = ((1.0,) * 7, (9.0,) * 7, (2.0,) * 7)
    finding = _judged(GrowthTimes(lengths=(8, 16, 64), seconds=seconds))
    assert (finding.outcome, finding.measured) == (Outcome.PASSED, pytest.approx(2 / 8))


def test_growth_of_just_the_square_root_passes_the_claim() -> None:
    times = GrowthTimes(lengths=(4, 16), seconds=((1.0,) * 7, (2.0,) * 7))
    assert _judged(times).outcome is Outcome.PASSED


def test_turns_on_both_sides_of_the_line_do_not_decide() -> None:
    times = growth(short=1.0, long=2.8)
    wild = [long * by for long, by in zip(times.seconds[1], [0.5, 2] * 4, strict=False)]
    finding = _judged(replace(times, seconds=(times.seconds[0], tuple(wild))))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.reason.startswith("too noisy to decide")
    assert "quieter machine" in finding.advice


def test_a_fastest_turn_beyond_the_line_does_not_decide() -> None:
    """Of seven turns it leaves the rest in doubt, of more it does not."""
    times = growth(short=1.0, long=6.0)
    short, long = times.seconds
    lucky = (2.0, *long[1:])
    assert _judged(replace(times, seconds=(short, lucky))).outcome is Outcome.INCONCLUSIVE
    often = replace(times, seconds=(short * 3, lucky + long * 2))
    assert _judged(often).outcome is Outcome.FAILED


def test_few_turns_decide_only_what_is_far_from_the_line() -> None:
    near, far = (growth(short=1.0, long=long) for long in (4.0, 30.0))
    assert _judged(near).outcome is Outcome.FAILED
    assert _judged(_of_turns(near, 3)).outcome is Outcome.INCONCLUSIVE
    assert _judged(_of_turns(far, 1)).outcome is Outcome.FAILED
    assert _judged(_of_turns(growth(short=1.0, long=1.1), 1)).outcome is Outcome.INCONCLUSIVE


def _of_turns(times: GrowthTimes, count: int) -> GrowthTimes:
    return replace(times, seconds=tuple(seconds[:count] for seconds in times.seconds))
