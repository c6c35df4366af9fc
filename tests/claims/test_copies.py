"""Which copies a failed claim names, and what it counts of the rest."""

from dataclasses import replace

from assay import claims
from assay.judge.case import judge
from assay.model.verdict import Finding, Outcome

from .cases import case, formula, module, rewrite

LARGE = claims.CopiedBytes(larger_than=formula(0))


def copied(*sizes: int) -> Finding:
    rewrites = tuple(rewrite(each, instruction=f"copy.{each}") for each in sizes)
    seen = replace(module(), rewrites=rewrites, buffers_assigned=True)
    return judge(LARGE, case(module=seen))


def test_the_largest_copies_are_named_and_the_rest_counted() -> None:
    finding = copied(1, 2, 3, 4, 5)
    assert (finding.outcome, finding.measured) == (Outcome.BROKEN, 15)
    assert finding.reason.endswith(
        "copy u8[5] of 5 B, model.py:41; copy u8[4] of 4 B, model.py:41; "
        "copy u8[3] of 3 B, model.py:41; and 2 more"
    )


def test_no_more_is_counted_where_every_copy_is_named() -> None:
    assert "more" not in copied(1, 2, 3).reason.rpartition("; ")[2]
