"""Whatever goes wrong while judging is an error, never a pass.

A negative control must fail its claim.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, nan
from typing import Any, cast

import pytest

from assay.judge.case import at_fault, judge, judge_negative_control, judge_variant, vouched
from assay.model.blame import WrongValue
from assay.model.claim import Case, Claim, Formula, Stopped
from assay.model.defect import KnownDefect, Measures, Upstream, UpstreamState
from assay.model.evidence import Evidence, Failure, FailureKind, Toolchain
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Program, Role, Variant, Workload

PASSED = Finding(outcome=Outcome.PASSED, measured=1, limit=1, reason="it holds")
FAILED = Finding(outcome=Outcome.FAILED, measured=2, limit=1, reason="it does not", advice="fix")
UNMEASURED = Finding(outcome=Outcome.FAILED, reason="it did not compile")
IMPROVED = replace(PASSED, outcome=Outcome.IMPROVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """A claim that answers what the test wants."""

    answer: Callable[[], Finding]
    name: str = "says"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        assert variant.name
        return ()

    def judge(self, case: Case) -> Finding:
        assert case.evidence
        return self.answer()


def saying(finding: Finding) -> Says:
    return Says(answer=lambda: finding)


def raising(error: BaseException) -> Says:
    def fail() -> Finding:
        raise error

    return Says(answer=fail)


def _program(devices: Sequence[Any]) -> Program:
    raise AssertionError(devices)


DEFECT = KnownDefect(
    variants=("variant",),
    expects={"says": Measures(least=2, most=2)},
    targets=("cpu*",),
    reason="upstream drops it",
    upstream=Upstream(link="https://example.org/1"),
    last_seen="2026-11-20",
)


def case_with(*defects: KnownDefect) -> Case:
    variant = Variant(name="variant", role=Role.POLICY, program=_program)
    return Case(
        workload=Workload(suite="suite", name="work", variants=(variant,), known_defects=defects),
        variant=variant,
        evidence=Evidence(
            workload="work",
            variant="variant",
            target="cpu:8",
            toolchain=Toolchain(versions={"jaxlib": "0.10.2"}),
        ),
    )


CASE = case_with()


@pytest.mark.parametrize("finding", [PASSED, FAILED, UNMEASURED, IMPROVED])
def test_a_sound_finding_passes_through(finding: Finding) -> None:
    assert judge(saying(finding), CASE) == finding


@pytest.mark.parametrize("gap", [{"measured": None}, {"limit": None}])
@pytest.mark.parametrize("outcome", [Outcome.PASSED, Outcome.IMPROVED])
@pytest.mark.parametrize("way", [saying, lambda finding: raising(Stopped(finding))])
def test_passed_without_both_numbers_is_an_error(
    way: Callable[[Finding], Says], outcome: Outcome, gap: dict[str, None]
) -> None:
    finding = judge(way(replace(PASSED, outcome=outcome, **gap)), CASE)  # type: ignore[arg-type] # only numbers
    assert finding.outcome is Outcome.ERROR
    assert finding.reason == f"claim 'says' says {outcome.value} but measured nothing"


def test_passed_with_a_measured_zero_passes() -> None:
    zero = replace(PASSED, measured=0, limit=0)
    assert judge(saying(zero), CASE).outcome is Outcome.PASSED


@pytest.mark.parametrize("error", [ValueError("odd"), KeyError("gone"), AssertionError("no")])
def test_a_claim_that_raises_fails_and_names_its_line(error: Exception) -> None:
    finding = judge(raising(error), CASE)
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, None)
    assert "the check's own code failed (claim 'says'): " in finding.reason
    assert "test_case.py:" in finding.reason
    assert finding.reason.endswith(f": {type(error).__name__}: {error}")


def _in_assay(source: str) -> Callable[[], Finding]:
    """A function of Assay's own, as far as its frames tell."""
    module = {"__name__": "assay.claims.compile", "Finding": Finding}
    exec(compile(source, "assay/claims/compile.py", "exec"), module)
    return cast("Callable[[], Finding]", module["fail"])


def test_what_assay_itself_raises_is_an_error() -> None:
    finding = at_fault(_caught(_in_assay("def fail():\n    return Finding.gone")), "claim 'says'")
    assert finding.outcome is Outcome.ERROR
    where = "assay/claims/compile.py:2"
    assert finding.reason.startswith(f"claim 'says' failed: {where}: AttributeError: ")
    assert "fault of Assay" in finding.advice


def _caught(fail: Callable[[], object]) -> Exception:
    with pytest.raises(AttributeError) as raised:
        fail()
    # Without this file's own frame, as Assay catches it.
    assert raised.value.__traceback__
    return raised.value.with_traceback(raised.value.__traceback__.tb_next)


def test_two_units_that_meet_are_no_pass() -> None:
    def meet() -> Finding:
        limit = Formula("one", lambda _case: Quantity(1, Unit.COUNT))
        return Claim()._compare(CASE, "memory", 1, "=", limit)

    assert judge(Says(answer=meet), CASE).outcome is Outcome.FAILED


def test_an_interrupt_is_no_verdict() -> None:
    with pytest.raises(KeyboardInterrupt):
        judge(raising(KeyboardInterrupt()), CASE)


def test_a_stop_carries_its_own_finding() -> None:
    stopped = Finding(outcome=Outcome.UNSUPPORTED, reason="no such device")
    assert judge(raising(Stopped(stopped)), CASE) == stopped


@pytest.mark.parametrize(
    ("of_machine", "outcome"), [(True, Outcome.INCONCLUSIVE), (False, Outcome.FAILED)]
)
def test_a_machine_that_is_too_small_judges_no_program(
    *, of_machine: bool, outcome: Outcome
) -> None:
    failure = Failure(kind=FailureKind.MEMORY, message="too much", of_machine=of_machine)
    failed = Finding(outcome=Outcome.FAILED, measured=1, limit=0, failure=failure)
    finding = judge(saying(failed), case_with())
    assert finding.outcome is outcome
    assert ("not judged" in finding.reason) == of_machine


def test_a_variant_without_known_defects_is_judged_as_it_is() -> None:
    assert judge_variant(saying(FAILED), CASE) == (FAILED, None)


def test_failed_as_expected_is_a_known_defect() -> None:
    finding, defect = judge_variant(saying(FAILED), case_with(DEFECT))
    assert defect is DEFECT
    assert finding.outcome is Outcome.KNOWN_DEFECT
    assert (finding.measured, finding.limit) == (2, 1)
    assert finding.reason == "upstream drops it; seen: it does not"


@pytest.mark.parametrize(
    ("state", "closed", "remedies", "advice"),
    [
        (UpstreamState.OPEN, "", {}, "no action needed; open upstream"),
        (UpstreamState.OPEN, "", {"var*": "better"}, "use variant 'better'; open upstream"),
        (
            UpstreamState.CLOSED,
            "2025-03-01",
            {"variant": "better"},
            "use variant 'better'; closed upstream on 2025-03-01, still present",
        ),
        (
            UpstreamState.CLOSED,
            "",
            {"other": "better"},
            "no variant without the defect is known; closed upstream, still present",
        ),
        (
            UpstreamState.UNREPORTED,
            "",
            {},
            "no variant without the defect is known; not reported upstream",
        ),
    ],
)
def test_a_known_defect_leads_with_its_remedy_and_says_where_the_report_stands(
    state: UpstreamState, closed: str, remedies: dict[str, str], advice: str
) -> None:
    upstream = Upstream(link="https://example.org/1", state=state, closed=closed)
    entry = replace(DEFECT, upstream=upstream, remedies=remedies)
    finding, _ = judge_variant(saying(FAILED), case_with(entry))
    assert finding.advice == advice


def test_a_report_that_is_open_has_no_closing_date() -> None:
    with pytest.raises(WrongValue, match=r"wanted UpstreamState\.CLOSED"):
        Upstream(link="l", state=UpstreamState.OPEN, closed="2025-03-01")


def test_failed_in_another_way_stays_failed_and_says_so() -> None:
    worse = replace(FAILED, measured=3)
    finding, defect = judge_variant(saying(worse), case_with(DEFECT))
    assert (finding.outcome, defect) == (Outcome.FAILED, None)
    assert finding.reason.endswith("this is not the known defect (https://example.org/1)")
    assert judge_variant(saying(UNMEASURED), case_with(DEFECT))[0].outcome is Outcome.FAILED


def test_the_second_entry_speaks_where_the_first_expects_something_else() -> None:
    other = replace(DEFECT, expects={"says": Measures(least=3)})
    assert judge_variant(saying(FAILED), case_with(other, DEFECT))[1] is DEFECT


def test_an_expectation_that_cannot_be_computed_is_no_known_defect() -> None:
    def divided(_case: Case) -> float:
        return 1 // 0

    broken = replace(DEFECT, expects={"says": Measures(least=divided)})
    finding, defect = judge_variant(saying(FAILED), case_with(broken))
    assert (finding.outcome, defect) == (Outcome.FAILED, None)
    assert "ZeroDivisionError" in finding.reason


@pytest.mark.parametrize("better", [PASSED, IMPROVED])
def test_passed_against_expectation_is_fixed_upstream_and_asks_for_retirement(
    better: Finding,
) -> None:
    finding, _ = judge_variant(saying(better), case_with(DEFECT))
    assert finding.outcome is Outcome.FIXED_UPSTREAM
    assert finding.advice.startswith("retire the known defect last seen 2026-11-20")
    assert DEFECT.upstream.link in finding.advice


@pytest.mark.parametrize(
    "claim",
    [
        saying(replace(PASSED, measured=None)),
        saying(Finding(outcome=Outcome.UNSUPPORTED)),
        saying(Finding(outcome=Outcome.INCONCLUSIVE)),
    ],
    ids=["unmeasured", "unsupported", "inconclusive"],
)
def test_what_was_not_judged_is_never_a_known_defect(claim: Says) -> None:
    finding, _ = judge_variant(claim, case_with(DEFECT))
    assert finding == judge(claim, CASE)


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"workloads": ("other",)},
        {"variants": ("other",)},
        {"expects": {"else": Measures(least=2, most=2)}},
        {"targets": ("gpu",)},
        {"toolchain": {"jaxlib": ">=0.12"}},
    ],
)
def test_a_defect_of_something_else_excuses_nothing(elsewhere: dict[str, Any]) -> None:
    finding, defect = judge_variant(saying(FAILED), case_with(replace(DEFECT, **elsewhere)))
    assert (finding, defect) == (FAILED, None)


def test_a_control_that_fails_the_claim_passes() -> None:
    finding = judge_negative_control(saying(FAILED), CASE)
    assert finding.outcome is Outcome.PASSED
    assert finding.reason == "the negative control fails the claim, as it must: it does not"
    assert finding.advice == ""


@pytest.mark.parametrize("better", [PASSED, IMPROVED])
def test_a_control_that_passes_the_claim_shows_it_blind(better: Finding) -> None:
    finding = judge_negative_control(saying(better), CASE)
    assert finding.outcome is Outcome.FAILED
    assert "cannot detect the fault" in finding.reason
    assert finding.advice


def _control(fails_with: FailureKind | None) -> Case:
    return replace(CASE, variant=replace(CASE.variant, fails_with=fails_with))


COMPILER, TRACE = FailureKind.COMPILER, FailureKind.TRACE
UNCOMPILED, UNTRACED = (Failure(kind=kind, message="no") for kind in (COMPILER, TRACE))


@pytest.mark.parametrize(
    ("finding", "fails_with", "words"),
    [
        (UNMEASURED, None, "nothing was measured"),
        (replace(UNMEASURED, failure=UNTRACED), None, "names no failure"),
        (replace(UNMEASURED, failure=UNTRACED), TRACE, "nothing was measured"),
        (replace(FAILED, failure=UNTRACED), None, "names no failure"),
        (replace(FAILED, failure=UNTRACED), COMPILER, "names one that does not compile"),
        (replace(FAILED, limit=None), None, "nothing was measured"),
        (replace(FAILED, measured=inf), None, "is not finite"),
    ],
)
def test_a_control_that_fails_for_another_reason_fails_the_run(
    finding: Finding, fails_with: FailureKind | None, words: str
) -> None:
    found = judge_negative_control(saying(finding), _control(fails_with))
    assert found.outcome is Outcome.FAILED
    assert found.reason.startswith("the negative control proves nothing (")
    assert words in found.reason
    assert found.reason.endswith(finding.reason)


@pytest.mark.parametrize("failure", [None, UNCOMPILED])
def test_a_control_may_fail_as_its_variant_says_or_be_measured(failure: Failure | None) -> None:
    finding = replace(FAILED, failure=failure)
    assert judge_negative_control(saying(finding), _control(COMPILER)).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    "unproven", [outcome for outcome in Outcome if outcome is not Outcome.PASSED]
)
def test_nothing_passes_unless_every_control_failed_the_claim(unproven: Outcome) -> None:
    sound, other = Finding(outcome=Outcome.PASSED), Finding(outcome=unproven, reason="why")
    assert vouched(PASSED, [("a", sound), ("b", sound)]) == PASSED
    found = vouched(PASSED, [("a", sound), ("b", other)])
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.reason == "the negative control 'b' did not fail: why"


_KEEPING = (Outcome.PASSED, Outcome.IMPROVED)


@pytest.mark.parametrize(
    ("outcome", "number", "odd"),
    [
        *product(_KEEPING, ("measured", "limit"), (nan, inf, -inf)),
        *product((Outcome.FAILED,), ("limit",), (nan, inf, -inf)),
        (Outcome.FAILED, "measured", nan),
    ],
)
def test_a_number_that_is_not_finite_is_an_error(outcome: Outcome, number: str, odd: float) -> None:
    finding = judge(saying(replace(FAILED, outcome=outcome, **{number: odd})), CASE)  # type: ignore[arg-type] # only numbers
    assert finding.outcome is Outcome.ERROR
    assert f"{number}={odd}, which is not finite" in finding.reason


def test_an_infinite_difference_fails_a_claim() -> None:
    finding = replace(FAILED, measured=inf)
    assert judge(saying(finding), CASE) == finding


@pytest.mark.parametrize("outcome", [Outcome.UNSUPPORTED, Outcome.INCONCLUSIVE])
def test_a_control_that_cannot_be_judged_says_so(outcome: Outcome) -> None:
    assert judge_negative_control(saying(Finding(outcome=outcome)), CASE).outcome is outcome


def test_a_claim_that_raises_on_its_control_proves_nothing() -> None:
    assert judge_negative_control(raising(ValueError()), CASE).outcome is Outcome.FAILED


def test_a_known_defect_does_not_excuse_a_blind_control() -> None:
    assert judge_negative_control(saying(PASSED), case_with(DEFECT)).outcome is Outcome.FAILED
