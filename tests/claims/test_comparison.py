"""A measurement stands to its limit exactly, in one unit."""

import pytest

from assay.model.blame import WrongType
from assay.model.claim import Claim, Relation
from assay.model.units import Unit
from assay.model.verdict import Finding, Outcome

from .cases import case, formula


def compared(measured: float, relation: Relation, limit: float, unit: Unit = Unit.BYTES) -> Finding:
    return Claim()._compare(case(), "host memory", measured, relation, formula(limit, unit))


@pytest.mark.parametrize(
    ("relation", "below", "equal", "above"),
    [
        ("=", False, True, False),
        ("≤", True, True, False),
        ("≥", False, True, True),
    ],
)
def test_a_relation_holds_exactly(
    *, relation: Relation, below: bool, equal: bool, above: bool
) -> None:
    held = [compared(value, relation, 10).outcome is Outcome.PASSED for value in (9, 10, 11)]
    assert held == [below, equal, above]


@pytest.mark.parametrize("relation", ["=", "≤", "≥"])
def test_equal_numbers_of_two_units_do_not_compare(relation: Relation) -> None:
    with pytest.raises(WrongType, match="got a limit of 1 count, wanted bytes"):
        compared(1, relation, 1, Unit.COUNT)


@pytest.mark.parametrize("relation", ["=", "≤", "≥"])
def test_a_value_that_is_no_number_holds_nothing(relation: Relation) -> None:
    nan = float("nan")
    assert compared(nan, relation, nan).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("measured", "line"),
    [
        (2048, "host memory: 2.0 KiB, expected = 2.0 KiB (what the test says)"),
        (2049, "host memory: 2.001 KiB, expected = 2.0 KiB (what the test says); 1 B too much"),
        (
            1024,
            "host memory: 1.0 KiB, expected = 2.0 KiB (what the test says); 1.0 KiB too little",
        ),
    ],
)
def test_the_explanation_names_the_gap_and_its_side(measured: int, line: str) -> None:
    assert compared(measured, "=", 2048).reason == line
