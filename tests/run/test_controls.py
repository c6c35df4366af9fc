"""No arm is kept unless every negative control broke the claim on the same workload and target."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from assay import claims
from assay.model.claim import Case, Formula
from assay.model.evidence import Failure, FailureKind, Unavailable
from assay.model.trial import Trial
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Arm
from assay.run import Accept
from assay.store import baselines

from .fakes import NOW, OFFLOAD, SAVE, TARGET, TWIN, Harness, trial

FITS = claims.FitsDevice()
"""Broken above 1 MiB, which none of the harness's arms needs."""

AT_MOST = claims.TempBytesAtMost(limit=Formula("two", lambda _: Quantity(2000, Unit.BYTES)))
CRASH = Failure(kind=FailureKind.CRASH, message="ended by SIGSEGV")
TOO_LARGE = Failure(
    kind=FailureKind.OUT_OF_MEMORY, message="no room", needed_bytes=2**21, capacity_bytes=2**20
)


def control_of(arm: Trial) -> Trial:
    (control,) = arm.controls
    return control


def test_an_arm_is_kept_where_its_control_fails(harness: Harness) -> None:
    arm = trial(claim=AT_MOST, twins=(TWIN,))
    kept, control = harness.judge(arm, control_of(arm))
    assert (kept.verdict, control.verdict) == (Outcome.KEPT, Outcome.KEPT)


def test_an_arm_is_not_measured_where_its_control_passes(harness: Harness) -> None:
    arm = trial(claim=FITS, twins=(TWIN,))
    (alone,) = harness.judge(arm)
    assert alone.verdict is Outcome.NOT_MEASURED
    assert alone.reason.startswith("the negative control 'twin' did not fail: ")
    kept, control = harness.judge(arm, control_of(arm))
    assert (kept.verdict, control.verdict) == (Outcome.NOT_MEASURED, Outcome.BROKEN)


def test_one_of_two_controls_that_passes_is_enough_to_doubt_the_arm(harness: Harness) -> None:
    harness.observed.temp_bytes["save"] = 1
    (record,) = harness.judge(trial(claim=AT_MOST, twins=(TWIN, SAVE)))
    assert record.verdict is Outcome.NOT_MEASURED
    assert "the negative control 'save' did not fail" in record.reason


def test_a_control_that_crashes_fails_the_run_and_its_arm_is_not_kept(harness: Harness) -> None:
    harness.observed.failures["twin"] = CRASH
    arm = trial(claim=AT_MOST, twins=(TWIN,))
    record, control = harness.judge(arm, control_of(arm))
    assert (record.verdict, control.verdict) == (Outcome.NOT_MEASURED, Outcome.BROKEN)
    assert "SIGSEGV" in control.reason


@pytest.mark.parametrize(
    ("fails_with", "verdict"),
    [(FailureKind.OUT_OF_MEMORY, Outcome.KEPT), (None, Outcome.NOT_MEASURED)],
)
def test_a_control_may_be_refused_for_memory_if_its_arm_says_so(
    harness: Harness, fails_with: FailureKind | None, verdict: Outcome
) -> None:
    harness.observed.failures["twin"] = TOO_LARGE
    (record,) = harness.judge(trial(claim=FITS, twins=(replace(TWIN, fails_with=fails_with),)))
    assert record.verdict is verdict


def test_a_control_that_cannot_run_fails_the_run_where_the_claim_can(harness: Harness) -> None:
    harness.observed.unavailable["twin"] = Unavailable(reason="no such memory", remedy="none")
    arm = trial(claim=AT_MOST, twins=(TWIN,))
    record, control = harness.judge(arm, control_of(arm))
    assert (record.verdict, control.verdict) == (Outcome.NOT_MEASURED, Outcome.BROKEN)
    assert "cannot be judged here: no such memory" in control.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """A claim with one finding for each arm."""

    of: Mapping[str, Finding]
    name: str = "says"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, arm: Arm) -> tuple[str, ...]:
        return ()

    def judge(self, case: Case) -> Finding:
        return self.of[case.arm.name]


@pytest.mark.parametrize(
    ("arm_outcome", "control_outcome"),
    [(Outcome.KEPT, Outcome.BROKEN), (Outcome.NOT_MEASURED, Outcome.NOT_MEASURED)],
)
def test_a_control_without_a_measurement_fails_the_run_where_the_claim_has_one(
    harness: Harness, arm_outcome: Outcome, control_outcome: Outcome
) -> None:
    unmeasured = Finding(outcome=Outcome.NOT_MEASURED, reason="it does not show")
    kept = Finding(outcome=Outcome.KEPT, measured=1, limit=2, reason="it shows")
    own = kept if arm_outcome is Outcome.KEPT else unmeasured
    arm = trial(claim=Says(of={"offload": own, "twin": unmeasured}), twins=(TWIN,))
    record, control = harness.judge(arm, control_of(arm))
    assert (record.verdict, control.verdict) == (Outcome.NOT_MEASURED, control_outcome)


def test_a_control_cannot_run_where_the_claim_cannot(harness: Harness) -> None:
    missing = Unavailable(reason="no compiler", remedy="install one")
    harness.observed.unavailable.update(twin=missing, offload=missing)
    arm = trial(claim=AT_MOST, twins=(TWIN,))
    records = harness.judge(arm, control_of(arm))
    assert [record.verdict for record in records] == [Outcome.CANNOT_RUN] * 2


def test_a_broken_arm_stays_broken_whatever_its_control_does(harness: Harness) -> None:
    harness.observed.temp_bytes["offload"] = 2001
    harness.observed.failures["twin"] = CRASH
    (record,) = harness.judge(trial(claim=AT_MOST, twins=(TWIN,)))
    assert record.verdict is Outcome.BROKEN


@pytest.mark.parametrize("accept", [Accept.NEW, Accept.ALL])
def test_a_number_is_accepted_only_where_the_control_is_worse_than_it(
    harness: Harness, accept: Accept
) -> None:
    harness.observed.temp_bytes["twin"] = 2000
    (blind,) = harness.judge(trial(SAVE, twins=(TWIN,)), accept=accept)
    assert (blind.verdict, blind.baseline) == (Outcome.NOT_MEASURED, None)
    assert not harness.baselines.exists()
    harness.observed.temp_bytes["twin"] = 3000
    arm = trial(SAVE, twins=(TWIN,))
    first, control = harness.judge(arm, control_of(arm), accept=accept)
    assert (first.verdict, control.verdict, control.limit) == (Outcome.KEPT, Outcome.KEPT, 2000)
    assert baselines.load(harness.baselines, "scan", TARGET).accepted


def test_a_better_number_that_the_control_reaches_too_is_not_improved(harness: Harness) -> None:
    harness.judge(trial(SAVE), accept=Accept.NEW)
    harness.observed.versions = dict(NOW)
    harness.observed.temp_bytes.update(save=1000, twin=1000)
    (record,) = harness.judge(trial(SAVE, twins=(TWIN,)))
    assert record.verdict is Outcome.NOT_MEASURED
    assert record.baseline is not None


def test_controls_are_observed_once_for_all_arms(harness: Harness) -> None:
    harness.judge(*(trial(arm, AT_MOST, twins=(TWIN,)) for arm in (OFFLOAD, SAVE)))
    assert harness.observed.asked["stack", "twin", TARGET] == 1
