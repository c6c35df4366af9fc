"""What a program copies in loops, outside of them, and of what it was given."""

from dataclasses import replace
from typing import Any

import pytest

from assay import claims
from assay.judge.case import judge
from assay.model.claim import Case, Claim
from assay.model.summary import ModuleSummary
from assay.model.verdict import Finding, Outcome

from .cases import case, donation, formula, full_buffer_write, module, outside

ROW = formula(10)
IN_LOOPS = claims.CopiedBytes(larger_than=ROW)
OUTSIDE = claims.CopiedBytesOutsideLoops(larger_than=ROW)
REUSED = claims.DonatedBytesReused(at_least=formula(20))


def seen(**fields: Any) -> Case:
    return case(module=replace(module(), buffers_assigned=True, **fields))


@pytest.mark.parametrize("claim", [IN_LOOPS, OUTSIDE, REUSED])
def test_without_a_buffer_assignment_nothing_is_judged(claim: Claim) -> None:
    whole: ModuleSummary = replace(module(), full_buffer_writes=(), donations=(donation(20),))
    assert judge(claim, case(module=whole)).outcome is Outcome.INCONCLUSIVE


def test_each_claim_on_copies_counts_its_own_side_of_the_loops() -> None:
    found = (
        full_buffer_write(100),
        outside(1000, executions=2),
        outside(9),
        outside(500, executions=0),
    )
    assert judge(IN_LOOPS, seen(full_buffer_writes=found)).measured == 100
    assert judge(OUTSIDE, seen(full_buffer_writes=found)).measured == 2000


def test_a_copy_outside_of_loops_that_runs_an_unknown_number_of_times_is_inconclusive() -> None:
    finding = judge(OUTSIDE, seen(full_buffer_writes=(outside(100, executions=None), outside(100))))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "copy u8[100] of 100 B, model.py:41" in finding.reason


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        ({"output_index": None}, "state is given away, but no output takes its buffer"),
        ({"copied_by": ("copy.1 at m.py:1",)}, "state is given away, but copied by copy.1 at m.py"),
    ],
)
def test_only_donations_that_are_honoured_count(lost: dict[str, Any], why: str) -> None:
    finding = judge(REUSED, seen(donations=(donation(10), donation(10, **lost))))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, 10)
    assert why in finding.reason


def test_a_program_that_donates_nothing_fails_the_claim() -> None:
    given = seen(donations=())
    warned = replace(given, evidence=replace(given.evidence, warnings=("jax dropped u8[20]",)))
    finding = judge(REUSED, warned)
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, 0)
    assert "no donation reaches the compiler; jax dropped u8[20]" in finding.reason


LARGE = claims.CopiedBytes(larger_than=formula(0))


def copied(*sizes: int) -> Finding:
    full_buffer_writes = tuple(
        full_buffer_write(each, instruction=f"copy.{each}") for each in sizes
    )
    seen = replace(module(), full_buffer_writes=full_buffer_writes, buffers_assigned=True)
    return judge(LARGE, case(module=seen))


def test_the_largest_copies_are_named_and_the_rest_counted() -> None:
    finding = copied(1, 2, 3, 4, 5)
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, 15)
    assert finding.reason.endswith(
        "copy u8[5] of 5 B, model.py:41; copy u8[4] of 4 B, model.py:41; "
        "copy u8[3] of 3 B, model.py:41; and 2 more"
    )


def test_no_more_is_counted_where_every_copy_is_named() -> None:
    assert "more" not in copied(1, 2, 3).reason.rpartition("; ")[2]
