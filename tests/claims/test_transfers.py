"""Traffic is counted in its own direction, over all loops, or not at all."""

import pytest

from assay import claims
from assay.judge.case import judge, judge_negative_control
from assay.model.module import Direction
from assay.model.verdict import Outcome

from .cases import OUT_OF_MEMORY, STACK_BYTES, case, module, transfer
from .examples import STACK

TO_HOST, TO_DEVICE = Direction.TO_HOST, Direction.TO_DEVICE
CLAIM = claims.TransferredBytes(direction=TO_HOST, equal=STACK)


def test_the_name_says_the_direction() -> None:
    names = [claims.TransferredBytes(direction=way, equal=STACK).name for way in Direction]
    assert names == ["to-host-bytes", "to-device-bytes"]


def test_transfers_add_up_over_their_executions() -> None:
    peeled = module(
        transfer(TO_HOST, STACK_BYTES // 8, executions=7),
        transfer(TO_HOST, STACK_BYTES // 8),
    )
    finding = judge(CLAIM, case(module=peeled))
    assert (finding.outcome, finding.measured) == (Outcome.PASSED, STACK_BYTES)


def test_bytes_that_cross_twice_fail_the_claim() -> None:
    twice = module(transfer(TO_HOST, STACK_BYTES), transfer(TO_HOST, STACK_BYTES))
    finding = judge(CLAIM, case(module=twice))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, 2 * STACK_BYTES)


def test_no_transfer_is_zero_bytes_not_a_missing_measurement() -> None:
    finding = judge(CLAIM, case(module=module()))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, 0)


@pytest.mark.parametrize("uncertain", [{"executions": None}, {"at_most": True}])
def test_a_transfer_that_runs_an_unknown_number_of_times_is_inconclusive(
    uncertain: dict[str, object],
) -> None:
    seen = case(module=module(transfer(TO_HOST, STACK_BYTES, **uncertain)))
    finding = judge(CLAIM, seen)
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.reason == "1 transfers run an unknown number of times, the first in body"
    assert judge_negative_control(CLAIM, seen).outcome is Outcome.INCONCLUSIVE


def test_an_unknown_count_the_other_way_does_not_matter() -> None:
    seen = module(transfer(TO_HOST, STACK_BYTES), transfer(TO_DEVICE, 1, executions=None))
    assert judge(CLAIM, case(module=seen)).outcome is Outcome.PASSED


def test_a_module_that_the_toolchain_will_not_hand_over_cannot_be_judged() -> None:
    seen = case(module=None, module_unreadable="RET_CHECK failure: arity")
    for finding in (judge(CLAIM, seen), judge_negative_control(CLAIM, seen)):
        assert finding.outcome is Outcome.UNSUPPORTED
        assert "RET_CHECK failure: arity" in finding.reason
        assert "pip install" in finding.advice


def test_a_failure_comes_before_a_module_that_cannot_be_read() -> None:
    seen = case(module=None, module_unreadable="arity", failure=OUT_OF_MEMORY)
    finding = judge(CLAIM, seen)
    assert (finding.outcome, finding.failure) == (Outcome.FAILED, OUT_OF_MEMORY)
