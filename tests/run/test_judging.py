"""A run observes once and judges often; every verdict is one whole record."""

from dataclasses import dataclass

import pytest

from assay import claims
from assay.model.claim import Case, Formula
from assay.model.defect import KnownDefect, Measures, Upstream
from assay.model.evidence import Evidence, Failure, FailureKind, Toolchain
from assay.model.units import Quantity, Unit
from assay.model.verdict import RECORD_SCHEMA, Finding, Outcome
from assay.model.workload import Variant, Workload
from assay.run import BaselineUpdate
from assay.store.evidence import load_all

from .fakes import NEGATIVE_CONTROL, NOW, OFFLOAD, OLD, SAVE, TARGET, Harness, measuring, trial

FALLS = claims.DeviceBytesFall(by=Formula("a thousand", lambda _: Quantity(1000, Unit.BYTES)))
FITS = claims.FitsDevice()


def test_evidence_is_observed_once_over_many_claims(harness: Harness) -> None:
    harness.judge(
        trial(claim=FITS), trial(claim=claims.Compiles()), trial(claim=FALLS), trial(SAVE, FITS)
    )
    assert harness.observed.asked == {
        ("stack", "offload", TARGET): 1,
        ("stack", "save", TARGET): 1,
    }


def test_each_target_is_observed_by_itself(harness: Harness) -> None:
    harness.judge(trial(claim=FITS), trial(claim=FITS, target="cpu"))
    assert set(harness.observed.asked.values()) == {1}
    assert len(harness.observed.asked) == 2


def test_a_new_run_observes_anew(harness: Harness) -> None:
    harness.judge(trial(claim=FITS))
    harness.judge(trial(claim=FITS))
    assert harness.observed.asked == {("stack", "offload", TARGET): 2}


def test_only_the_variants_that_a_claim_needs_are_observed(harness: Harness) -> None:
    harness.judge(trial(claim=FITS))
    assert list(harness.observed.asked) == [("stack", "offload", TARGET)]


def test_a_run_keeps_what_it_observed(harness: Harness) -> None:
    run = harness.start()
    run.judge_timed(trial(claim=FITS))
    assert [seen.variant for seen in load_all(run.directory)] == ["offload"]


def test_a_record_says_what_was_judged_and_on_what(harness: Harness) -> None:
    (record,) = harness.judge(trial(claim=FALLS))
    assert (record.schema, record.run, record.suite) == (RECORD_SCHEMA, "run-1", "scan")
    assert (record.workload, record.variant, record.claim) == (
        "stack",
        "offload",
        "device-bytes-fall",
    )
    assert (record.target, record.toolchain) == (TARGET, OLD)
    assert (record.verdict, record.measured, record.limit) == (Outcome.PASSED, 1000, 1000)
    assert (record.unit, record.baseline, record.upstream) == (Unit.BYTES, None, "")
    assert 0 <= record.seconds < 60
    assert not record.must_fail


def test_a_known_defect_puts_its_link_on_the_record(harness: Harness) -> None:
    defect = KnownDefect(
        variants=("offload",),
        expects={"fits-device": Measures()},
        targets=("gpu*",),
        reason="too large",
        upstream=Upstream(link="https://example.org/1"),
        last_seen="2026-11-20",
    )
    harness.observed.temp_bytes["offload"] = 2**21
    (record,) = harness.judge(trial(claim=FITS, defects=(defect,)))
    assert (record.verdict, record.upstream) == (Outcome.KNOWN_DEFECT, defect.upstream.link)


def test_a_control_is_recorded_as_one(harness: Harness) -> None:
    (record,) = harness.judge(trial(NEGATIVE_CONTROL, FALLS, must_fail=True))
    assert (record.claim, record.verdict) == ("device-bytes-fall.negative-control", Outcome.PASSED)
    assert record.must_fail


def test_a_control_that_passes_the_claim_fails_the_run(harness: Harness) -> None:
    (record,) = harness.judge(trial(NEGATIVE_CONTROL, FITS, must_fail=True))
    assert record.verdict is Outcome.FAILED
    assert "cannot detect the fault" in record.reason


def test_a_known_defect_does_not_excuse_the_control(harness: Harness) -> None:
    anything = KnownDefect(
        variants=("*",),
        expects={"*": Measures()},
        targets=("*",),
        reason="",
        upstream=Upstream(link="link"),
        last_seen="",
    )
    (record,) = harness.judge(trial(NEGATIVE_CONTROL, FITS, must_fail=True, defects=(anything,)))
    assert (record.verdict, record.upstream) == (Outcome.FAILED, "")


def test_a_trial_reads_as_workload_variant_and_target() -> None:
    assert str(trial()) == f"stack/offload@{TARGET}"
    assert (
        str(trial(NEGATIVE_CONTROL, must_fail=True))
        == f"stack/negative_control@{TARGET}/negative-control"
    )
    assert trial().claim_name == "temp-bytes"


def test_an_observer_that_fails_is_no_verdict_and_is_asked_again(harness: Harness) -> None:
    run = harness.start()

    def fail(workload: Workload, variant: Variant, target: str, _growth: float | None) -> Evidence:
        raise RuntimeError(f"{workload.name}/{variant.name}@{target}")

    failing = measuring(run, observe=fail)
    with pytest.raises(RuntimeError, match="stack/offload"):
        failing.judge_timed(trial(claim=FITS))
    assert run.judge_timed(trial(claim=FITS))[0].verdict is Outcome.PASSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Rude:
    """A claim of someone else's that fails."""

    name: str = "rude"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        return (variant.reference,)

    def judge(self, case: Case) -> Finding:
        raise KeyError(case.other("save").variant)


def test_a_claim_that_raises_names_its_line_on_the_record(harness: Harness) -> None:
    (record,) = harness.judge(trial(OFFLOAD, Rude()))
    assert record.verdict is Outcome.FAILED
    assert "claim 'rude'" in record.reason
    assert record.reason.endswith(": KeyError: 'save'")


def test_a_record_carries_the_toolchain_of_its_own_evidence(harness: Harness) -> None:
    harness.observed.versions = dict(NOW)
    (record,) = harness.judge(trial(claim=FITS))
    assert record.toolchain == Toolchain(versions=NOW).versions


def test_only_bytes_that_regressed_suggest_to_compare_the_programs(harness: Harness) -> None:
    harness.observed.hlo_gz = b"a module"
    harness.judge(trial(), update=BaselineUpdate.NEW)
    harness.observed.temp_bytes["offload"] = 5000
    (more,) = harness.judge(trial())
    assert more.verdict is Outcome.FAILED
    assert "assay inspect " in more.advice
    harness.observed.failures["offload"] = Failure(kind=FailureKind.COMPILER, message="it broke")
    failed = harness.judge(trial(), trial(claim=claims.Compiles()))
    assert [(each.verdict, "assay inspect" in each.advice) for each in failed] == [
        (Outcome.FAILED, False)
    ] * 2
