"""Results are equal bit for bit where the arithmetic is one, and never equal to a NaN."""

from dataclasses import replace
from typing import Any

import pytest

from assay import claims
from assay.judge.case import judge
from assay.model.claim import Case
from assay.model.evidence import Evidence, FailureKind, Unavailable
from assay.model.verdict import Outcome

from .cases import GOOD, SAVED, beside, case, failure, tensor

NAN, INFINITY = float("nan"), float("inf")


def results(ours: Any, theirs: Any, target: str = "cpu:8") -> Case:
    return beside({"save": replace(SAVED, values=theirs)}, values=ours, target=target)


def of(values: Any, dtype: str = "float32") -> tuple[Any, ...]:
    return (tensor(values, dtype),)


@pytest.mark.parametrize(
    ("target", "outcome"),
    [
        ("cpu", Outcome.BROKEN),
        ("cpu:8", Outcome.BROKEN),
        ("gpu", Outcome.KEPT),
        ("gpu-h100:8", Outcome.KEPT),
        ("tpu-v5e:2x4", Outcome.KEPT),
    ],
)
def test_values_are_exact_on_cpu_and_tolerant_elsewhere(target: str, outcome: Outcome) -> None:
    finding = judge(claims.ValuesEqual(), results(of([1.0, 1.0001]), of([1.0, 1.0]), target))
    assert finding.outcome is outcome
    assert finding.measured == pytest.approx(1e-4, rel=1e-2)


def test_the_tolerance_is_the_rounding_of_tf32() -> None:
    finding = judge(claims.ValuesEqual(), results(of([1.0]), of([1.0]), "gpu"))
    assert finding.limit == 2**-10
    beyond = results(of([1.0 + 2**-9]), of([1.0]), "gpu")
    assert judge(claims.ValuesEqual(), beyond).outcome is Outcome.BROKEN


@pytest.mark.parametrize("bad", [NAN, INFINITY, -INFINITY])
@pytest.mark.parametrize("both", [True, False], ids=["both-sides", "one-side"])
def test_a_value_that_is_no_number_equals_nothing_not_even_itself(
    *, bad: float, both: bool
) -> None:
    theirs = of([bad if both else 1.0])
    finding = judge(claims.ValuesEqual(), results(of([bad]), theirs, "gpu"))
    assert (finding.outcome, finding.measured) == (Outcome.BROKEN, INFINITY)
    assert "finite" in finding.reason


def test_a_reference_that_is_no_number_proves_nothing() -> None:
    finding = judge(claims.ValuesEqual(), results(of([1.0]), of([NAN]), "gpu"))
    assert finding.outcome is Outcome.BROKEN


@pytest.mark.parametrize("missing", ["ours", "theirs"])
def test_a_missing_array_breaks_the_claim_and_is_named(missing: str) -> None:
    both = (tensor([1.0]), tensor([2.0], path="gradient"))
    ours, theirs = (both[:1], both) if missing == "ours" else (both, both[:1])
    finding = judge(claims.ValuesEqual(), results(ours, theirs))
    assert (finding.outcome, finding.measured) == (Outcome.BROKEN, INFINITY)
    assert "gradient" in finding.reason


def test_two_empty_result_sets_prove_nothing() -> None:
    assert judge(claims.ValuesEqual(), results((), ())).outcome is Outcome.BROKEN


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (of([[1.0, 1.0]]), of([1.0, 1.0]), "float32[1, 2] against float32[2]"),
        (of([1.0], "float16"), of([1.0]), "float16[1] against float32[1]"),
    ],
)
def test_another_shape_or_type_breaks_the_claim(ours: Any, theirs: Any, words: str) -> None:
    finding = judge(claims.ValuesEqual(), results(ours, theirs, "gpu"))
    assert finding.outcome is Outcome.BROKEN
    assert words in finding.reason


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int32", "bool", "complex64"])
def test_one_different_element_breaks_the_claim_in_every_type(dtype: str) -> None:
    import ml_dtypes  # noqa: F401 - gives numpy the name bfloat16

    right, wrong = of([1, 1, 0], dtype), of([1, 0, 0], dtype)
    assert judge(claims.ValuesEqual(), results(right, right)).outcome is Outcome.KEPT
    assert judge(claims.ValuesEqual(), results(wrong, right)).outcome is Outcome.BROKEN


def test_an_imaginary_part_counts() -> None:
    seen = results(of([1 + 2j], "complex64"), of([1 + 1j], "complex64"))
    assert judge(claims.ValuesEqual(), seen).outcome is Outcome.BROKEN


def test_the_worst_array_decides_and_is_named() -> None:
    right = (tensor([1.0]), tensor([1.0], path="a"), tensor([1.0], path="b"))
    wrong = (tensor([1.1]), tensor([1.5], path="a"), tensor([1.2], path="b"))
    finding = judge(claims.ValuesEqual(), results(wrong, right))
    assert finding.measured == pytest.approx(0.5)
    assert finding.reason.startswith("a against 'save'")


def test_a_difference_where_the_reference_is_zero_is_infinite() -> None:
    finding = judge(claims.ValuesEqual(), results(of([1e-30]), of([0.0]), "gpu"))
    assert (finding.outcome, finding.measured) == (Outcome.BROKEN, INFINITY)


@pytest.mark.parametrize("shape", [(0,), ()])
def test_empty_arrays_and_scalars_are_compared(shape: tuple[int, ...]) -> None:
    import numpy as np

    same = of(np.zeros(shape))
    assert judge(claims.ValuesEqual(), results(same, same)).outcome is Outcome.KEPT


def test_damaged_result_bytes_are_an_error() -> None:
    torn = (replace(tensor([1.0, 2.0]), data=b"\0\0\0\0"),)
    assert judge(claims.ValuesEqual(), results(torn, of([1.0, 2.0]))).outcome is Outcome.ERROR


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_a_program_that_was_not_executed_cannot_run_and_says_why(whose: str) -> None:
    def unless(mine: str, evidence: Evidence) -> Evidence:
        why = Unavailable(reason="a compile-only target runs nothing", remedy="run it on cpu")
        return replace(evidence, values=None, not_executed=why) if whose == mine else evidence

    ours = unless("ours", GOOD)
    seen = replace(case(), evidence=ours, others={"save": unless("theirs", SAVED)})
    finding = judge(claims.ValuesEqual(), seen)
    assert finding.outcome is Outcome.CANNOT_RUN
    assert finding.reason == "a compile-only target runs nothing"
    assert finding.advice == "run it on cpu"


def test_a_program_that_does_not_run_breaks_the_claim() -> None:
    seen = case(failure=failure(FailureKind.EXECUTION), values=None)
    finding = judge(claims.ValuesEqual(), seen)
    assert finding.outcome is Outcome.BROKEN
    assert "does not run" in finding.reason
