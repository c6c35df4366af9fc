"""Two toolchains run side by side: processes vary, and samples of one process do not show it."""

import numpy as np
import pytest

from assay.model.timing import Change
from assay.stats.processes import (
    PAIR_LOOKS,
    TURNS_OF_A_PAIR,
    Turns,
    more_pairs,
    random_effects,
    ratio_of_processes,
)
from assay.stats.ratios import ratio_of_turns
from tests.stats.noisy import turns


def processes(
    ratio: float, seed: int, *, layout: float = 0.004, count: int = 12, busy: float = 0.2
) -> list[Turns]:
    """Pairs of processes, each slower or faster by where its memory happens to lie."""
    chance = np.random.default_rng(seed)
    pairs = []
    for k in range(count):
        ours, theirs = np.exp(chance.normal(0, layout, 2))
        first, second = turns(ratio, 1000 * seed + k, pairs=TURNS_OF_A_PAIR, busy=busy)
        pairs.append(Turns(first=[ours * s for s in first], second=[theirs * s for s in second]))
    return pairs


def sequential(pairs: list[Turns]) -> Change:
    taken = PAIR_LOOKS[0]
    while more := more_pairs(pairs[:taken]):
        taken += more
    return ratio_of_processes(pairs[:taken]).change


def test_a_toolchain_is_no_slower_than_itself_however_often_one_looks() -> None:
    verdicts = [sequential(processes(1.0, seed)) for seed in range(50)]
    assert set(verdicts) <= {Change.SAME, Change.TOO_NOISY}
    assert verdicts.count(Change.SAME) >= 40


def test_a_toolchain_five_per_cent_slower_is_found() -> None:
    assert [sequential(processes(1.05, seed)) for seed in range(50)].count(Change.SLOWER) >= 45


def test_what_two_processes_differ_by_is_not_the_toolchains_doing() -> None:
    """One pair in four is 10 % slower: by its samples alone, beyond any doubt."""
    *even, last = processes(1.0, 1, count=4)
    odd = Turns(first=last.first, second=[1.1 * s for s in last.second])
    assert ratio_of_turns(odd.first, odd.second).change is Change.SLOWER
    assert ratio_of_processes([*even, odd]).change is not Change.SLOWER


def test_processes_that_differ_more_than_what_is_looked_for_are_too_noisy() -> None:
    verdicts = [sequential(processes(1.0, seed, layout=0.1)) for seed in range(50)]
    assert verdicts.count(Change.TOO_NOISY) >= 45


def test_a_slowdown_of_most_runs_is_found_though_the_fastest_are_as_fast() -> None:
    pairs = [
        Turns(
            first=pair.first,
            second=[s * (1.15 if place % 4 else 1.0) for place, s in enumerate(pair.second)],
        )
        for pair in processes(1.0, 2, busy=0.0)
    ]
    assert ratio_of_processes(pairs).change is Change.SLOWER


def test_swapping_the_toolchains_mirrors_the_verdict() -> None:
    pairs = processes(1.05, 4)
    swapped = [Turns(first=pair.second, second=pair.first) for pair in pairs]
    one, other = ratio_of_processes(pairs), ratio_of_processes(swapped)
    assert (one.change, other.change) == (Change.SLOWER, Change.FASTER)
    assert (other.low, other.high) == pytest.approx((1 / one.high, 1 / one.low))


def test_the_order_of_processes_changes_nothing() -> None:
    pairs = processes(1.02, 5)
    one, other = ratio_of_processes(pairs), ratio_of_processes(pairs[::-1])
    assert (other.low, other.high) == pytest.approx((one.low, one.high))


def test_a_pair_that_a_neighbour_disturbed_weighs_little() -> None:
    centers, errors = np.array([0.05, 0.05, 0.05, 0.3]), np.array([0.001, 0.001, 0.001, 0.3])
    center, half = random_effects(centers, errors, 0.05)
    assert center == pytest.approx(0.05, abs=1e-3)
    assert half < 0.01
    evenly, wide = random_effects(centers, np.full(4, 0.001), 0.05)
    assert evenly == pytest.approx(centers.mean(), abs=1e-3)
    assert wide > 0.1


def test_the_mean_of_studies_is_dersimonian_and_lairds() -> None:
    """Thirteen trials of a vaccine, whose mean is -0.7141 in metafor's documentation (``dat.bcg``).

    The interval is Hartung's and Knapp's: 2.2 % wider than Student's, for the trials scatter.
    """
    risks = (-0.8893, -1.5854, -1.3481, -1.4416, -0.2175, -0.7861, -1.6209, 0.0120, -0.4694)
    variances = (0.3256, 0.1946, 0.4154, 0.0200, 0.0512, 0.0069, 0.2230, 0.0040, 0.0564)
    risks = (*risks, -1.3713, -0.3394, 0.4459, -0.0173)
    variances = (*variances, 0.0730, 0.0124, 0.5325, 0.0714)
    center, half = random_effects(np.array(risks), np.sqrt(variances), 0.05)
    assert center == pytest.approx(-0.7141, abs=1e-4)
    assert half == pytest.approx(0.3937, abs=1e-4)


def test_the_interval_is_that_which_the_error_rate_was_measured_with() -> None:
    """The error rate is shared among four looks and a separation, and by three views of each."""
    found = ratio_of_processes(processes(1.02, 7))
    assert (found.low, found.high) == pytest.approx((1.0171839493, 1.0249925016), rel=1e-9)


def test_alike_pairs_still_leave_their_own_noise() -> None:
    """By chance alone, estimates may agree better than their errors allow."""
    _, half = random_effects(np.full(3, 0.01), np.full(3, 0.02), 0.05)
    assert half == pytest.approx(4.303 * 0.02 / 3**0.5, rel=1e-3)


def test_one_pair_of_processes_decides_only_what_is_far_apart() -> None:
    assert ratio_of_processes(processes(1.5, 6, count=1)).change is Change.TOO_NOISY
    found = ratio_of_processes([Turns(first=[0.05], second=[23.0])])
    assert (found.change, found.ratio, found.units) == (Change.SLOWER, pytest.approx(460), 1)
    assert more_pairs([Turns(first=[0.05], second=[23.0])]) == 0
    assert more_pairs(processes(1.5, 6, count=1)) == PAIR_LOOKS[0] - 1


def test_pairs_of_few_turns_do_not_count() -> None:
    short = Turns(first=[1.0] * 7, second=[1.0] * 7)
    assert ratio_of_processes([short] * 4).change is Change.TOO_NOISY


def test_pairs_are_started_until_they_decide() -> None:
    assert more_pairs([]) == PAIR_LOOKS[0]
    assert more_pairs(processes(1.2, 7, count=4)) == 0
    noisy = processes(1.0, 8, layout=0.3)
    assert more_pairs(noisy[:4]) == PAIR_LOOKS[1] - 4
    assert more_pairs(noisy) == 0


def test_two_pairs_of_processes_give_an_interval_and_one_gives_none() -> None:
    one, two = processes(1.0, 1, count=1), processes(1.0, 1, count=2)
    assert ratio_of_processes(one).low == 0
    assert 0 < ratio_of_processes(two).low < ratio_of_processes(two).high < float("inf")
