"""The suite's own soundness on one GPU, which its small programs run on where there is one."""

from collections.abc import Iterator

import pytest

from assay import Outcome
from assay.isolate import Observer
from assay.judge.case import judge, judge_negative_control
from assay.model.claim import Case
from assay.model.target import TargetName
from suites.dus_remat.test_copies import test_loop_needs_no_second_stack as needs_no_stack
from suites.dus_remat.workloads import EXECUTED

TARGET = "gpu-h100:1"


@pytest.fixture(scope="module")
def observer() -> Iterator[Observer]:
    with Observer([TargetName.parse(TARGET)], 300) as one:
        yield one


def _case(observer: Observer, variant: str) -> Case:
    chosen = EXECUTED.variant(variant)
    evidence = observer.observe(EXECUTED, chosen, TARGET)
    return Case(workload=EXECUTED, variant=chosen, evidence=evidence)


@pytest.mark.parametrize("variant", ["dot", "read-old-dot", "remat-nested"])
def test_workspaces_of_kernels_are_no_second_stack(observer: Observer, variant: str) -> None:
    assert judge(needs_no_stack.claim, _case(observer, variant)).outcome is Outcome.PASSED


def test_a_second_stack_is_seen_beside_workspaces(observer: Observer) -> None:
    control = judge_negative_control(needs_no_stack.claim, _case(observer, "negative-difference"))
    assert control.outcome is Outcome.PASSED
