"""Two programs timed in turns: what noise cannot pretend, and what it cannot hide."""

import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from assay.model.timing import Change, Sensitivity
from assay.stats.ratios import (
    LOOKS,
    SOME_RUNS,
    agreed,
    calm_differences,
    judged,
    logarithms,
    ratio_of_turns,
    signed_rank_interval,
)
from tests.stats.noisy import turns

SHAPES = {
    "quiet": {},
    "jitter": {"jitter": 0.03},
    "drift": {"drift": 0.5},
    "busy": {"busy": 0.4},
    "outliers": {"outliers": 0.1},
    "coarse clock": {"tick": 1e-4},
    "all of it": {"jitter": 0.02, "drift": 0.3, "busy": 0.3, "outliers": 0.05, "tick": 1e-5},
}
OPPOSITE = {
    Change.SLOWER: Change.FASTER,
    Change.FASTER: Change.SLOWER,
    Change.SAME: Change.SAME,
    Change.TOO_NOISY: Change.TOO_NOISY,
}


def sequential(ratio: float, seed: int, **shape: float) -> Change:
    """The verdict of the first look that decides."""
    first, second = turns(ratio, seed, pairs=LOOKS[-1], **shape)
    looks = (ratio_of_turns(first[:pairs], second[:pairs]).change for pairs in LOOKS)
    return next((change for change in looks if change is not Change.TOO_NOISY), Change.TOO_NOISY)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_program_is_no_slower_than_itself_however_often_one_looks(
    shape: dict[str, float],
) -> None:
    verdicts = [sequential(1.0, seed, **shape) for seed in range(50)]
    assert Change.SLOWER not in verdicts
    assert Change.FASTER not in verdicts
    assert verdicts.count(Change.SAME) >= 40


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_five_per_cent_more_work_is_found(shape: dict[str, float]) -> None:
    verdicts = [sequential(1.05, seed, **shape) for seed in range(50)]
    assert verdicts.count(Change.SLOWER) >= 45


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_five_per_cent_less_work_is_found(shape: dict[str, float]) -> None:
    assert [sequential(1 / 1.05, seed, **shape) for seed in range(20)].count(Change.FASTER) >= 18


def test_a_few_very_slow_runs_change_no_verdict_though_they_change_the_mean() -> None:
    first, second = turns(1.0, 3)
    for place in (5, 20, 40):
        second[place] *= 30
    assert statistics.mean(second) / statistics.mean(first) > 2
    assert ratio_of_turns(first, second).change is Change.SAME


def test_a_slowdown_is_not_hidden_by_a_few_very_slow_runs_of_the_first() -> None:
    first, second = turns(1.06, 3)
    for place in (5, 20, 40):
        first[place] *= 30
    assert statistics.mean(second) < statistics.mean(first)
    assert ratio_of_turns(first, second).change is Change.SLOWER


def test_a_machine_that_slows_down_meanwhile_slows_neither_program() -> None:
    first, second = turns(1.0, 4, drift=1.0)
    assert statistics.median(first[32:]) > 1.3 * statistics.median(first[:32])
    assert ratio_of_turns(first, second).change is Change.SAME
    # The same samples as two runs after one another, as a stored number has them:
    blocks = ratio_of_turns(first[:32], second[32:])
    assert blocks.change is not Change.SAME


def test_where_every_sample_is_disturbed_it_is_too_noisy_to_say() -> None:
    first, second = turns(1.0, 5, jitter=0.8, pairs=24)
    assert ratio_of_turns(first, second).change is Change.TOO_NOISY


def test_a_slowdown_of_most_runs_is_found_though_the_fastest_are_as_fast() -> None:
    first, second = turns(1.0, 6)
    second = [seconds * (1.15 if place % 4 else 1.0) for place, seconds in enumerate(second)]
    found = ratio_of_turns(first, second)
    assert min(second) / min(first) < 1.01
    assert found.change is Change.SLOWER
    assert found.reason == SOME_RUNS
    assert found.low > 1.05


@pytest.mark.parametrize(("first", "second"), [(0.02, 0.05), (0.05, 0.02), (0.05, 0.1)])
def test_a_program_is_not_faster_for_varying_more(first: float, second: float) -> None:
    random = np.random.default_rng(0)
    changes = [
        ratio_of_turns(
            np.exp(random.normal(0, first, 64)).tolist(),
            np.exp(random.normal(0, second, 64)).tolist(),
        ).change
        for _ in range(200)
    ]
    changed = [change for change in changes if change in {Change.FASTER, Change.SLOWER}]
    assert len(changed) <= 2, "a false alarm in a hundred; 39 when calm pairs alone decided"


def test_views_that_contradict_each_other_decide_nothing_alone() -> None:
    assert agreed((0.1, 0.2), (-0.01, 0.0)) == (-0.01, 0.2)
    assert agreed((0.0, 0.2), (0.1, 0.3)) == (0.1, 0.2)


@pytest.mark.parametrize(
    ("low", "high", "change"),
    [
        (0.021, 0.09, Change.SLOWER),
        (0.019, 0.09, Change.TOO_NOISY),
        (-0.09, -0.021, Change.FASTER),
        (0.021, 0.5, Change.TOO_NOISY),
        (0.17, 0.5, Change.SLOWER),
        (0.16, 0.5, Change.TOO_NOISY),
        (-0.5, -0.17, Change.FASTER),
        (0.021, 0.022, Change.SLOWER),
        (0.0, 0.03, Change.SAME),
        (0.0, 0.05, Change.TOO_NOISY),
        (-0.05, 0.0, Change.TOO_NOISY),
        (-math.inf, math.inf, Change.TOO_NOISY),
    ],
)
def test_a_change_must_be_beyond_doubt_and_large_enough(
    low: float, high: float, change: Change
) -> None:
    assert judged(((low + high) / 2, (low, high)), 9, Sensitivity()).change is change


def test_a_ratio_is_judged_against_what_is_wanted() -> None:
    first, second = turns(0.5, 7)
    assert ratio_of_turns(first, second, against=0.7).change is Change.FASTER
    assert ratio_of_turns(first, second, against=0.4).change is Change.SLOWER
    assert ratio_of_turns(first, second, against=0.5).change is Change.SAME


def test_as_wide_as_what_is_looked_for_is_not_too_noisy() -> None:
    double = Sensitivity(least=0.02, seen=math.expm1(1.0))
    assert judged((1.5, (0.5, 2.5)), 9, double).change is Change.SLOWER
    assert judged((1.5, (0.499, 2.501)), 9, double).change is Change.TOO_NOISY


def test_single_precision_is_judged_in_double() -> None:
    found = logarithms(np.array([1.0, 3.0], np.float32), "samples")  # type: ignore[arg-type]
    assert found.tolist() == [0.0, math.log(3.0)]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ([], [], "got 0 samples, wanted at least 1.*take more"),
        ([1.0, 1.0], [1.0], "got 2 and 1 samples, wanted equal numbers.*drop"),
        ([1.0, 0.0], [1.0, 1.0], "got 0.0 among samples, wanted positive.*several runs as one"),
        ([1.0, -1.0], [1.0, 1.0], "got -1.0 among samples"),
        ([1.0, math.nan], [1.0, 1.0], "got nan among samples"),
        ([1.0, math.inf], [1.0, 1.0], "got inf among samples"),
    ],
)
def test_what_is_no_measurement_is_refused(
    first: list[float], second: list[float], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        ratio_of_turns(first, second)


@pytest.mark.parametrize(("least", "seen"), [(-0.1, 0.1), (0.05, 0.05), (0.1, 0.05)])
def test_a_sensitivity_that_cannot_be_is_refused(least: float, seen: float) -> None:
    with pytest.raises(ValueError, match="wanted 0 <= least < seen; give both"):
        Sensitivity(least=least, seen=seen)


@pytest.mark.parametrize("errors", [0.0, 1.0, -1.0])
def test_an_error_rate_that_is_none_is_refused(errors: float) -> None:
    with pytest.raises(ValueError, match="wanted a share between 0 and 1"):
        Sensitivity(errors=errors)


def test_identical_samples_are_the_same() -> None:
    found = ratio_of_turns([0.01] * 12, [0.01] * 12)
    assert (found.ratio, found.low, found.high, found.change) == (1.0, 1.0, 1.0, Change.SAME)


def test_too_few_pairs_say_nothing_however_alike() -> None:
    assert ratio_of_turns([0.01] * 8, [0.01] * 8).change is Change.TOO_NOISY


def test_the_interval_is_wilcoxons_own() -> None:
    """Ends of the 95.2 % interval of ten differences: the 9th average from either end."""
    differences = np.array([0.1, -0.4, 1.3, 0.8, 2.2, -1.1, 0.5, 1.9, -0.2, 0.7])
    averages = sorted(
        (differences[i] + differences[j]) / 2 for i in range(10) for j in range(i, 10)
    )
    center, (low, high) = signed_rank_interval(differences, 0.05)
    assert (low, high) == pytest.approx((averages[8], averages[-9]))
    assert center == pytest.approx(statistics.median(averages))


def cut_of(count: int, errors: float) -> int:
    """How many of the sorted averages lie below the interval of so many differences."""
    differences = np.random.default_rng(count).normal(size=count)
    rows, columns = np.triu_indices(count)
    averages = np.sort((differences[rows] + differences[columns]) / 2)
    low, high = signed_rank_interval(differences, errors)[1]
    cut = int(np.searchsorted(averages, low)) + 1
    assert (low, high) == (averages[cut - 1], averages[-cut])
    return cut


@pytest.mark.parametrize(("count", "errors"), [(7, 6 / 2**7), (10, 0.05), (24, 1e-3), (256, 1e-3)])
def test_up_to_256_pairs_the_error_is_exact(count: int, errors: float) -> None:
    """Counts the sets of ranks with each sum, in whole numbers."""
    sets = np.array([1], dtype=object)
    for rank in range(1, count + 1):
        none = np.array([0] * rank, dtype=object)
        sets = np.append(sets, none) + np.append(none, sets)
    most = int(Fraction(errors) / 2 * 2**count)
    assert cut_of(count, errors) == np.count_nonzero(np.cumsum(sets) <= most)


@pytest.mark.parametrize("count", [257, 300])
def test_of_more_pairs_the_rank_sum_is_taken_as_normal(count: int) -> None:
    """A rank is in the sum with a chance of one half, so its variance is a quarter square."""
    ranks = np.arange(1, count + 1)
    spread = math.sqrt(np.sum(ranks**2) / 4)
    assert cut_of(count, 0.005) == math.floor(norm.ppf(0.005 / 2, ranks.sum() / 2, spread))


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    chance = np.random.default_rng(0)
    missed = 0
    for _ in range(2000):
        low, high = signed_rank_interval(chance.standard_t(2, 16), 0.1)[1]
        missed += not low <= 0 <= high
    assert 0.06 < missed / 2000 < 0.12


seconds = st.floats(1e-6, 1e3)
paired = st.lists(st.tuples(seconds, seconds), min_size=2, max_size=40)


@given(paired)
def test_swapping_the_programs_mirrors_the_verdict(pairs: list[tuple[float, float]]) -> None:
    first, second = (list(side) for side in zip(*pairs, strict=True))
    one, other = ratio_of_turns(first, second), ratio_of_turns(second, first)
    assert other.change is OPPOSITE[one.change]
    assert other.ratio == pytest.approx(1 / one.ratio)
    assert (other.low, other.high) == pytest.approx((1 / one.high, _inverse(one.low)))


def _inverse(bound: float) -> float:
    return 1 / bound if bound else math.inf


@given(st.integers(0, 1000), st.integers(-20, 20))
def test_the_unit_of_time_changes_nothing(seed: int, power: int) -> None:
    first, second = turns(1.03, seed, busy=0.2)
    scale = 2.0**power
    one = ratio_of_turns(first, second)
    other = ratio_of_turns([scale * each for each in first], [scale * each for each in second])
    assert (other.low, other.high) == pytest.approx((one.low, one.high))
    assert other.change is one.change


@given(st.permutations(range(23)))
def test_below_24_pairs_their_order_changes_nothing(order: list[int]) -> None:
    first, second = turns(1.03, 1, pairs=23, busy=0.3)
    one = ratio_of_turns(first, second)
    other = ratio_of_turns([first[k] for k in order], [second[k] for k in order])
    assert other == one


def test_the_calm_half_is_kept_whichever_program_was_slower() -> None:
    first, second = [1.0] * 12 + [9.0] * 12, [1.1] * 12 + [2.0] * 12
    assert calm_differences(first, second) == pytest.approx([math.log(1.1)] * 12)
    assert calm_differences(second, first) == pytest.approx([-math.log(1.1)] * 12)


@pytest.mark.parametrize(("pairs", "kept"), [(8, 8), (12, 12), (23, 12), (25, 13), (64, 32)])
def test_of_few_pairs_all_or_twelve_are_kept(pairs: int, kept: int) -> None:
    assert len(calm_differences([1.0] * pairs, [1.0] * pairs)) == kept


def test_one_pair_far_apart_decides() -> None:
    assert ratio_of_turns([1.0], [100.0]).change is Change.SLOWER


def test_far_below_a_large_limit_is_faster_though_it_takes_longer() -> None:
    found = ratio_of_turns([1.0] * 3, [2.0] * 3, against=1000.0)
    assert (found.change, found.ratio) == (Change.FASTER, pytest.approx(2.0))


def test_the_looks_are_those_that_the_error_rate_was_measured_with() -> None:
    assert LOOKS == (12, 16, 24, 32, 48, 64, 96, 128, 192, 384, 768, 1536)


def test_the_errors_are_shared_by_every_look_and_a_last_one() -> None:
    first, second = turns(1.0, 1, pairs=192, jitter=0.3)
    found = ratio_of_turns(first, second)
    assert found == ratio_of_turns(first, second, looks=len(LOOKS) + 1)
    once = ratio_of_turns(first, second, looks=1)
    assert found.low < once.low < once.high < found.high


def test_the_interval_is_that_which_the_error_rate_was_measured_with() -> None:
    """Of 64 pairs half of which are disturbed; minimum times of two neighbours bound it below."""
    found = ratio_of_turns(*turns(1.02, 7, busy=0.5))
    assert (found.low, found.high) == pytest.approx((1.0190218575, 1.0202690716), rel=1e-9)
