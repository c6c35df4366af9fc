"""How a cost grows with a size: the exponent, and how sure it is."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.scaling import Growth, fitted_exponent, grows

SIZES = [128, 256, 512, 1024, 2048]


@given(st.floats(-3, 3), st.floats(1e-3, 1e3))
def test_a_power_law_gives_its_exponent(power: float, scale: float) -> None:
    found = fitted_exponent(SIZES, [scale * size**power for size in SIZES])
    assert found.value == pytest.approx(power, abs=1e-9)
    assert found.low == pytest.approx(found.high, abs=1e-6)
    assert found.worst == pytest.approx(1, abs=1e-9)


def test_a_quadratic_cost_is_beyond_a_linear_limit_and_a_linear_one_within() -> None:
    linear, quadratic = [3 * n for n in SIZES], [n * n for n in SIZES]
    assert grows(fitted_exponent(SIZES, linear), at_most=1, slack=0.1) is Growth.WITHIN
    assert grows(fitted_exponent(SIZES, quadratic), at_most=1, slack=0.1) is Growth.BEYOND


def test_an_interval_that_ends_at_the_limit_lies_within() -> None:
    found = fitted_exponent(SIZES, [1] * 5)
    ends = replace(found, low=1.0, high=1.5)
    assert grows(ends, at_most=1.0, slack=0.5) is Growth.WITHIN
    assert grows(replace(ends, low=1.5, high=2.0), at_most=1.0, slack=0.5) is Growth.CANNOT_SAY


def test_a_cost_of_nothing_does_not_grow() -> None:
    found = fitted_exponent(SIZES, [0, 0, 0, 0, 0])
    assert (found.value, found.low, found.high) == (0, 0, 0)
    assert grows(found, at_most=0, slack=0) is Growth.WITHIN


def test_too_few_sizes_say_nothing() -> None:
    found = fitted_exponent([128, 256, 512], [1, 4, 16])
    assert found.value == pytest.approx(2)
    assert found.reason == "too few sizes: 3, wanted at least 4 different ones"
    assert grows(found, at_most=1, slack=0.1) is Growth.CANNOT_SAY


def test_the_same_size_again_is_no_further_size() -> None:
    found = fitted_exponent([128, 128, 256, 256, 512], [1, 1, 2, 2, 4])
    assert found.sizes == 3
    assert grows(found, at_most=1, slack=0.1) is Growth.CANNOT_SAY


def test_noise_that_could_hide_the_limit_says_nothing() -> None:
    found = fitted_exponent(SIZES, [1, 9, 2, 20, 5])
    assert found.low < 1.1 < found.high
    assert grows(found, at_most=1, slack=0.1) is Growth.CANNOT_SAY


def test_the_interval_is_students_own() -> None:
    """Held against scipy's regression: slope ± t(0.995, 3) times its error."""
    from scipy.stats import linregress, t

    costs = [1.0, 2.1, 3.7, 8.5, 15.0]
    line = linregress(np.log(SIZES), np.log(costs))
    found = fitted_exponent(SIZES, costs)
    half = t.ppf(0.995, 3) * line.stderr
    assert (found.low, found.high) == pytest.approx((line.slope - half, line.slope + half))


def test_a_cost_that_follows_no_power_shows_how_far_off_it_lies() -> None:
    found = fitted_exponent(SIZES, [1000 + n * n / 1000 for n in SIZES])
    assert found.worst > 1.2


MANY = [16, 24, 32, 48, 64, 80, 112, 144]


@given(st.floats(-2, 2), st.floats(-0.5, 0.5))
def test_of_a_cost_that_bends_the_chord_is_told(power: float, bend: float) -> None:
    """As many times more at the largest size as at the smallest, whatever lies between."""
    across = np.log(MANY)
    costs = np.exp(power * across + bend * across**2)
    chord = np.log(costs[-1] / costs[0]) / (across[-1] - across[0])
    found = fitted_exponent(MANY, list(costs))
    assert found.value == pytest.approx(chord, abs=1e-9)
    assert found.low == pytest.approx(found.high, abs=1e-6)


def test_a_fixed_cost_beside_one_that_grows_does_not_hide_it() -> None:
    found = fitted_exponent(MANY, [150 + 6.9 * n for n in MANY])
    assert grows(found, at_most=0.5, slack=0) is Growth.BEYOND
    touched_once = fitted_exponent(MANY, [170 + 1.1 * n for n in MANY])
    assert grows(touched_once, at_most=0.5, slack=0) is Growth.WITHIN


def test_a_cache_that_is_left_does_not_hide_a_copy() -> None:
    """Microseconds of `barrier`, the negative control and an update in place on jax 0.10.2."""
    for seconds in (
        [2114, 2513, 2238, 3769, 4601, 6276, 14880, 28122],
        [1299, 1521, 1478, 2276, 2790, 3017, 4743, 6225],
    ):
        assert grows(fitted_exponent(MANY, seconds), at_most=0.5, slack=0) is Growth.BEYOND
    in_place = fitted_exponent(MANY, [246, 240, 247, 282, 245, 247, 253, 276])
    assert grows(in_place, at_most=0.5, slack=0) is Growth.WITHIN


@given(st.permutations(range(5)))
def test_the_order_of_sizes_changes_nothing(order: list[int]) -> None:
    costs = [1.0, 2.1, 3.7, 8.5, 15.0]
    one = fitted_exponent(SIZES, costs)
    other = fitted_exponent([SIZES[k] for k in order], [costs[k] for k in order])
    assert (other.low, other.high) == pytest.approx((one.low, one.high))


@pytest.mark.parametrize(
    ("sizes", "costs", "said"),
    [
        ([1, 2, 3], [1, 2], "got 3 sizes and 2 costs, wanted a cost for every size"),
        ([], [], "got 0 sizes, wanted at least 2"),
        ([8, 8, 8, 8], [1, 2, 3, 4], "got one size only, wanted several"),
        ([0, 1, 2, 3], [1, 2, 3, 4], "got 0.0 among sizes, wanted positive"),
        ([1, 2, 3, 4], [0, 2, 3, 4], "got 0.0 among costs, wanted positive"),
        ([1, 2, 3, 4], [1, 2, 3, math.nan], "got nan among costs"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    sizes: list[float], costs: list[float], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        fitted_exponent(sizes, costs)
