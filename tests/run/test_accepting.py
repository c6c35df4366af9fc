"""``--assay-update-baselines`` accepts what it was asked to, and no worse number in silence."""

from dataclasses import dataclass, replace

import pytest

from assay.claims import AcceptedTempBytes
from assay.model.claim import Case
from assay.model.units import Unit
from assay.model.verdict import AcceptedNumber, Finding, Outcome
from assay.model.workload import Arm
from assay.run import Accept, accept_numbers
from assay.store import baselines

from .fakes import NOW, OFFLOAD, OLD, SAVE, TARGET, TWIN, Harness, trial


def stored(harness: Harness, arm: str = "offload", target: str = TARGET) -> list[tuple[int, str]]:
    """What the baseline file holds: values and their jaxlib."""
    numbers = baselines.load(harness.baselines, "scan", target).numbers(
        ("stack", arm, "temp-bytes")
    )
    return [(int(number.value), number.toolchain["jaxlib"]) for number in numbers]


@pytest.fixture
def accepted(harness: Harness) -> Harness:
    """A harness whose offload arm has 1000 B accepted on the old toolchain."""
    harness.judge(trial(), accept=Accept.NEW)
    assert stored(harness) == [(1000, "0.10.2")]
    return harness


@pytest.mark.parametrize("accept", [Accept.NEW, Accept.ALL])
def test_a_number_that_no_one_accepted_is_taken(harness: Harness, accept: Accept) -> None:
    (record,) = harness.judge(trial(), accept=accept)
    assert (record.verdict, record.measured, record.limit) == (Outcome.KEPT, 1000, 1000)
    assert record.baseline == AcceptedNumber(value=1000, toolchain=OLD)
    assert record.reason.startswith("accepted now: ")
    assert record.advice == ""
    assert stored(harness) == [(1000, "0.10.2")]


def test_nothing_is_taken_unasked(harness: Harness) -> None:
    (record,) = harness.judge(trial())
    assert (record.verdict, record.baseline) == (Outcome.BROKEN, None)
    assert not harness.baselines.exists()


def test_an_accepted_number_is_kept_in_the_next_run(accepted: Harness) -> None:
    (record,) = accepted.judge(trial())
    assert (record.verdict, record.limit) == (Outcome.KEPT, 1000)
    assert record.baseline == AcceptedNumber(value=1000, toolchain=OLD)


@pytest.mark.parametrize(("measured", "verdict"), [(1001, Outcome.BROKEN), (999, Outcome.IMPROVED)])
def test_new_takes_no_change_on_the_accepted_toolchain(
    accepted: Harness, measured: int, verdict: Outcome
) -> None:
    accepted.observed.temp_bytes["offload"] = measured
    (record,) = accepted.judge(trial(), accept=Accept.NEW)
    assert (record.verdict, record.limit) == (verdict, 1000)
    assert stored(accepted) == [(1000, "0.10.2")]


@pytest.mark.parametrize("measured", [1, 999, 1001, 5000])
def test_all_takes_any_change_on_the_accepted_toolchain(accepted: Harness, measured: int) -> None:
    accepted.observed.temp_bytes["offload"] = measured
    (record,) = accepted.judge(trial(), accept=Accept.ALL)
    assert (record.verdict, record.limit) == (Outcome.KEPT, measured)
    assert stored(accepted) == [(measured, "0.10.2")]


@pytest.mark.parametrize("measured", [500, 1000, 1100])
def test_new_takes_a_new_toolchains_number_that_is_no_worse(
    accepted: Harness, measured: int
) -> None:
    accepted.observed.versions = dict(NOW)
    accepted.observed.temp_bytes["offload"] = measured
    (record,) = accepted.judge(trial(), accept=Accept.NEW)
    assert record.verdict is Outcome.KEPT
    assert record.baseline == AcceptedNumber(value=measured, toolchain=NOW)
    assert stored(accepted) == [(1000, "0.10.2"), (measured, "0.12.0")]


def test_new_refuses_a_new_toolchains_worse_number(accepted: Harness) -> None:
    accepted.observed.versions = dict(NOW)
    accepted.observed.temp_bytes["offload"] = 1101
    (record,) = accepted.judge(trial(), accept=Accept.NEW)
    assert (record.verdict, record.limit) == (Outcome.BROKEN, 1000)
    assert record.baseline == AcceptedNumber(value=1000, toolchain=OLD)
    assert stored(accepted) == [(1000, "0.10.2")]


def test_all_takes_a_new_toolchains_worse_number_and_keeps_the_old_one(accepted: Harness) -> None:
    accepted.observed.versions = dict(NOW)
    accepted.observed.temp_bytes["offload"] = 1101
    accepted.judge(trial(), accept=Accept.ALL)
    assert stored(accepted) == [(1000, "0.10.2"), (1101, "0.12.0")]


def test_a_new_toolchain_is_held_against_the_old_number(accepted: Harness) -> None:
    accepted.observed.versions = dict(NOW)
    accepted.observed.temp_bytes["offload"] = 1101
    (record,) = accepted.judge(trial())
    assert record.verdict is Outcome.BROKEN


def test_an_older_toolchain_has_no_number_to_be_held_against(accepted: Harness) -> None:
    accepted.observed.versions = {"jaxlib": "0.9"}
    (record,) = accepted.judge(trial())
    assert (record.verdict, record.baseline) == (Outcome.BROKEN, None)


def test_numbers_of_other_arms_stay_as_they_were(accepted: Harness) -> None:
    accepted.judge(trial(SAVE), accept=Accept.ALL)
    assert stored(accepted) == [(1000, "0.10.2")]
    assert stored(accepted, "save") == [(2000, "0.10.2")]


def test_each_target_has_its_own_numbers(accepted: Harness) -> None:
    accepted.judge(trial(target="cpu"), accept=Accept.NEW)
    assert stored(accepted, target="cpu") == [(1000, "0.10.2")]
    files = sorted(path.relative_to(accepted.baselines) for path in accepted.baselines.glob("*/*"))
    assert [str(path) for path in files] == ["cpu/scan.json", "gpu-h100-8/scan.json"]


def test_accepting_the_same_number_again_changes_no_byte(accepted: Harness) -> None:
    path = baselines.path_of(accepted.baselines, "scan", TARGET)
    before = path.read_bytes()
    accepted.judge(trial(), accept=Accept.ALL)
    accepted.judge(trial(), accept=Accept.NEW)
    assert path.read_bytes() == before


def test_all_files_written_are_named(harness: Harness) -> None:
    run = harness.start(Accept.NEW)
    records = [run.judge(trial()), run.judge(trial(SAVE)), run.judge(trial(target="cpu"))]
    assert sorted(accept_numbers(run, records)) == sorted(
        baselines.path_of(harness.baselines, "scan", target) for target in (TARGET, "cpu")
    )
    assert accept_numbers(replace(run, accept=Accept.NOTHING), records) == ()


def test_a_twin_is_held_against_the_number_of_its_reference_arm(harness: Harness) -> None:
    harness.judge(trial(SAVE), accept=Accept.NEW)
    (record,) = harness.judge(trial(TWIN, must_fail=True))
    assert (record.verdict, record.measured, record.limit) == (Outcome.KEPT, 3000, 2000)
    assert record.baseline == AcceptedNumber(value=2000, toolchain=OLD)


@pytest.mark.parametrize("twin_bytes", [2000, 1999])
def test_a_twin_as_good_as_its_reference_arm_shows_the_claim_blind(
    harness: Harness, twin_bytes: int
) -> None:
    harness.judge(trial(SAVE), accept=Accept.NEW)
    harness.observed.temp_bytes["twin"] = twin_bytes
    (record,) = harness.judge(trial(TWIN, must_fail=True))
    assert record.verdict is Outcome.BROKEN
    assert "blind" in record.reason


def test_a_twin_without_a_number_to_be_held_against_is_not_measured(harness: Harness) -> None:
    (record,) = harness.judge(trial(TWIN, must_fail=True))
    assert record.verdict is Outcome.NOT_MEASURED
    assert "'save'" in record.reason


@pytest.mark.parametrize("accept", [Accept.NEW, Accept.ALL])
def test_a_twins_number_is_never_accepted(harness: Harness, accept: Accept) -> None:
    harness.judge(trial(SAVE), accept=Accept.NEW)
    before = baselines.load(harness.baselines, "scan", TARGET)
    (record,) = harness.judge(trial(TWIN, must_fail=True), accept=accept)
    assert record.limit == 2000
    assert baselines.load(harness.baselines, "scan", TARGET) == before


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """A claim on an accepted number that answers what the test wants."""

    finding: Finding
    name: str = "temp-bytes"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = True

    def needs(self, arm: Arm) -> tuple[str, ...]:
        assert arm.name
        return ()

    def judge(self, case: Case) -> Finding:
        assert case.evidence
        return self.finding


@pytest.mark.parametrize("accept", [Accept.NEW, Accept.ALL])
@pytest.mark.parametrize(
    "finding",
    [
        Finding(outcome=Outcome.KEPT, measured=7),
        Finding(outcome=Outcome.CANNOT_RUN, measured=7),
        Finding(outcome=Outcome.NOT_MEASURED, measured=7),
        Finding(outcome=Outcome.BROKEN),
    ],
    ids=["error", "cannot-run", "not-measured", "no-number"],
)
def test_what_was_not_measured_is_never_accepted(
    harness: Harness, accept: Accept, finding: Finding
) -> None:
    (without,) = harness.judge(trial(OFFLOAD, Answers(finding=finding)))
    (record,) = harness.judge(trial(OFFLOAD, Answers(finding=finding)), accept=accept)
    assert record.verdict is without.verdict is not Outcome.KEPT
    assert not harness.baselines.exists()


@pytest.mark.parametrize("accept", list(Accept))
def test_a_claim_without_a_baseline_accepts_nothing(harness: Harness, accept: Accept) -> None:
    kept = Finding(outcome=Outcome.KEPT, measured=7, limit=7)
    (record,) = harness.judge(
        trial(OFFLOAD, Answers(finding=kept, uses_baseline=False)), accept=accept
    )
    assert (record.baseline, record.reason) == (None, "")
    assert not harness.baselines.exists()


def test_a_damaged_baseline_file_stops_the_trial(accepted: Harness) -> None:
    baselines.path_of(accepted.baselines, "scan", TARGET).write_bytes(b"")
    with pytest.raises(baselines.BaselineError):
        accepted.judge(trial())


def test_many_small_steps_are_not_accepted_one_by_one(harness: Harness) -> None:
    """Thirty releases of one per cent each gave a third more, all kept."""
    claim = AcceptedTempBytes(tolerance=0.01)
    verdicts, needed = [], 100_000
    for release in range(30):
        harness.observed.versions = {"jaxlib": f"0.{release}"}
        harness.observed.temp_bytes["offload"] = needed
        (record,) = harness.judge(trial(OFFLOAD, claim), accept=Accept.NEW)
        verdicts.append(record.verdict)
        needed = round(needed * 1.009)
    assert verdicts[:2] == [Outcome.KEPT] * 2
    assert set(verdicts[2:]) == {Outcome.BROKEN}
    assert max(value for value, _ in stored(harness)) <= 101_000
    harness.observed.versions = {"jaxlib": "0.2"}
    harness.observed.temp_bytes["offload"] = round(100_000 * 1.009**2)
    (record,) = harness.judge(trial(OFFLOAD, claim))
    assert (record.verdict, record.limit) == (Outcome.BROKEN, 100_000)
    assert "more than the best accepted" in record.reason


def test_a_worse_number_that_was_accepted_on_purpose_is_the_new_start(harness: Harness) -> None:
    claim = AcceptedTempBytes(tolerance=0.01)
    steps = [(100_000, Accept.NEW), (150_000, Accept.ALL), (150_900, Accept.NEW)]
    for release, (needed, accept) in enumerate(steps):
        harness.observed.versions = {"jaxlib": f"0.{release}"}
        harness.observed.temp_bytes["offload"] = needed
        (record,) = harness.judge(trial(OFFLOAD, claim), accept=accept)
        assert record.verdict is Outcome.KEPT
    assert [value for value, _ in stored(harness)] == [100_000, 150_000, 150_900]
