"""Bytes on the host are not enough: the device's must have fallen by as much."""

from dataclasses import replace

import pytest

from assay import claims
from assay.judge.case import judge
from assay.model.evidence import FailureKind
from assay.model.verdict import BaselineNumber, Outcome

from .cases import (
    MEMORY,
    OUT_OF_MEMORY,
    SAVED,
    STACK_BYTES,
    TEMP_BYTES,
    beside,
    case,
    failure,
    formula,
    with_memory,
)
from .examples import STACK


@pytest.mark.parametrize("off", [-1, 1])
def test_host_bytes_are_exact_in_both_directions(off: int) -> None:
    finding = judge(claims.HostBytes(equal=STACK), with_memory(host_temp_bytes=STACK_BYTES + off))
    assert finding.outcome is Outcome.FAILED
    assert f"1 B too {'much' if off > 0 else 'little'}" in finding.reason


def test_host_arguments_and_outputs_are_host_bytes() -> None:
    shared = with_memory(host_argument_bytes=7, host_output_bytes=5, host_alias_bytes=2)
    finding = judge(claims.HostBytes(equal=STACK), shared)
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, STACK_BYTES + 10)
    assert "10 B too much" in finding.reason


def test_an_offload_that_keeps_the_devices_copy_has_host_bytes_but_no_fall() -> None:
    useless = with_memory(temp_bytes=TEMP_BYTES + STACK_BYTES)
    assert judge(claims.HostBytes(equal=STACK), useless).outcome is Outcome.PASSED
    fall = judge(claims.DeviceBytesFall(by=STACK), useless)
    assert (fall.outcome, fall.measured, fall.limit) == (Outcome.FAILED, 0, STACK_BYTES)


def test_device_memory_may_fall_by_more_than_asked() -> None:
    finding = judge(claims.DeviceBytesFall(by=formula(STACK_BYTES - 1)), case())
    assert (finding.outcome, finding.measured) == (Outcome.PASSED, STACK_BYTES)


def test_device_memory_that_grew_is_a_negative_fall() -> None:
    small = {"save": replace(SAVED, memory=replace(MEMORY, temp_bytes=1))}
    finding = judge(claims.DeviceBytesFall(by=STACK), beside(small))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, 1 - TEMP_BYTES)


def test_a_variant_is_held_against_the_other_variant_and_the_allowance() -> None:
    claim = claims.DeviceBytesAtMost(against="nothing", beyond=formula(7))
    finding = judge(claim, case())
    assert (finding.measured, finding.limit) == (TEMP_BYTES, TEMP_BYTES + 7)


def test_a_budget_holds_all_that_the_step_needs_not_its_temporaries_alone() -> None:
    finding = judge(claims.FitsBudget(budget=formula(TEMP_BYTES)), case())
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, TEMP_BYTES + 600)


def test_a_refused_program_fails_its_budget_by_what_the_compiler_says_it_needs() -> None:
    refused = case(memory=None, failure=OUT_OF_MEMORY)
    finding = judge(claims.FitsBudget(budget=formula(TEMP_BYTES)), refused)
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, OUT_OF_MEMORY.needed_bytes)
    assert finding.failure == OUT_OF_MEMORY


def test_a_refused_program_fails_even_a_budget_that_is_larger_than_the_device() -> None:
    refused = case(memory=None, failure=OUT_OF_MEMORY)
    assert judge(claims.FitsBudget(budget=formula(2**50)), refused).outcome is Outcome.FAILED


def test_a_program_that_fails_when_it_runs_can_keep_its_budget() -> None:
    failed = case(failure=failure(FailureKind.EXECUTION))
    finding = judge(claims.FitsBudget(budget=formula(TEMP_BYTES + 600)), failed)
    assert (finding.outcome, finding.measured) == (Outcome.PASSED, TEMP_BYTES + 600)


def test_a_refusal_that_names_no_size_fails_the_budget_without_a_measurement() -> None:
    unnamed = replace(OUT_OF_MEMORY, needed_bytes=None, capacity_bytes=None)
    finding = judge(claims.FitsBudget(budget=formula(2**50)), case(memory=None, failure=unnamed))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, None)


@pytest.mark.parametrize(
    ("temp_bytes", "outcome"),
    [
        (TEMP_BYTES - 1, Outcome.IMPROVED),
        (TEMP_BYTES, Outcome.PASSED),
        (TEMP_BYTES + 1, Outcome.FAILED),
    ],
)
def test_on_the_baseline_toolchain_one_byte_counts(temp_bytes: int, outcome: Outcome) -> None:
    finding = judge(claims.BaselineTempBytes(), with_memory(temp_bytes=temp_bytes))
    assert finding.outcome is outcome


@pytest.mark.parametrize(
    ("temp_bytes", "outcome"),
    [
        (TEMP_BYTES - 101, Outcome.IMPROVED),
        (TEMP_BYTES - 100, Outcome.PASSED),
        (TEMP_BYTES + 100, Outcome.PASSED),
        (TEMP_BYTES + 101, Outcome.FAILED),
    ],
)
def test_on_another_toolchain_the_claims_tolerance_counts(
    temp_bytes: int, outcome: Outcome
) -> None:
    older = BaselineNumber(value=TEMP_BYTES, toolchain={"jaxlib": "0.9"})
    seen = replace(with_memory(temp_bytes=temp_bytes), baseline=older)
    assert judge(claims.BaselineTempBytes(tolerance=0.01), seen).outcome is outcome


def test_a_number_that_was_never_stored_fails() -> None:
    finding = judge(claims.BaselineTempBytes(), case(baseline=None))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, TEMP_BYTES)
    assert "--assay-update-baselines=new" in finding.advice


def test_only_the_baseline_is_a_baseline() -> None:
    assert claims.BaselineTempBytes().uses_baseline
    assert not claims.HostBytes(equal=STACK).uses_baseline


@pytest.mark.parametrize(
    ("spare", "outcome"), [(0, Outcome.PASSED), (-1, Outcome.INCONCLUSIVE), (-8, Outcome.FAILED)]
)
def test_what_libraries_may_hold_counts_towards_a_limit(spare: int, outcome: Outcome) -> None:
    """The limit: room for both, for the compiler's figure alone, or for neither."""
    held = with_memory(library_bytes=7)
    for claim, reported in (
        (claims.TempBytesAtMost(limit=formula(TEMP_BYTES + 7 + spare)), TEMP_BYTES),
        (claims.FitsBudget(budget=formula(TEMP_BYTES + 607 + spare)), TEMP_BYTES + 600),
    ):
        finding = judge(claim, held)
        assert (finding.outcome, finding.measured) == (outcome, reported)
        assert ("libraries hold at most 7 B more" in finding.reason) == (spare > -8)
    assert ("ynn_fusion_type" in finding.advice) == (outcome is Outcome.INCONCLUSIVE)


def test_a_temporary_that_moves_into_a_library_is_no_improvement() -> None:
    stored = BaselineNumber(value=TEMP_BYTES, toolchain=dict(case().evidence.toolchain.identity))
    moved = replace(with_memory(temp_bytes=TEMP_BYTES - 7, library_bytes=7), baseline=stored)
    assert judge(claims.BaselineTempBytes(), moved).outcome is Outcome.PASSED
    lost = replace(with_memory(temp_bytes=TEMP_BYTES - 7), baseline=stored)
    assert judge(claims.BaselineTempBytes(), lost).outcome is Outcome.IMPROVED
