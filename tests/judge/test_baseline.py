"""A baseline is exact on its own toolchain, and an upper bound on a later one."""

import pytest

from assay.judge.baseline import against_baseline
from assay.model.units import Quantity, Unit
from assay.model.verdict import BaselineNumber, Outcome

MINE = {"jaxlib": "0.10.2"}
OTHER = {"jaxlib": "0.9"}


def outcome_of(measured: float, baseline: float, on: dict[str, str], tolerance: float) -> Outcome:
    number = BaselineNumber(value=baseline, toolchain=on)
    finding = against_baseline(Quantity(measured, Unit.BYTES), number, MINE, tolerance)
    assert (finding.measured, finding.limit) == (measured, baseline)
    return finding.outcome


@pytest.mark.parametrize("tolerance", [0.0, 0.5])
@pytest.mark.parametrize(
    ("measured", "outcome"),
    [(999, Outcome.IMPROVED), (1000, Outcome.PASSED), (1001, Outcome.FAILED)],
)
def test_the_exact_toolchain_is_strict_both_ways_whatever_the_tolerance(
    measured: int, outcome: Outcome, tolerance: float
) -> None:
    assert outcome_of(measured, 1000, MINE, tolerance) is outcome


@pytest.mark.parametrize(
    ("measured", "outcome"),
    [
        (899, Outcome.IMPROVED),
        (900, Outcome.PASSED),
        (1000, Outcome.PASSED),
        (1100, Outcome.PASSED),
        (1101, Outcome.FAILED),
    ],
)
def test_another_toolchain_has_the_tolerance_both_ways(measured: int, outcome: Outcome) -> None:
    assert outcome_of(measured, 1000, OTHER, 0.1) is outcome


def test_small_steps_are_counted_from_the_best_number() -> None:
    """Each of these is within 1 % of the one before it, but the last is not of the best one."""
    thousand, best, newest = (
        BaselineNumber(value=value, toolchain={"jaxlib": version})
        for value, version in ((1000, "0.8"), (900, "0.9"), (905, "0.10"))
    )
    earlier = (thousand, best, newest)
    finding = against_baseline(Quantity(912, Unit.BYTES), newest, MINE, 0.01, earlier)
    assert (finding.outcome, finding.limit) == (Outcome.FAILED, 900)


@pytest.mark.parametrize("on", [MINE, OTHER])
def test_growth_from_nothing_is_never_within_tolerance(on: dict[str, str]) -> None:
    assert outcome_of(1, 0, on, 0.5) is Outcome.FAILED
    assert outcome_of(0, 0, on, 0.5) is Outcome.PASSED


def test_a_number_never_stored_fails_and_says_how_to_store_it() -> None:
    finding = against_baseline(Quantity(1024, Unit.BYTES), None, MINE, 0.0)
    assert (finding.outcome, finding.measured, finding.limit) == (Outcome.FAILED, 1024, None)
    assert "1.0 KiB" in finding.reason
    assert finding.advice == "store it with --assay-update-baselines=new"


def test_the_reason_names_the_toolchain_and_the_gap() -> None:
    number = BaselineNumber(value=1024, toolchain={"libtpu": "0.0.51", "jaxlib": "0.9"})
    finding = against_baseline(Quantity(3072, Unit.BYTES), number, MINE, 0.0)
    assert finding.reason == (
        "measured 3.0 KiB, baseline 1.0 KiB on jaxlib 0.9, libtpu 0.0.51: "
        "2.0 KiB more than the baseline"
    )
    assert "--assay-update-baselines=all" in finding.advice


def test_an_improvement_asks_to_be_stored_and_a_passed_number_asks_nothing() -> None:
    number = BaselineNumber(value=1000, toolchain=MINE)
    better = against_baseline(Quantity(1, Unit.COUNT), number, MINE, 0.0)
    assert "--assay-update-baselines=all" in better.advice
    same = against_baseline(Quantity(1000, Unit.COUNT), number, MINE, 0.0)
    assert same.advice == ""
    assert same.reason == "measured 1,000, baseline 1,000 on this toolchain: equal to the baseline"
