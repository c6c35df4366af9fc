"""``--assay-update-baselines`` stores what it was asked to, and no worse number in silence."""

from dataclasses import dataclass, replace

import pytest

from assay.claims import BaselineTempBytes
from assay.model.claim import Case
from assay.model.defect import KnownDefect, Measures, Upstream
from assay.model.units import Unit
from assay.model.verdict import BaselineNumber, Finding, Outcome
from assay.model.workload import Variant
from assay.run import BaselineUpdate, update_baselines
from assay.store import baselines

from .fakes import NEGATIVE_CONTROL, NOW, OFFLOAD, OLD, SAVE, TARGET, Harness, trial


def stored(
    harness: Harness, variant: str = "offload", target: str = TARGET
) -> list[tuple[int, str]]:
    """What the baseline file holds: values and their jaxlib."""
    numbers = baselines.load(harness.baselines, "scan", target).numbers(
        ("stack", variant, "temp-bytes")
    )
    return [(int(number.value), number.toolchain["jaxlib"]) for number in numbers]


@pytest.fixture
def baseline(harness: Harness) -> Harness:
    """A harness whose offload variant has 1000 B stored on the old toolchain."""
    harness.judge(trial(), update=BaselineUpdate.NEW)
    assert stored(harness) == [(1000, "0.10.2")]
    return harness


@pytest.mark.parametrize("update", [BaselineUpdate.NEW, BaselineUpdate.ALL])
def test_a_number_that_no_one_stored_is_taken(harness: Harness, update: BaselineUpdate) -> None:
    (record,) = harness.judge(trial(), update=update)
    assert (record.verdict, record.measured, record.limit) == (Outcome.PASSED, 1000, 1000)
    assert record.baseline == BaselineNumber(value=1000, toolchain=OLD)
    assert record.reason.startswith("stored now: ")
    assert record.advice == ""
    assert stored(harness) == [(1000, "0.10.2")]


def test_the_option_takes_the_words_new_and_all() -> None:
    assert (BaselineUpdate("new"), BaselineUpdate("all")) == (
        BaselineUpdate.NEW,
        BaselineUpdate.ALL,
    )


def test_a_number_of_a_live_device_is_valid_on_its_kind_alone(harness: Harness) -> None:
    for device in ("NVIDIA H100", "NVIDIA H200"):
        harness.observed.device = device
        (missing,) = harness.judge(trial())
        assert missing.verdict is Outcome.FAILED
        assert f"no baseline is stored for {device} and this toolchain" in missing.reason
        (taken,) = harness.judge(trial(), update=BaselineUpdate.NEW)
        assert taken.baseline == BaselineNumber(value=1000, toolchain=OLD, machine=device)
    (known,) = harness.judge(trial())
    assert (known.verdict, known.baseline) == (Outcome.PASSED, taken.baseline)
    assert stored(harness) == [(1000, "0.10.2")] * 2


def test_nothing_is_taken_unasked(harness: Harness) -> None:
    (record,) = harness.judge(trial())
    assert (record.verdict, record.baseline) == (Outcome.FAILED, None)
    assert not harness.baselines.exists()


def test_a_baseline_is_kept_in_the_next_run(baseline: Harness) -> None:
    (record,) = baseline.judge(trial())
    assert (record.verdict, record.limit) == (Outcome.PASSED, 1000)
    assert record.baseline == BaselineNumber(value=1000, toolchain=OLD)


@pytest.mark.parametrize(("measured", "verdict"), [(1001, Outcome.FAILED), (999, Outcome.IMPROVED)])
def test_new_takes_no_change_on_the_baseline_toolchain(
    baseline: Harness, measured: int, verdict: Outcome
) -> None:
    baseline.observed.temp_bytes["offload"] = measured
    (record,) = baseline.judge(trial(), update=BaselineUpdate.NEW)
    assert (record.verdict, record.limit) == (verdict, 1000)
    assert stored(baseline) == [(1000, "0.10.2")]


@pytest.mark.parametrize("measured", [1, 999, 1001, 5000])
def test_all_takes_any_change_on_the_baseline_toolchain(baseline: Harness, measured: int) -> None:
    baseline.observed.temp_bytes["offload"] = measured
    (record,) = baseline.judge(trial(), update=BaselineUpdate.ALL)
    assert (record.verdict, record.limit) == (Outcome.PASSED, measured)
    assert stored(baseline) == [(measured, "0.10.2")]


@pytest.mark.parametrize("measured", [500, 1000, 1100])
def test_new_takes_a_new_toolchains_number_that_is_no_worse(
    baseline: Harness, measured: int
) -> None:
    baseline.observed.versions = dict(NOW)
    baseline.observed.temp_bytes["offload"] = measured
    (record,) = baseline.judge(trial(), update=BaselineUpdate.NEW)
    assert record.verdict is Outcome.PASSED
    assert record.baseline == BaselineNumber(value=measured, toolchain=NOW)
    assert stored(baseline) == [(1000, "0.10.2"), (measured, "0.12.0")]


def test_new_refuses_a_new_toolchains_worse_number(baseline: Harness) -> None:
    baseline.observed.versions = dict(NOW)
    baseline.observed.temp_bytes["offload"] = 1101
    (record,) = baseline.judge(trial(), update=BaselineUpdate.NEW)
    assert (record.verdict, record.limit) == (Outcome.FAILED, 1000)
    assert record.baseline == BaselineNumber(value=1000, toolchain=OLD)
    assert stored(baseline) == [(1000, "0.10.2")]


def test_all_takes_a_new_toolchains_worse_number_and_keeps_the_old_one(baseline: Harness) -> None:
    baseline.observed.versions = dict(NOW)
    baseline.observed.temp_bytes["offload"] = 1101
    baseline.judge(trial(), update=BaselineUpdate.ALL)
    assert stored(baseline) == [(1000, "0.10.2"), (1101, "0.12.0")]


def test_a_new_toolchain_is_held_against_the_old_number(baseline: Harness) -> None:
    baseline.observed.versions = dict(NOW)
    baseline.observed.temp_bytes["offload"] = 1101
    (record,) = baseline.judge(trial())
    assert record.verdict is Outcome.FAILED


def test_an_older_toolchain_has_no_number_to_be_held_against(baseline: Harness) -> None:
    baseline.observed.versions = {"jaxlib": "0.9"}
    (record,) = baseline.judge(trial())
    assert (record.verdict, record.baseline) == (Outcome.FAILED, None)


def test_numbers_of_other_variants_stay_as_they_were(baseline: Harness) -> None:
    baseline.judge(trial(SAVE), update=BaselineUpdate.ALL)
    assert stored(baseline) == [(1000, "0.10.2")]
    assert stored(baseline, "save") == [(2000, "0.10.2")]


def test_each_target_has_its_own_numbers(baseline: Harness) -> None:
    baseline.judge(trial(target="cpu"), update=BaselineUpdate.NEW)
    assert stored(baseline, target="cpu") == [(1000, "0.10.2")]
    files = sorted(path.relative_to(baseline.baselines) for path in baseline.baselines.glob("*/*"))
    assert [str(path) for path in files] == ["cpu/scan.json", "gpu-h100-8/scan.json"]


def test_storing_the_same_number_again_changes_no_byte(baseline: Harness) -> None:
    path = baselines.path_of(baseline.baselines, "scan", TARGET)
    before = path.read_bytes()
    baseline.judge(trial(), update=BaselineUpdate.ALL)
    baseline.judge(trial(), update=BaselineUpdate.NEW)
    assert path.read_bytes() == before


def test_all_files_written_are_named(harness: Harness) -> None:
    run = harness.start(BaselineUpdate.NEW)
    trials = (trial(), trial(SAVE), trial(target="cpu"))
    records = [run.judge_timed(each)[0] for each in trials]
    assert sorted(update_baselines(run, records)) == sorted(
        baselines.path_of(harness.baselines, "scan", target) for target in (TARGET, "cpu")
    )
    assert update_baselines(replace(run, update=BaselineUpdate.NOTHING), records) == ()


def test_a_control_is_held_against_the_number_of_its_reference_variant(harness: Harness) -> None:
    harness.judge(trial(SAVE), update=BaselineUpdate.NEW)
    (record,) = harness.judge(trial(NEGATIVE_CONTROL, must_fail=True))
    assert (record.verdict, record.measured, record.limit) == (Outcome.PASSED, 3000, 2000)
    assert record.baseline == BaselineNumber(value=2000, toolchain=OLD)


@pytest.mark.parametrize("negative_control_bytes", [2000, 1999])
def test_a_control_as_good_as_its_reference_variant_shows_the_claim_blind(
    harness: Harness, negative_control_bytes: int
) -> None:
    harness.judge(trial(SAVE), update=BaselineUpdate.NEW)
    harness.observed.temp_bytes["negative_control"] = negative_control_bytes
    (record,) = harness.judge(trial(NEGATIVE_CONTROL, must_fail=True))
    assert record.verdict is Outcome.FAILED
    assert "cannot detect the fault" in record.reason


def test_a_control_without_a_number_to_be_held_against_is_inconclusive(harness: Harness) -> None:
    (record,) = harness.judge(trial(NEGATIVE_CONTROL, must_fail=True))
    assert record.verdict is Outcome.INCONCLUSIVE
    assert "'save'" in record.reason


@pytest.mark.parametrize("update", [BaselineUpdate.NEW, BaselineUpdate.ALL])
def test_a_controls_number_is_never_stored(harness: Harness, update: BaselineUpdate) -> None:
    harness.judge(trial(SAVE), update=BaselineUpdate.NEW)
    before = baselines.load(harness.baselines, "scan", TARGET)
    (record,) = harness.judge(trial(NEGATIVE_CONTROL, must_fail=True), update=update)
    assert record.limit == 2000
    assert baselines.load(harness.baselines, "scan", TARGET) == before


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """A claim on a baseline that answers what the test wants."""

    finding: Finding
    name: str = "temp-bytes"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = True

    def needs(self, variant: Variant) -> tuple[str, ...]:
        assert variant.name
        return ()

    def judge(self, case: Case) -> Finding:
        assert case.evidence
        return self.finding


@pytest.mark.parametrize("update", [BaselineUpdate.NEW, BaselineUpdate.ALL])
@pytest.mark.parametrize(
    "finding",
    [
        Finding(outcome=Outcome.PASSED, measured=7),
        Finding(outcome=Outcome.UNSUPPORTED, measured=7),
        Finding(outcome=Outcome.INCONCLUSIVE, measured=7),
        Finding(outcome=Outcome.FAILED),
    ],
    ids=["error", "unsupported", "inconclusive", "no-number"],
)
def test_what_was_not_measured_is_never_stored(
    harness: Harness, update: BaselineUpdate, finding: Finding
) -> None:
    (without,) = harness.judge(trial(OFFLOAD, Answers(finding=finding)))
    (record,) = harness.judge(trial(OFFLOAD, Answers(finding=finding)), update=update)
    assert record.verdict is without.verdict is not Outcome.PASSED
    assert not harness.baselines.exists()


@pytest.mark.parametrize("update", list(BaselineUpdate))
def test_a_claim_without_a_baseline_stores_nothing(
    harness: Harness, update: BaselineUpdate
) -> None:
    passed = Finding(outcome=Outcome.PASSED, measured=7, limit=7)
    (record,) = harness.judge(
        trial(OFFLOAD, Answers(finding=passed, uses_baseline=False)), update=update
    )
    assert (record.baseline, record.reason) == (None, "")
    assert not harness.baselines.exists()


def test_a_damaged_baseline_file_stops_the_trial(baseline: Harness) -> None:
    baselines.path_of(baseline.baselines, "scan", TARGET).write_bytes(b"")
    with pytest.raises(baselines.BaselineError):
        baseline.judge(trial())


def test_many_small_steps_are_not_stored_one_by_one(harness: Harness) -> None:
    """Thirty releases of one per cent each gave a third more, all passed."""
    claim = BaselineTempBytes(tolerance=0.01)
    verdicts, needed = [], 100_000
    for release in range(30):
        harness.observed.versions = {"jaxlib": f"0.{release}"}
        harness.observed.temp_bytes["offload"] = needed
        (record,) = harness.judge(trial(OFFLOAD, claim), update=BaselineUpdate.NEW)
        verdicts.append(record.verdict)
        needed = round(needed * 1.009)
    assert verdicts[:2] == [Outcome.PASSED] * 2
    assert set(verdicts[2:]) == {Outcome.FAILED}
    assert max(value for value, _ in stored(harness)) <= 101_000
    harness.observed.versions = {"jaxlib": "0.2"}
    harness.observed.temp_bytes["offload"] = round(100_000 * 1.009**2)
    (record,) = harness.judge(trial(OFFLOAD, claim))
    assert (record.verdict, record.limit) == (Outcome.FAILED, 100_000)
    assert "more than the best baseline" in record.reason


def test_a_worse_number_that_was_stored_on_purpose_is_the_new_start(harness: Harness) -> None:
    claim = BaselineTempBytes(tolerance=0.01)
    steps = [
        (100_000, BaselineUpdate.NEW),
        (150_000, BaselineUpdate.ALL),
        (150_900, BaselineUpdate.NEW),
    ]
    for release, (needed, update) in enumerate(steps):
        harness.observed.versions = {"jaxlib": f"0.{release}"}
        harness.observed.temp_bytes["offload"] = needed
        (record,) = harness.judge(trial(OFFLOAD, claim), update=update)
        assert record.verdict is Outcome.PASSED
    assert [value for value, _ in stored(harness)] == [100_000, 150_000, 150_900]


@pytest.mark.parametrize("update", [BaselineUpdate.NEW, BaselineUpdate.ALL])
def test_the_number_of_a_known_defect_is_not_stored(
    baseline: Harness, update: BaselineUpdate
) -> None:
    defect = KnownDefect(
        variants=("offload",),
        expects={"temp-bytes": Measures(least=5000, most=5000)},
        targets=("*",),
        reason="the buffer is copied",
        upstream=Upstream(link=""),
        last_seen="2026-11-30",
    )
    baseline.observed.temp_bytes["offload"] = 5000
    for _ in range(2):
        (record,) = baseline.judge(trial(defects=(defect,)), update=update)
        assert (record.verdict, record.limit) == (Outcome.KNOWN_DEFECT, 1000)
    assert stored(baseline) == [(1000, "0.10.2")]
