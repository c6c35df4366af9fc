"""A measurement stands to its limit exactly, in one unit."""

import pytest

from assay.judge.baseline import Relation, compared
from assay.model.units import Quantity, Unit, UnitError
from assay.model.verdict import Outcome


def outcome(measured: Quantity, relation: Relation, limit: Quantity) -> Outcome:
    return compared("", measured, relation, limit, "").outcome


@pytest.mark.parametrize(
    ("relation", "below", "equal", "above"),
    [
        (Relation.EQUAL, False, True, False),
        (Relation.AT_MOST, True, True, False),
        (Relation.AT_LEAST, False, True, True),
    ],
)
def test_a_relation_holds_exactly(
    *, relation: Relation, below: bool, equal: bool, above: bool
) -> None:
    limit = Quantity(10, Unit.BYTES)
    held = [outcome(Quantity(value, Unit.BYTES), relation, limit) for value in (9, 10, 11)]
    assert held == [Outcome.PASSED if holds else Outcome.FAILED for holds in (below, equal, above)]


@pytest.mark.parametrize("relation", list(Relation))
def test_equal_numbers_of_two_units_do_not_compare(relation: Relation) -> None:
    with pytest.raises(UnitError, match="one unit"):
        outcome(Quantity(1, Unit.BYTES), relation, Quantity(1, Unit.COUNT))


@pytest.mark.parametrize("relation", list(Relation))
def test_a_value_that_is_no_number_holds_nothing(relation: Relation) -> None:
    nan = Quantity(float("nan"), Unit.RATIO)
    assert outcome(nan, relation, nan) is Outcome.FAILED


@pytest.mark.parametrize(
    ("measured", "line"),
    [
        (2048, "host memory: 2.0 KiB, expected = 2.0 KiB (the stack)"),
        (2049, "host memory: 2.001 KiB, expected = 2.0 KiB (the stack); 1 B too much"),
        (1024, "host memory: 1.0 KiB, expected = 2.0 KiB (the stack); 1.0 KiB too little"),
    ],
)
def test_the_explanation_names_the_gap_and_its_side(measured: int, line: str) -> None:
    finding = compared(
        "host memory",
        Quantity(measured, Unit.BYTES),
        Relation.EQUAL,
        Quantity(2048, Unit.BYTES),
        "the stack",
    )
    assert finding.reason == line
