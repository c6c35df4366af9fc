"""Results are equal bit for bit where the arithmetic is one, else to rounding, each element."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import gamma

from assay import claims
from assay.judge.case import judge
from assay.model.claim import Case
from assay.model.evidence import Evidence, FailureKind
from assay.model.target import Unavailable
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
        ("cpu", Outcome.FAILED),
        ("cpu:8", Outcome.FAILED),
        ("gpu", Outcome.PASSED),
        ("gpu-h100:8", Outcome.PASSED),
        ("tpu-v5e:2x4", Outcome.PASSED),
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
    assert judge(claims.ValuesEqual(), beyond).outcome is Outcome.FAILED


@pytest.mark.parametrize("odd", [NAN, INFINITY, -INFINITY])
@pytest.mark.parametrize("target", ["cpu:8", "gpu"])
def test_equal_values_that_are_not_finite_are_equal(odd: float, target: str) -> None:
    same = of([1.0, odd, 2.0])
    finding = judge(claims.ValuesEqual(), results(same, same, target))
    assert (finding.outcome, finding.measured) == (Outcome.PASSED, 0.0)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([1.0, NAN, 2.0], [1.0, 3.0, 2.0]),
        ([1.0, 3.0, 2.0], [1.0, NAN, 2.0]),
        ([1.0, INFINITY, 2.0], [1.0, -INFINITY, 2.0]),
        ([1.0, INFINITY, 2.0], [1.0, NAN, 2.0]),
        ([1.0, 2.0, NAN], [1.0, NAN, NAN]),
    ],
)
def test_values_that_are_not_finite_alike_fail_the_claim(
    ours: list[float], theirs: list[float]
) -> None:
    finding = judge(claims.ValuesEqual(), results(of(ours), of(theirs), "gpu"))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, INFINITY)
    assert f"{ours[1]:.9g} against {theirs[1]:.9g} at [1]" in finding.reason
    assert "in 1 of 3 elements" in finding.reason


def test_a_complex_number_with_one_part_not_finite_is_compared_by_parts() -> None:
    left, right = complex(NAN, 1.0), complex(NAN, 2.0)
    same, other = of([left], "complex64"), of([right], "complex64")
    assert judge(claims.ValuesEqual(), results(same, same)).outcome is Outcome.PASSED
    assert judge(claims.ValuesEqual(), results(other, same, "gpu")).outcome is Outcome.FAILED


def test_a_difference_names_the_index_both_values_and_how_many() -> None:
    ours, theirs = of([[1.0, 2.0], [3.0, 5.0]]), of([[1.0, 2.0], [3.0, 4.0]])
    finding = judge(claims.ValuesEqual(), results(ours, theirs))
    assert "5 against 4 at [1, 1], 25 % off; 1 of 4 elements differ, by 1 at most" in finding.reason


_WIDE = claims.ValuesEqual(exact_on=(), relative_tolerance=2.0**-14)
_SMALL = (1e-4 * (1 + np.arange(64) / 64)).astype(np.float32)


def _with_small(small: Any) -> tuple[Any, ...]:
    return of(np.concatenate([np.ones(192, np.float32), small]))


def test_small_elements_that_are_wholly_wrong_fail_the_claim() -> None:
    reference = _with_small(_SMALL)
    wrong = judge(_WIDE, results(_with_small(_SMALL * 0.75), reference))
    assert float(_SMALL.max()) * 0.25 < 2.0**-14
    assert wrong.outcome is Outcome.FAILED
    assert "64 of 256 elements differ" in wrong.reason


@pytest.mark.parametrize(("times", "relative"), [(0.75, 0.25), (0, 1), (-1, 1)])
def test_many_small_differences_count_as_more_than_chance(times: float, relative: float) -> None:
    """The mean of Poisson's law under which 64 elements of 256 are off with a chance of 1e-6."""
    small = np.full(64, 2.0**-14, np.float32)
    finding = judge(_WIDE, results(_with_small(small * times), _with_small(small)))
    assert finding.measured == pytest.approx(gamma.ppf(1e-6, 64) / 256 * relative)


def test_the_element_named_is_the_worst_by_what_decides() -> None:
    """The largest gap, or where small elements decide the largest gap relative to the element."""
    gap = judge(claims.ValuesEqual(), results(of([5.0, 0.0]), of([4.0, 0.1])))
    assert "5 against 4 at [0]" in gap.reason
    small = np.full(64, 2.0**-14, np.float32)
    ours = np.concatenate([np.full(192, 1 + 2.0**-15, np.float32), small * 0.75])
    assert "at [192]" in judge(_WIDE, results(of(ours), _with_small(small))).reason


def test_an_element_that_cancelled_may_be_off_relative_to_itself() -> None:
    terms = np.random.default_rng(7).normal(size=(4096, 256)).astype(np.float32)
    one_way = np.add.accumulate(terms, axis=1)[:, -1]
    other = np.add.accumulate(terms[:, ::-1], axis=1)[:, -1]
    relative = np.abs(one_way - other) / np.abs(one_way)
    assert relative.max() > 2.0**-14
    assert judge(_WIDE, results(of(one_way), of(other))).outcome is Outcome.PASSED


def test_what_rounding_leaves_of_the_largest_is_not_held_to_itself() -> None:
    ours, claim = of([1.0, 1e-13], "float64"), replace(_WIDE, relative_tolerance=1e-9)
    passed = judge(claim, results(ours, of([1.0, 3e-13], "float64")))
    assert passed.outcome is Outcome.PASSED
    wrong = judge(claim, results(ours, of([1.0, 3e-11], "float64")))
    assert wrong.outcome is Outcome.FAILED


def _computed() -> Any:
    return {"loss": np.float64(3.0), "gradients": (np.array([1.0, 2.0]),)}


def test_a_function_may_be_the_truth() -> None:
    claim = claims.ValuesEqual(truth=_computed)
    ours = (tensor(3.0, path="['loss']"), tensor([1.0, 2.0], path="['gradients'][0]"))
    assert claim.needs(case().variant) == ()
    finding = judge(claim, case(values=ours))
    assert finding.outcome is Outcome.PASSED
    assert finding.reason.startswith("all 2 results against _computed(): all ")
    off = (ours[0], tensor([1.0, 2.5], path="['gradients'][0]"))
    assert judge(claim, case(values=off)).outcome is Outcome.FAILED


def test_a_file_may_be_the_truth(tmp_path: Path) -> None:
    stored = tmp_path / "truth.npz"
    named: dict[str, Any] = {"['loss']": np.array([1.0, 2.0])}
    np.savez(stored, **named)
    claim = claims.ValuesEqual(truth=stored)
    ours = (tensor([1.0, 2.0], path="['loss']"),)
    assert judge(claim, case(values=ours)).outcome is Outcome.PASSED
    assert judge(claim, case(values=of([1.0, 2.0]))).outcome is Outcome.FAILED


def test_a_truth_that_raises_names_its_line() -> None:
    def gone() -> Any:
        raise KeyError("no truth")

    finding = judge(claims.ValuesEqual(truth=gone), case(values=of([1.0])))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, None)
    assert "test_values.py:" in finding.reason


@pytest.mark.parametrize("missing", ["ours", "theirs"])
def test_a_missing_array_fails_the_claim_and_is_named(missing: str) -> None:
    both = (tensor([1.0]), tensor([2.0], path="gradient"))
    ours, theirs = (both[:1], both) if missing == "ours" else (both, both[:1])
    finding = judge(claims.ValuesEqual(), results(ours, theirs))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, INFINITY)
    assert "gradient" in finding.reason


def test_two_empty_result_sets_prove_nothing() -> None:
    assert judge(claims.ValuesEqual(), results((), ())).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (of([[1.0, 1.0]]), of([1.0, 1.0]), "float32[1, 2] against float32[2]"),
        (of([1.0], "float16"), of([1.0]), "float16[1] against float32[1]"),
    ],
)
def test_another_shape_or_type_fails_the_claim(ours: Any, theirs: Any, words: str) -> None:
    finding = judge(claims.ValuesEqual(), results(ours, theirs, "gpu"))
    assert finding.outcome is Outcome.FAILED
    assert words in finding.reason


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int32", "bool", "complex64"])
def test_one_different_element_fails_the_claim_in_every_type(dtype: str) -> None:
    import ml_dtypes  # noqa: F401 - gives numpy the name bfloat16

    right, wrong = of([1, 1, 0], dtype), of([1, 0, 0], dtype)
    assert judge(claims.ValuesEqual(), results(right, right)).outcome is Outcome.PASSED
    assert judge(claims.ValuesEqual(), results(wrong, right)).outcome is Outcome.FAILED


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_that_no_double_tells_apart_are_compared(dtype: str) -> None:
    right, wrong = of([2**53, 5], dtype), of([2**53 + 1, 5], dtype)
    assert judge(claims.ValuesEqual(), results(right, right)).outcome is Outcome.PASSED
    finding = judge(claims.ValuesEqual(), results(wrong, right))
    assert finding.outcome is Outcome.FAILED
    assert f"{2**53 + 1} against {2**53} at [0]" in finding.reason


def test_an_imaginary_part_counts() -> None:
    seen = results(of([1 + 2j], "complex64"), of([1 + 1j], "complex64"))
    assert judge(claims.ValuesEqual(), seen).outcome is Outcome.FAILED


def test_the_worst_array_decides_and_is_named() -> None:
    right = (tensor([1.0]), tensor([1.0], path="a"), tensor([1.0], path="b"))
    wrong = (tensor([1.1]), tensor([1.5], path="a"), tensor([1.2], path="b"))
    finding = judge(claims.ValuesEqual(), results(wrong, right))
    assert finding.measured == pytest.approx(0.5)
    assert finding.reason.startswith("a against 'save'")


def test_a_difference_where_the_reference_is_zero_is_infinite() -> None:
    finding = judge(claims.ValuesEqual(), results(of([1e-30]), of([0.0]), "gpu"))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, INFINITY)


@pytest.mark.parametrize("shape", [(0,), ()])
def test_empty_arrays_and_scalars_are_compared(shape: tuple[int, ...]) -> None:
    import numpy as np

    same = of(np.zeros(shape))
    assert judge(claims.ValuesEqual(), results(same, same)).outcome is Outcome.PASSED


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
    assert finding.outcome is Outcome.UNSUPPORTED
    assert finding.reason == "a compile-only target runs nothing"
    assert finding.advice == "run it on cpu"


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_a_program_without_values_fails_the_claim_and_is_named(whose: str) -> None:
    ours, theirs = (
        replace(each, values=None) if whose == mine else each
        for mine, each in (("ours", GOOD), ("theirs", SAVED))
    )
    finding = judge(claims.ValuesEqual(), replace(case(), evidence=ours, others={"save": theirs}))
    assert finding.outcome is Outcome.FAILED
    lacks = GOOD if whose == "ours" else SAVED
    assert f"the program of {lacks.variant!r} gives no values" in finding.reason


def test_a_program_that_does_not_run_fails_the_claim() -> None:
    seen = case(failure=failure(FailureKind.EXECUTION), values=None)
    finding = judge(claims.ValuesEqual(), seen)
    assert finding.outcome is Outcome.FAILED
    assert "does not run" in finding.reason
