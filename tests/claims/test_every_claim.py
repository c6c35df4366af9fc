"""What holds of every claim that Assay ships, whatever it measures."""

import re
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from typing import Any

import pytest

from assay import claims
from assay.judge.case import judge, judge_negative_control
from assay.model.claim import Case, Claim, Formula
from assay.model.evidence import FailureKind
from assay.model.module import Direction
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome

from .cases import OTHERS, STACK_BYTES, TEMP_BYTES, TRACED, UNAVAILABLE, case, failure, formula
from .examples import (
    ANYWHERE,
    COMPARING,
    COMPILED,
    EXAMPLES,
    FAMILIES,
    FROM_MEMORY,
    FROM_MODULE,
    PLACEMENT,
    STACK,
    TRACED_ONLY,
    Example,
    name_of,
)

every = pytest.mark.parametrize("example", EXAMPLES, ids=name_of)

NUMBERS = {
    "compiles": ((0, 0), (1, 0)),
    "runs": ((0, 0), (1, 0)),
    "fits-device": ((TEMP_BYTES + 600, 80 * 2**30), (80 * 2**30 + 600, 80 * 2**30)),
    "host-bytes": ((STACK_BYTES, STACK_BYTES), (STACK_BYTES - 1, STACK_BYTES)),
    "device-bytes-fall": ((STACK_BYTES, STACK_BYTES), (STACK_BYTES - 1, STACK_BYTES)),
    "no-worse-than-nothing": ((10_100, 10_100), (10_101, 10_100)),
    "temp-bytes": ((TEMP_BYTES, TEMP_BYTES), (TEMP_BYTES + 1, TEMP_BYTES)),
    "residuals-on-host": ((STACK_BYTES, STACK_BYTES), (0, STACK_BYTES)),
    "names-match": ((0, 0), (1, 0)),
    "to-host-bytes": ((STACK_BYTES, STACK_BYTES), (0, STACK_BYTES)),
    "to-device-bytes": ((STACK_BYTES, STACK_BYTES), (2 * STACK_BYTES, STACK_BYTES)),
    "temp-bytes-at-most": ((TEMP_BYTES, TEMP_BYTES), (TEMP_BYTES + 1, TEMP_BYTES)),
    "fits-budget": ((TEMP_BYTES + 600, TEMP_BYTES + 600), (TEMP_BYTES + 601, TEMP_BYTES + 600)),
    "copied-bytes-per-iteration": ((0, 0), (STACK_BYTES, 0)),
    "collective-bytes": ((100, 100), (150, 100)),
    "process-bytes": ((100, 100), (101, 100)),
    "time-growth": ((2.8 / 8, 8**-0.5), (2.9 / 8, 8**-0.5)),
    "time-exponent": ((0.9, 1), (1.1, 1)),
    "temp-bytes-exponent": ((1, 1), (2, 1)),
    "copied-bytes-per-iteration-exponent": ((0, 0), (1, 0)),
    "sent-tensors-per-step": ((0, 0), (46, 0)),
    "sent-bytes-per-step": ((0, 0), (8, 0)),
    "sent-bytes-while-tracing": ((8, 8), (9, 8)),
    "parameters": ((2, 2), (1, 2)),
    "graphs-compiled": ((2, 2), (3, 2)),
    "steps-until-last-compile": ((2, 2), (3, 2)),
    "refuses": ((0, 0), (1, 0)),
}
"""What is measured and the limit, of each claim's good evidence and of its negative control."""


def verdict_on(example: Example, **fields: Any) -> Finding:
    evidence = replace(example.passes.evidence, **fields)
    return judge(example.claim, replace(example.passes, evidence=evidence))


def test_every_shipped_claim_has_an_example_here() -> None:
    shipped = {name for name in claims.__all__ if is_dataclass(getattr(claims, name))}
    assert {type(example.claim).__name__ for example in EXAMPLES} == shipped


def test_no_two_claims_share_a_name() -> None:
    names = [example.claim.name for example in EXAMPLES]
    assert len(set(names)) == len(names)


@every
def test_good_evidence_passes_the_claim_with_both_numbers(example: Example) -> None:
    finding = judge(example.claim, example.passes)
    assert finding.outcome is Outcome.PASSED, finding.reason
    assert finding.measured is not None
    assert finding.limit is not None
    assert finding.reason


@pytest.mark.parametrize("name", NUMBERS)
def test_both_verdicts_carry_what_was_measured_and_the_limit(name: str) -> None:
    (example,) = [each for each in EXAMPLES if each.claim.name == name]
    findings = [judge(example.claim, each) for each in (example.passes, example.fails)]
    assert [(each.measured, each.limit) for each in findings] == [
        (pytest.approx(measured), pytest.approx(limit)) for measured, limit in NUMBERS[name]
    ]


@pytest.mark.parametrize(
    "example", [one for one in EXAMPLES if one.claim.unit is not Unit.SECONDS], ids=name_of
)
def test_a_claim_reads_a_baseline_only_if_it_says_so(example: Example) -> None:
    finding = judge(example.claim, replace(example.passes, baseline=None))
    assert (finding.outcome is not Outcome.PASSED) == example.claim.uses_baseline


@every
def test_the_control_fails_the_claim_by_a_measurement(example: Example) -> None:
    finding = judge(example.claim, example.fails)
    assert finding.outcome is Outcome.FAILED
    assert finding.measured != finding.limit
    kind = finding.failure.kind if finding.failure else None
    control = replace(example.fails, variant=replace(example.fails.variant, fails_with=kind))
    assert judge_negative_control(example.claim, control).outcome is Outcome.PASSED


@every
def test_a_control_that_passes_the_claim_fails(example: Example) -> None:
    assert judge_negative_control(example.claim, example.passes).outcome is Outcome.FAILED


@every
def test_a_claim_is_a_value(example: Example) -> None:
    claim: Any = example.claim
    for field in fields(claim):
        with pytest.raises(FrozenInstanceError):
            setattr(claim, field.name, None)
    assert replace(claim) == claim


@every
def test_an_unavailable_target_is_unsupported_with_the_remedy(example: Example) -> None:
    finding = verdict_on(example, unavailable=UNAVAILABLE)
    assert finding == Finding(
        outcome=Outcome.UNSUPPORTED, reason=UNAVAILABLE.reason, advice=UNAVAILABLE.remedy
    )


@pytest.mark.parametrize("kind", [FailureKind.COMPILER, FailureKind.CRASH, FailureKind.TIMEOUT])
@pytest.mark.parametrize("example", COMPILED, ids=name_of)
def test_the_variants_own_failure_fails_the_claim_without_a_number(
    example: Example, kind: FailureKind
) -> None:
    finding = verdict_on(example, failure=failure(kind), memory=None, module=None, values=None)
    assert finding.outcome is Outcome.FAILED
    assert finding.measured is None
    assert finding.failure == failure(kind)
    assert finding.reason == f"nothing to measure: it {kind.phrase}: INTERNAL: it broke"


@pytest.mark.parametrize("example", TRACED_ONLY, ids=name_of)
def test_a_tracing_claim_is_judged_even_where_the_compiler_fails(example: Example) -> None:
    finding = verdict_on(example, failure=failure(), memory=None, module=None)
    assert finding.outcome is Outcome.PASSED


@pytest.mark.parametrize("example", TRACED_ONLY, ids=name_of)
def test_a_program_that_does_not_trace_fails_a_tracing_claim(example: Example) -> None:
    finding = verdict_on(example, failure=failure(FailureKind.TRACE), traced=None)
    assert finding.outcome is Outcome.FAILED
    assert "does not trace" in finding.reason


@pytest.mark.parametrize("example", COMPARING, ids=name_of)
def test_a_reference_variants_failure_leaves_the_claim_inconclusive(example: Example) -> None:
    failed = {name: replace(other, failure=failure()) for name, other in OTHERS.items()}
    finding = judge(example.claim, replace(example.passes, others=failed))
    assert (finding.outcome, finding.failure) == (Outcome.INCONCLUSIVE, None)
    (needed,) = example.claim.needs(example.passes.variant)
    assert f"reference variant {needed!r}" in finding.reason


@pytest.mark.parametrize("example", COMPARING, ids=name_of)
def test_a_reference_variant_that_cannot_run_leaves_the_claim_unsupported(example: Example) -> None:
    absent = {name: replace(other, unavailable=UNAVAILABLE) for name, other in OTHERS.items()}
    finding = judge(example.claim, replace(example.passes, others=absent))
    assert finding.outcome is Outcome.UNSUPPORTED


@pytest.mark.parametrize("example", COMPARING, ids=name_of)
def test_a_claim_that_compares_variants_announces_which(example: Example) -> None:
    needed = example.claim.needs(example.passes.variant)
    only = {name: OTHERS[name] for name in needed}
    assert judge(example.claim, replace(example.passes, others=only)).outcome is Outcome.PASSED
    finding = judge(example.claim, replace(example.passes, others={}))
    assert finding.outcome is Outcome.ERROR
    assert repr(needed[0]) in finding.reason


@pytest.mark.parametrize(
    "example",
    [one for one in EXAMPLES if one not in COMPARING and one not in FAMILIES],
    ids=name_of,
)
def test_a_claim_on_one_variant_needs_no_other(example: Example) -> None:
    assert example.claim.needs(example.passes.variant) == ()
    assert judge(example.claim, replace(example.passes, others={})).outcome is Outcome.PASSED


@pytest.mark.parametrize("example", FROM_MEMORY, ids=name_of)
def test_a_missing_memory_analysis_is_an_error_not_a_pass(example: Example) -> None:
    finding = verdict_on(example, memory=None)
    assert finding.outcome is Outcome.ERROR
    assert "memory analysis of stack/" in finding.reason


@pytest.mark.parametrize("example", [one for one in COMPARING if one in FROM_MEMORY], ids=name_of)
def test_a_reference_variants_missing_memory_analysis_is_an_error(example: Example) -> None:
    blind = {name: replace(other, memory=None) for name, other in OTHERS.items()}
    finding = judge(example.claim, replace(example.passes, others=blind))
    assert finding.outcome is Outcome.ERROR


@pytest.mark.parametrize("example", FROM_MODULE, ids=name_of)
def test_a_missing_module_is_an_error_not_a_pass(example: Example) -> None:
    finding = verdict_on(example, module=None)
    assert finding.outcome is Outcome.ERROR
    assert "HLO module" in finding.reason


@pytest.mark.parametrize("example", TRACED_ONLY, ids=name_of)
def test_a_missing_jaxpr_is_an_error_not_a_pass(example: Example) -> None:
    finding = verdict_on(example, traced=None)
    assert finding.outcome is Outcome.ERROR
    assert "jaxpr" in finding.reason


@pytest.mark.parametrize("example", PLACEMENT, ids=name_of)
def test_a_placement_claim_cannot_run_where_host_and_device_share_memory(example: Example) -> None:
    finding = verdict_on(example, separate_host_memory=False)
    assert finding.outcome is Outcome.UNSUPPORTED
    assert (
        finding.advice
        == "use a GPU or TPU target, with jax 0.8.2 or newer if the device is not present"
    )


@pytest.mark.parametrize("example", PLACEMENT, ids=name_of)
def test_a_placement_that_lowering_dropped_is_unsupported_not_failed(example: Example) -> None:
    dropped = replace(TRACED, host_placements_traced=1, placements_lowered=0)
    finding = verdict_on(example, traced=dropped)
    assert finding.outcome is Outcome.UNSUPPORTED
    assert "jax 0.8.2" in finding.advice


@pytest.mark.parametrize("example", PLACEMENT, ids=name_of)
def test_a_program_that_places_nothing_is_judged(example: Example) -> None:
    unplaced = replace(TRACED, host_placements_traced=0, placements_lowered=0)
    assert verdict_on(example, traced=unplaced).outcome is Outcome.PASSED


@pytest.mark.parametrize("example", ANYWHERE, ids=name_of)
def test_what_placement_does_not_touch_is_judged_on_cpu_too(example: Example) -> None:
    finding = verdict_on(example, separate_host_memory=False)
    assert finding.outcome is Outcome.PASSED


WITH_FORMULA = (
    lambda limit: claims.HostBytes(equal=limit),
    lambda limit: claims.DeviceBytesFall(by=limit),
    lambda limit: claims.DeviceBytesAtMost(against="nothing", beyond=limit),
    lambda limit: claims.ResidualsOnHost(equal=limit),
    lambda limit: claims.TransferredBytes(direction=Direction.TO_HOST, equal=limit),
)


@pytest.mark.parametrize("build", WITH_FORMULA)
@pytest.mark.parametrize("unit", [unit for unit in Unit if unit is not Unit.BYTES])
def test_a_limit_of_the_wrong_unit_fails_the_claim(build: Any, unit: Unit) -> None:
    claim: Claim = build(formula(STACK.of(case()).value, unit))  # type: ignore[arg-type] # an int
    finding = judge(claim, case())
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, None)
    assert "name the same unit in the claim and in its limit" in finding.reason


@every
def test_a_formula_is_given_the_case(example: Example) -> None:
    seen: list[Case] = []

    def watched(formula: Formula) -> Formula:
        def limit(case: Case) -> Quantity:
            seen.append(case)
            return formula.of(example.passes)

        return Formula(formula.text, limit)

    values = {field.name: getattr(example.claim, field.name) for field in fields(example.claim)}
    formulas = {name: watched(each) for name, each in values.items() if isinstance(each, Formula)}
    judge(replace(example.claim, **formulas), example.passes)
    assert {id(case) for case in seen} <= {id(example.passes)}
    assert len(seen) >= len(formulas)


@every
def test_a_reason_names_what_is_measured_and_shows_no_record(example: Example) -> None:
    for case_ in (example.passes, example.fails):
        assert not re.search(r"\w+\(\w+=", judge(example.claim, case_).reason)


@pytest.mark.parametrize("build", WITH_FORMULA)
def test_a_formula_that_fails_fails_the_claim_at_its_own_line(build: Any) -> None:
    def divided_by_zero(_: object) -> Quantity:
        return Quantity(1 // 0, Unit.BYTES)

    finding = judge(build(Formula("a formula", divided_by_zero)), case())
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, None)
    assert "test_every_claim.py:" in finding.reason
    assert "ZeroDivisionError" in finding.reason
