"""An exponent is passed or failed by its interval; what follows no power is never a pass."""

from dataclasses import replace

import pytest

from assay import claims
from assay.judge.case import judge
from assay.model.evidence import FailureKind
from assay.model.units import Unit
from assay.model.verdict import Outcome
from assay.model.workload import Growth, Role, SizedVariant

from .cases import UNAVAILABLE, case, failure, family, formula, grown, program

LINEAR = formula(1, Unit.RATIO)
MEMORY = claims.BytesExponent(of=claims.Cost.TEMP, at_most=LINEAR)
COPIES = claims.BytesExponent(of=claims.Cost.COPIED, at_most=formula(0, Unit.RATIO))
TIME = claims.TimeExponent(at_most=LINEAR)


def test_a_program_without_a_growing_loop_fails_and_says_what_to_write() -> None:
    finding = judge(TIME, case(growth=None))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, None)
    assert "gives no growing loop to time" in finding.reason
    assert "write Program(growth=…)" in finding.advice


def test_bytes_that_grow_with_the_square_fail_a_linear_limit() -> None:
    finding = judge(MEMORY, family(1, 4, 16, 64))
    assert finding.outcome is Outcome.FAILED
    assert finding.measured == pytest.approx(2)
    assert "1 B at 8, 64 B at 64" in finding.reason


def test_a_constant_part_beside_what_grows_passes_the_limit() -> None:
    assert judge(MEMORY, family(108, 116, 132, 164)).outcome is Outcome.PASSED


def test_copies_of_rows_alone_do_not_grow() -> None:
    assert judge(COPIES, family(8, 8, 8, 8, copied=True)).outcome is Outcome.PASSED


def test_a_copy_of_one_byte_is_counted() -> None:
    finding = judge(COPIES, family(1, 2, 4, 8, copied=True))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, pytest.approx(1))


def test_bytes_at_some_sizes_alone_are_inconclusive() -> None:
    finding = judge(COPIES, family(0, 0, 8, 16, copied=True))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "[8, 16]" in finding.reason


def test_three_sizes_are_too_few() -> None:
    finding = judge(MEMORY, family(8, 16, 32))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "too few sizes: 3" in finding.reason


def test_an_interval_on_both_sides_of_the_line_is_inconclusive() -> None:
    finding = judge(MEMORY, family(8, 64, 16, 128))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "times off what was fitted" in finding.reason


def test_another_sizes_failure_leaves_the_claim_inconclusive() -> None:
    good = family(8, 16, 32, 64)
    others = {name: replace(each, failure=failure()) for name, each in good.others.items()}
    finding = judge(MEMORY, replace(good, others=others))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert judge(COPIES, replace(good, others=others)).outcome is Outcome.INCONCLUSIVE


def test_an_own_failure_fails_the_claim() -> None:
    good = family(8, 16, 32, 64)
    own = replace(good.evidence, failure=failure(FailureKind.COMPILER))
    assert judge(MEMORY, replace(good, evidence=own)).outcome is Outcome.FAILED


def test_copies_that_do_not_show_are_inconclusive() -> None:
    good = family(8, 8, 8, 8, copied=True)
    assert good.evidence.module is not None
    blind = replace(good.evidence, module=replace(good.evidence.module, buffers_assigned=False))
    assert judge(COPIES, replace(good, evidence=blind)).outcome is Outcome.INCONCLUSIVE


def test_a_variant_of_no_size_is_an_error() -> None:
    assert MEMORY.needs(case().variant) == ()
    finding = judge(MEMORY, case())
    assert finding.outcome is Outcome.ERROR
    assert "wanted a SizedVariant" in finding.reason


def test_a_limit_in_another_unit_fails_the_claim() -> None:
    wrong = replace(MEMORY, at_most=formula(1, Unit.BYTES))
    assert judge(wrong, family(8, 16, 32, 64)).outcome is Outcome.FAILED


def test_the_fastest_run_at_each_length_counts() -> None:
    finding = judge(TIME, case(growth=grown(0.5)))
    assert (finding.outcome, finding.measured) == (Outcome.PASSED, pytest.approx(0.5))
    assert finding.reason.startswith("growth of time: size ** 0.5 ")


def test_two_lengths_are_too_few_for_an_exponent_of_time() -> None:
    finding = judge(TIME, case(growth=grown(0.5, at=(8, 64))))
    assert finding.outcome is Outcome.INCONCLUSIVE


def test_a_target_that_runs_nothing_is_unsupported_for_the_claim() -> None:
    finding = judge(TIME, case(not_executed=UNAVAILABLE))
    assert (finding.outcome, finding.reason) == (Outcome.UNSUPPORTED, UNAVAILABLE.reason)


def test_the_largest_of_a_family_bears_its_name_and_knows_the_others() -> None:
    small, large = SizedVariant.at(
        (8, 16), name="loop", role=Role.CONTROL, program=lambda _, devices: program(devices)
    )
    assert (small.name, small.size, small.family) == ("loop-at-8", 8, ("loop",))
    assert (large.name, large.size, large.family) == ("loop", 16, ("loop-at-8",))


@pytest.mark.parametrize("lengths", [(8,), (8, 8), (16, 8), (0, 8)])
def test_lengths_must_grow(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"got lengths .*wanted two or more"):
        Growth(lengths=lengths, build=lambda _: (lambda: None, tuple))
