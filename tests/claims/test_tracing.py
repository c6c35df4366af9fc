"""What the jaxpr tells: which names are given, and which residuals go to the host."""

from dataclasses import replace

import pytest

from assay import claims
from assay.claims.compile import nbytes
from assay.judge.case import judge
from assay.model.claim import Case
from assay.model.evidence import Residual
from assay.model.verdict import Outcome

from .cases import STACK_BYTES, TRACED, VARIANT, case
from .examples import STACK


def asking_for(*names: str) -> Case:
    return replace(case(), variant=replace(VARIANT, names=names))


def test_residuals_on_the_device_are_not_counted() -> None:
    on_device = tuple(replace(residual, on_host=False) for residual in TRACED.residuals or ())
    finding = judge(
        claims.ResidualsOnHost(equal=STACK), case(traced=replace(TRACED, residuals=on_device))
    )
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, 0)


def test_the_finding_lists_what_is_saved() -> None:
    finding = judge(claims.ResidualsOnHost(equal=STACK), case())
    assert finding.measured == STACK_BYTES
    assert "saved: float32<host>[16,64], float32[16,64]" in finding.reason


def test_saving_nothing_is_said_in_words() -> None:
    finding = judge(claims.ResidualsOnHost(equal=STACK), case(traced=replace(TRACED, residuals=())))
    assert finding.reason.endswith("saved: nothing")


def test_residuals_of_no_differentiated_function_are_an_error() -> None:
    finding = judge(
        claims.ResidualsOnHost(equal=STACK), case(traced=replace(TRACED, residuals=None))
    )
    assert finding.outcome is Outcome.ERROR
    assert "Program.differentiated" in finding.reason


@pytest.mark.parametrize(
    ("dtype", "bytes_of_six"),
    [
        ("bool", 6),
        ("int8", 6),
        ("uint16", 12),
        ("bfloat16", 12),
        ("float32", 24),
        ("int64", 48),
        ("complex64", 48),
        ("float8_e4m3fn", 6),
        ("float8_e8m0fnu", 6),
        ("int4", 3),
        ("uint2", 2),
        ("float4_e2m1fn", 3),
        ("float0", 0),
    ],
)
def test_a_residual_counts_the_bytes_of_its_own_type(dtype: str, bytes_of_six: int) -> None:
    residual = Residual(dtype=dtype, shape=(2, 3), on_host=True, origin="")
    assert nbytes(residual) == bytes_of_six


def test_a_scalar_residual_is_one_element() -> None:
    assert nbytes(Residual(dtype="float32", shape=(), on_host=True, origin="")) == 4


@pytest.mark.parametrize(("dtype", "size"), [("uint1", 13), ("int4", 50), ("bool", 99)])
def test_bits_are_rounded_up_to_bytes(dtype: str, size: int) -> None:
    assert nbytes(Residual(dtype=dtype, shape=(99,), on_host=True, origin="")) == size


def test_a_misspelt_name_fails_and_the_close_one_suggested() -> None:
    finding = judge(claims.NamesMatch(), asking_for("residuall"))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, 1)
    assert finding.advice == "did you mean 'residual'?"


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    finding = judge(claims.NamesMatch(), asking_for("xyzzy"))
    assert finding.outcome is Outcome.FAILED
    assert finding.advice == "name a value with checkpoint_name"


def test_every_missing_name_is_counted() -> None:
    finding = judge(claims.NamesMatch(), asking_for("residual", "one", "two"))
    assert (finding.measured, finding.limit) == (2, 0)


def test_a_policy_that_asks_for_no_name_is_inconclusive() -> None:
    finding = judge(claims.NamesMatch(), asking_for())
    assert finding.outcome is Outcome.INCONCLUSIVE
