"""Coverage in words: what was reached, what is missing and what to do."""

from dataclasses import replace

from assay.model.verdict import Count, Gap, Reached, Slot
from assay.report.labels import coverage_line, missing_of, nothing_judged

JAX = Slot("jax", "mine", "cpu:8", "compiles")
TORCH = Slot("torch_xla", "lazy", "cpu:8", "compiles")

STORED = ("cpu:8",)


def reached(counts: dict[Slot, Count], noisy: int = 0) -> Reached:
    return Reached(
        counts=counts,
        not_run=(),
        reasons={},
        suites=(),
        targets=("cpu:8",),
        folders={},
        noisy=noisy,
    )


def test_the_line_counts_no_verdict_twice_and_names_what_is_left_out() -> None:
    expected = {JAX: Count(3, 3), TORCH: Count(4, 4)}
    line = coverage_line(
        expected, reached({JAX: Count(5, 5)}), {"torch_xla": "not installed"}, STORED
    )
    assert line == (
        "3 of 3 expected verdicts judged on 1 target; 4 verdicts of 1 suite not run: not "
        "installed; 2 more than expected, record them with --assay-update-baselines=new"
    )


def test_the_line_counts_what_judged_and_what_was_too_noisy() -> None:
    line = coverage_line({JAX: Count(6, 5)}, reached({JAX: Count(6, 4)}, noisy=1), {}, STORED)
    assert line == "3 of 5 expected verdicts judged on 1 target; 1 timing inconclusive"
    other = Slot("jax", "mine", "cpu:8", "new")
    line = coverage_line({}, reached({other: Count(2, 1)}), {}, STORED)
    assert "2 more than expected" in line


def test_a_target_without_expected_verdicts_is_named() -> None:
    seen = reached({JAX._replace(target="cpu"): Count(2, 2)})
    line = coverage_line({}, seen, {}, ("gpu-h100:8", "cpu:8"))
    assert line == (
        "no expected verdicts are stored for cpu, only for cpu:8, gpu-h100:8, so missing ones are "
        "not detected; 2 more than expected, record them with --assay-update-baselines=new"
    )
    both = replace(seen, counts={**seen.counts, JAX: Count(3, 3)})
    line = coverage_line({JAX: Count(3, 3)}, both, {}, STORED)
    assert "stored for cpu, only for cpu:8, so" in line
    assert "; 3 of 3 expected verdicts judged on 1 target; 2 more than" in line
    assert coverage_line({}, seen, {}, ()).startswith("no expected verdicts are stored for cpu, so")


def test_a_target_that_is_not_available_is_one_line() -> None:
    gaps = [Gap("jax", suite, "tpu-v4", 3, 0, "", ("compiles",)) for suite in ("a", "b")]
    (line,) = missing_of(gaps, {"tpu-v4": "no libtpu; pip install libtpu"})
    assert line.reason == "tpu-v4 is not available: no libtpu; pip install libtpu"


def test_a_gap_names_some_claims_and_what_to_do() -> None:
    (line,) = missing_of([Gap("jax", "a", "cpu:8", 9, 2, "", tuple("vwxyz"))], {})
    assert line.reason == (
        "a on cpu:8: 2 of 9 expected verdicts judged (v, w, x, y and 1 more): bring the checks "
        "back, or store that with --assay-update-baselines=all"
    )
    (line,) = missing_of([Gap("jax", "a", "cpu:8", 9, 8, "no compiler", ("v",))], {})
    assert line.reason == "a on cpu:8: 8 of 9 expected verdicts judged (v): no compiler"


def test_a_named_target_without_verdicts_says_why() -> None:
    assert nothing_judged("tpu", ["no device"]).reason == "nothing was judged on tpu: no device"
    assert "no workload's scopes" in nothing_judged("tpu", []).reason
