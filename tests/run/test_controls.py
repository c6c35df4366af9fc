"""No variant passes unless every negative control failed on the same workload and target."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from assay import claims
from assay.model.claim import Case, Formula, Trial
from assay.model.evidence import Failure, FailureKind
from assay.model.target import Unavailable
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant
from assay.run import BaselineUpdate
from assay.store import baselines

from .fakes import NEGATIVE_CONTROL, NOW, OFFLOAD, SAVE, TARGET, Harness, trial

FITS = claims.FitsDevice()
"""Fails above 1 MiB, which none of the harness's variants needs."""

AT_MOST = claims.TempBytesAtMost(limit=Formula("two", lambda _: Quantity(2000, Unit.BYTES)))
CRASH = Failure(kind=FailureKind.CRASH, message="ended by SIGSEGV")
TOO_LARGE = Failure(
    kind=FailureKind.OUT_OF_MEMORY, message="no room", needed_bytes=2**21, capacity_bytes=2**20
)


def control_of(variant: Trial) -> Trial:
    (control,) = variant.controls
    return control


def test_a_variant_passes_where_its_control_fails(harness: Harness) -> None:
    variant = trial(claim=AT_MOST, negative_controls=(NEGATIVE_CONTROL,))
    passed, control = harness.judge(variant, control_of(variant))
    assert (passed.verdict, control.verdict) == (Outcome.PASSED, Outcome.PASSED)


def test_a_variant_is_inconclusive_where_its_control_passes(harness: Harness) -> None:
    variant = trial(claim=FITS, negative_controls=(NEGATIVE_CONTROL,))
    (alone,) = harness.judge(variant)
    assert alone.verdict is Outcome.INCONCLUSIVE
    assert alone.reason.startswith("the negative control 'negative_control' did not fail: ")
    passed, control = harness.judge(variant, control_of(variant))
    assert (passed.verdict, control.verdict) == (Outcome.INCONCLUSIVE, Outcome.FAILED)


def test_one_of_two_controls_that_passes_is_enough_to_doubt_the_variant(harness: Harness) -> None:
    harness.observed.temp_bytes["save"] = 1
    (record,) = harness.judge(trial(claim=AT_MOST, negative_controls=(NEGATIVE_CONTROL, SAVE)))
    assert record.verdict is Outcome.INCONCLUSIVE
    assert "the negative control 'save' did not fail" in record.reason


def test_a_control_that_crashes_fails_the_run_and_its_variant_does_not_pass(
    harness: Harness,
) -> None:
    harness.observed.failures["negative_control"] = CRASH
    variant = trial(claim=AT_MOST, negative_controls=(NEGATIVE_CONTROL,))
    record, control = harness.judge(variant, control_of(variant))
    assert (record.verdict, control.verdict) == (Outcome.INCONCLUSIVE, Outcome.FAILED)
    assert "SIGSEGV" in control.reason


@pytest.mark.parametrize(
    ("fails_with", "verdict"),
    [(FailureKind.OUT_OF_MEMORY, Outcome.PASSED), (None, Outcome.INCONCLUSIVE)],
)
def test_a_control_may_be_refused_for_memory_if_its_variant_says_so(
    harness: Harness, fails_with: FailureKind | None, verdict: Outcome
) -> None:
    harness.observed.failures["negative_control"] = TOO_LARGE
    (record,) = harness.judge(
        trial(claim=FITS, negative_controls=(replace(NEGATIVE_CONTROL, fails_with=fails_with),))
    )
    assert record.verdict is verdict


def test_a_control_that_cannot_run_fails_the_run_where_the_claim_can(harness: Harness) -> None:
    harness.observed.unavailable["negative_control"] = Unavailable(
        reason="no such memory", remedy="none"
    )
    variant = trial(claim=AT_MOST, negative_controls=(NEGATIVE_CONTROL,))
    record, control = harness.judge(variant, control_of(variant))
    assert (record.verdict, control.verdict) == (Outcome.INCONCLUSIVE, Outcome.FAILED)
    assert "cannot be judged here: no such memory" in control.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """A claim with one finding for each variant."""

    of: Mapping[str, Finding]
    name: str = "says"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        return ()

    def judge(self, case: Case) -> Finding:
        return self.of[case.variant.name]


@pytest.mark.parametrize(
    ("variant_outcome", "control_outcome"),
    [(Outcome.PASSED, Outcome.FAILED), (Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE)],
)
def test_a_control_without_a_measurement_fails_the_run_where_the_claim_has_one(
    harness: Harness, variant_outcome: Outcome, control_outcome: Outcome
) -> None:
    unmeasured = Finding(outcome=Outcome.INCONCLUSIVE, reason="it does not show")
    passed = Finding(outcome=Outcome.PASSED, measured=1, limit=2, reason="it shows")
    own = passed if variant_outcome is Outcome.PASSED else unmeasured
    variant = trial(
        claim=Says(of={"offload": own, "negative_control": unmeasured}),
        negative_controls=(NEGATIVE_CONTROL,),
    )
    record, control = harness.judge(variant, control_of(variant))
    assert (record.verdict, control.verdict) == (Outcome.INCONCLUSIVE, control_outcome)


def test_a_claim_in_seconds_that_stores_nothing_needs_its_control(harness: Harness) -> None:
    passed = Finding(outcome=Outcome.PASSED, measured=1, limit=2)
    claim = Says(of={"offload": passed, "negative_control": passed}, unit=Unit.SECONDS)
    variant = trial(claim=claim, negative_controls=(NEGATIVE_CONTROL,))
    (record,) = harness.judge(variant, update=BaselineUpdate.NEW)
    assert record.verdict is Outcome.INCONCLUSIVE


def test_a_control_cannot_run_where_the_claim_cannot(harness: Harness) -> None:
    missing = Unavailable(reason="no compiler", remedy="install one")
    harness.observed.unavailable.update(negative_control=missing, offload=missing)
    variant = trial(claim=AT_MOST, negative_controls=(NEGATIVE_CONTROL,))
    records = harness.judge(variant, control_of(variant))
    assert [record.verdict for record in records] == [Outcome.UNSUPPORTED] * 2


def test_a_failed_variant_stays_failed_whatever_its_control_does(harness: Harness) -> None:
    harness.observed.temp_bytes["offload"] = 2001
    harness.observed.failures["negative_control"] = CRASH
    (record,) = harness.judge(trial(claim=AT_MOST, negative_controls=(NEGATIVE_CONTROL,)))
    assert record.verdict is Outcome.FAILED


@pytest.mark.parametrize("update", [BaselineUpdate.NEW, BaselineUpdate.ALL])
def test_a_number_is_stored_only_where_the_control_is_worse_than_it(
    harness: Harness, update: BaselineUpdate
) -> None:
    harness.observed.temp_bytes["negative_control"] = 2000
    (blind,) = harness.judge(trial(SAVE, negative_controls=(NEGATIVE_CONTROL,)), update=update)
    assert (blind.verdict, blind.baseline) == (Outcome.INCONCLUSIVE, None)
    assert not harness.baselines.exists()
    harness.observed.temp_bytes["negative_control"] = 3000
    variant = trial(SAVE, negative_controls=(NEGATIVE_CONTROL,))
    first, control = harness.judge(variant, control_of(variant), update=update)
    assert (first.verdict, control.verdict, control.limit) == (Outcome.PASSED, Outcome.PASSED, 2000)
    assert baselines.load(harness.baselines, "scan", TARGET).baselines


def test_a_better_number_that_the_control_reaches_too_is_not_improved(harness: Harness) -> None:
    harness.judge(trial(SAVE), update=BaselineUpdate.NEW)
    harness.observed.versions = dict(NOW)
    harness.observed.temp_bytes.update(save=1000, negative_control=1000)
    (record,) = harness.judge(trial(SAVE, negative_controls=(NEGATIVE_CONTROL,)))
    assert record.verdict is Outcome.INCONCLUSIVE
    assert record.baseline is not None


def test_controls_are_observed_once_for_all_variants(harness: Harness) -> None:
    harness.judge(
        *(
            trial(variant, AT_MOST, negative_controls=(NEGATIVE_CONTROL,))
            for variant in (OFFLOAD, SAVE)
        )
    )
    assert harness.observed.asked["stack", "negative_control", TARGET] == 1
