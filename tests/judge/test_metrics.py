"""A metric that went missing, or turned round, is a failure and not a smaller comparison."""

import pytest

from assay.judge.changes import Better
from assay.judge.metrics import Metric, unmatched
from assay.model.units import Unit

TIME = Metric(name="step", unit=Unit.SECONDS)
BYTES = Metric(name="peak", unit=Unit.BYTES)
RATE = Metric(name="rows", unit=Unit.COUNT, better=Better.MORE)


def test_the_same_metrics_are_compared_one_by_one() -> None:
    assert unmatched([TIME, RATE, BYTES], [BYTES, TIME, RATE]) == ()


def test_a_metric_that_was_not_measured_is_named() -> None:
    assert unmatched([TIME], [TIME, BYTES]) == (
        (
            "peak (bytes, less is better) is accepted but was not measured: "
            "measure it, or retire its number"
        ),
    )


def test_a_metric_without_an_accepted_number_is_named() -> None:
    assert unmatched([TIME, BYTES], [TIME]) == (
        "peak (bytes, less is better) was measured but has no accepted number: accept it",
    )


def test_nothing_measured_at_all_is_no_pass() -> None:
    assert len(unmatched([], [TIME, RATE])) == 2


@pytest.mark.parametrize(
    "turned",
    [
        Metric(name="rows", unit=Unit.COUNT, better=Better.LESS),
        Metric(name="rows", unit=Unit.SECONDS, better=Better.MORE),
    ],
)
def test_a_metric_that_turned_round_or_changed_its_unit_is_named(turned: Metric) -> None:
    (line,) = unmatched([turned], [RATE])
    assert line.startswith(f"{turned} was accepted as rows (count, more is better)")
