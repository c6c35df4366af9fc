"""How a run ends: an error outranks a failed claim, and a run that judged nothing is no pass."""

from collections.abc import Iterable

import pytest

from assay.model.units import Unit
from assay.model.verdict import MUST_FAIL, RECORD_SCHEMA, ExitCode, Outcome, Record, exit_code

GOOD = (Outcome.PASSED, Outcome.KNOWN_DEFECT, Outcome.IMPROVED)
UNJUDGED = (Outcome.UNSUPPORTED, Outcome.INCONCLUSIVE)


def records(outcomes: Iterable[Outcome], claim: str = "compiles") -> list[Record]:
    return [
        Record(
            schema=RECORD_SCHEMA,
            run="run",
            suite="suite",
            workload="work",
            variant="variant",
            claim=claim,
            target="cpu:8",
            toolchain={},
            verdict=outcome,
            measured=1,
            limit=1,
            unit=Unit.COUNT,
            baseline=None,
            reason="",
            advice="",
            upstream="",
            seconds=0.0,
        )
        for outcome in outcomes
    ]


def test_what_fails_a_run_is_fixed() -> None:
    failing = {outcome for outcome in Outcome if outcome.fails}
    assert failing == {Outcome.FAILED, Outcome.FIXED_UPSTREAM, Outcome.ERROR}


def test_what_was_not_put_to_the_test_is_fixed() -> None:
    unjudged = {outcome for outcome in Outcome if not outcome.judged}
    assert unjudged == {*UNJUDGED, Outcome.ERROR}


@pytest.mark.parametrize("good", GOOD)
@pytest.mark.parametrize("unjudged", UNJUDGED)
def test_one_good_verdict_beside_unjudged_ones_is_a_pass(good: Outcome, unjudged: Outcome) -> None:
    assert exit_code(records([unjudged, good, unjudged])) is ExitCode.PASSED


@pytest.mark.parametrize("bad", [Outcome.FAILED, Outcome.FIXED_UPSTREAM])
def test_one_bad_verdict_fails_the_run(bad: Outcome) -> None:
    assert exit_code(records([*GOOD, bad, *GOOD])) is ExitCode.FAILED


@pytest.mark.parametrize("other", [outcome for outcome in Outcome if outcome is not Outcome.ERROR])
def test_an_error_outranks_everything(other: Outcome) -> None:
    assert exit_code(records([other, Outcome.ERROR, other])) is ExitCode.CRASHED


@pytest.mark.parametrize("outcomes", [[], [*UNJUDGED]], ids=["empty", "unjudged"])
def test_a_run_that_judged_nothing_is_no_pass(outcomes: list[Outcome]) -> None:
    assert exit_code(records(outcomes)) is ExitCode.FAILED


@pytest.mark.parametrize("unjudged", [[], [*UNJUDGED]], ids=["alone", "beside-unjudged"])
def test_a_run_that_judged_controls_only_is_no_pass(unjudged: list[Outcome]) -> None:
    controls = records([Outcome.PASSED], "compiles" + MUST_FAIL)
    assert exit_code([*controls, *records(unjudged)]) is ExitCode.FAILED
    assert exit_code([*controls, *records([Outcome.PASSED])]) is ExitCode.PASSED
