"""The suite's own soundness on one GPU, which its small programs run on where there is one."""

import pytest

from assay import Outcome
from assay.judge.case import judge, judge_negative_control
from assay.model.claim import Case
from assay.observe import observe
from suites.dus_remat.test_copies import test_loop_needs_no_second_stack as needs_no_stack
from suites.dus_remat.workloads import EXECUTED

TARGET = "gpu-h100:1"


def _case(variant: str) -> Case:
    chosen = EXECUTED.variant(variant)
    return Case(workload=EXECUTED, variant=chosen, evidence=observe(EXECUTED, chosen, TARGET))


@pytest.mark.parametrize("variant", ["dot", "read-old-dot", "remat-nested"])
def test_workspaces_of_kernels_are_no_second_stack(variant: str) -> None:
    assert judge(needs_no_stack.claim, _case(variant)).outcome is Outcome.PASSED


def test_a_second_stack_is_seen_beside_workspaces() -> None:
    control = judge_negative_control(needs_no_stack.claim, _case("negative-difference"))
    assert control.outcome is Outcome.PASSED
