"""Compiling and fitting are two promises: running out of memory fails the second alone."""

from dataclasses import replace

import pytest

from assay import claims
from assay.judge.case import judge, judge_negative_control
from assay.model.claim import Case, Claim
from assay.model.evidence import FailureKind
from assay.model.summary import Peak
from assay.model.verdict import Outcome

from .cases import GOOD, MEMORY, OUT_OF_MEMORY, UNAVAILABLE, case, failure, formula, module


@pytest.mark.parametrize(
    "kind",
    [
        FailureKind.TRACE,
        FailureKind.LOWERING,
        FailureKind.COMPILER,
        FailureKind.CRASH,
        FailureKind.TIMEOUT,
    ],
)
def test_a_program_that_gives_no_executable_does_not_compile(kind: FailureKind) -> None:
    finding = judge(claims.Compiles(), case(failure=failure(kind)))
    assert (finding.outcome, finding.measured, finding.limit) == (Outcome.FAILED, 1, 0)
    assert kind.phrase in finding.reason


@pytest.mark.parametrize("kind", [FailureKind.OUT_OF_MEMORY, FailureKind.EXECUTION])
def test_a_program_that_stops_after_the_compiler_accepted_it_compiles(kind: FailureKind) -> None:
    assert judge(claims.Compiles(), case(failure=failure(kind))).outcome is Outcome.PASSED


def test_running_out_of_memory_fails_the_fit_with_both_sizes() -> None:
    evidence = case(failure=OUT_OF_MEMORY, memory=None, module=None)
    finding = judge(claims.FitsDevice(), evidence)
    assert (finding.outcome, finding.measured, finding.limit) == (
        Outcome.FAILED,
        20 * 2**30,
        16 * 2**30,
    )
    assert (
        finding.reason
        == "it runs out of memory: needs 20.0 GiB, the device has 16.0 GiB: Used 20G of 16G hbm"
    )
    assert judge(claims.Compiles(), evidence).outcome is Outcome.PASSED


def _not_allocated(nbytes: int) -> Case:
    """On a live GPU of 16 GiB, whose allocator tells no capacity."""
    refused = replace(OUT_OF_MEMORY, needed_bytes=nbytes, capacity_bytes=None)
    return case(failure=refused, memory=None, module=None, device_memory_bytes=16 * 2**30)


def test_what_no_gpu_could_allocate_fails_the_fit() -> None:
    finding = judge(claims.FitsDevice(), _not_allocated(20 * 2**30))
    assert finding.outcome is Outcome.FAILED
    # A negative control needs both numbers.
    assert (finding.measured, finding.limit) == (20 * 2**30, 16 * 2**30)


@pytest.mark.parametrize(
    "claim",
    [
        claims.FitsDevice(),
        claims.FitsBudget(budget=formula(2**30)),
        claims.TempBytesAtMost(limit=formula(2**30)),
    ],
    ids=lambda claim: claim.name,
)
def test_what_should_fit_and_cannot_be_allocated_is_not_judged(claim: Claim) -> None:
    assert judge(claim, _not_allocated(10 * 2**30)).outcome is Outcome.INCONCLUSIVE
    assert judge(claim, _not_allocated(20 * 2**30)).outcome is Outcome.FAILED


def test_an_out_of_memory_error_without_sizes_proves_no_control() -> None:
    evidence = case(failure=failure(FailureKind.OUT_OF_MEMORY), memory=None)
    assert judge(claims.FitsDevice(), evidence).outcome is Outcome.FAILED
    assert judge_negative_control(claims.FitsDevice(), evidence).outcome is Outcome.FAILED


def test_a_step_fits_up_to_its_last_byte() -> None:
    finding = judge(claims.FitsDevice(), case(device_memory_bytes=MEMORY.device_bytes))
    assert finding.outcome is Outcome.PASSED
    assert finding.advice == ""


def test_constants_that_are_alive_at_the_peak_must_fit_too() -> None:
    peak = Peak(nbytes=MEMORY.device_bytes + 1, at="", line=None, buffers=())
    large = replace(module(), peak=peak)
    finding = judge(
        claims.FitsDevice(), case(module=large, device_memory_bytes=MEMORY.device_bytes)
    )
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, MEMORY.device_bytes + 1)


def test_a_step_one_byte_over_does_not_fit() -> None:
    finding = judge(claims.FitsDevice(), case(device_memory_bytes=MEMORY.device_bytes - 1))
    assert finding.outcome is Outcome.FAILED
    assert "1 B too much" in finding.reason
    assert finding.advice


def test_an_aliased_output_is_counted_once() -> None:
    aliased = replace(MEMORY, output_bytes=300, alias_bytes=300)
    finding = judge(claims.FitsDevice(), case(memory=aliased))
    assert finding.measured == MEMORY.temp_bytes + MEMORY.argument_bytes


def test_on_a_target_without_a_memory_size_a_failure_is_unsupported_too() -> None:
    evidence = case(device_memory_bytes=None, memory=None, failure=failure(FailureKind.TRACE))
    assert judge(claims.FitsDevice(), evidence).outcome is Outcome.UNSUPPORTED
    assert judge_negative_control(claims.FitsDevice(), evidence).outcome is Outcome.UNSUPPORTED


def test_a_target_that_is_not_here_says_so_not_its_memory() -> None:
    absent = case(unavailable=UNAVAILABLE, device_memory_bytes=None, memory=None)
    finding = judge(claims.FitsDevice(), absent)
    assert (finding.outcome, finding.reason) == (Outcome.UNSUPPORTED, UNAVAILABLE.reason)


def test_a_claim_that_the_program_can_never_show_fails() -> None:
    """On a target that runs programs, a program without values is wrong use of the claim."""
    finding = judge(claims.Runs(), case(values=None))
    assert finding.outcome is Outcome.FAILED
    assert finding.reason == (
        f"nothing to measure: the program of {GOOD.variant!r} gives no values to run it on, and "
        "this claim judges nothing else"
    )
    assert finding.advice == (
        "write Program(values=…, observe=…), or leave the variant out of the check"
    )
    control = judge_negative_control(claims.Runs(), case(values=None))
    assert (control.outcome, control.measured) == (Outcome.FAILED, None)


def test_a_target_without_a_memory_size_is_unsupported_for_the_fit() -> None:
    finding = judge(claims.FitsDevice(), case(device_memory_bytes=None))
    assert finding.outcome is Outcome.UNSUPPORTED
    assert finding.measured == MEMORY.device_bytes
