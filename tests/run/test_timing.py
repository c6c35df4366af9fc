"""A run takes the times that a claim asks for, once, and only where there is something to time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from assay import claims
from assay.model.claim import Formula, Trial
from assay.model.evidence import Evidence, Failure, FailureKind, GrowthTimes, Toolchain
from assay.model.target import Unavailable
from assay.model.timing import Ending, Keep, Machine, TimedPair, Times, VariantTimes, unmeasured
from assay.model.units import Quantity, Unit
from assay.model.verdict import Outcome, Record
from assay.model.workload import Variant, Workload
from assay.run import BaselineUpdate, Run, update_baselines
from assay.store.baselines import load
from assay.store.evidence import GROWTH as GROWTHS
from assay.store.evidence import TIMES, load_all

from .fakes import NEGATIVE_CONTROL, OFFLOAD, OLD, SAVE, TARGET, Harness, measuring, trial


def ratio(limit: float) -> claims.TimeRatio:
    return claims.TimeRatio(at_most=Formula("so long", lambda _: Quantity(limit, Unit.RATIO)))


CLAIM = ratio(1)
DIVIDES = claims.TimeRatio(at_most=Formula("none", lambda _: Quantity(1 // 0, Unit.RATIO)))


@dataclass
class Clocked:
    """Stands for the observer: each variant takes the seconds that the test says."""

    seconds: dict[str, float] = field(
        default_factory=lambda: {"offload": 1.01, "save": 1.0, "negative_control": 1.5}
    )
    asked: list[TimedPair] = field(default_factory=list)
    cpu: str = "one"

    def __call__(self, pair: TimedPair, keep: Keep) -> Times:
        self.asked.append(pair)
        known = unmeasured(pair, Toolchain(versions=dict(OLD)))
        keep(known)
        return replace(
            known,
            reference=self._taken(pair.reference) if pair.reference else known.reference,
            judged=self._taken(pair.judged),
            ended=Ending.ENOUGH,
            machine=Machine(cpu=self.cpu, cores=2, device="cpu") if self.cpu else None,
        )

    def _taken(self, variant: Variant) -> VariantTimes:
        return VariantTimes(
            variant=variant.name, first=1.0, samples=(self.seconds[variant.name],) * 48
        )


@pytest.fixture
def clocked() -> Clocked:
    return Clocked()


@pytest.fixture
def run(harness: Harness, clocked: Clocked) -> Run:
    return measuring(harness.start(), time=clocked, most_seconds=7.0)


def test_a_claim_is_judged_by_times_that_the_run_takes(run: Run, clocked: Clocked) -> None:
    record, taken = run.judge_timed(trial(claim=CLAIM))
    assert (record.verdict, record.measured) == (Outcome.PASSED, pytest.approx(1.01))
    assert taken is not None
    assert TIMES.load_all(run.directory) == ((taken,), ())
    (pair,) = clocked.asked
    assert (pair.reference.name, pair.judged.name, pair.target) == ("save", "offload", TARGET)
    assert pair.most_seconds == 7.0


def test_a_control_takes_turns_with_the_variant_that_it_is_compared_with(run: Run) -> None:
    record = run.judge_timed(trial(NEGATIVE_CONTROL, CLAIM, must_fail=True))[0]
    assert record.verdict is Outcome.PASSED
    assert record.measured == pytest.approx(1.5)


def test_the_same_question_is_timed_once_and_another_by_itself(run: Run, clocked: Clocked) -> None:
    for claim in (CLAIM, ratio(1), ratio(2)):
        run.judge_timed(trial(claim=claim))
    assert [pair.turns.question for pair in clocked.asked] == [
        "at most 1, 0.02 to 0.05",
        "at most 2, 0.02 to 0.05",
    ]


def test_a_program_that_failed_is_not_timed(harness: Harness, clocked: Clocked) -> None:
    def fails(workload: Workload, variant: Variant, target: str, _growth: float | None) -> Evidence:
        seen = harness.observed(workload, variant, target)
        return replace(seen, failure=Failure(kind=FailureKind.COMPILER, message="it broke"))

    run = measuring(harness.start(), observe=fails, time=clocked)
    record, taken = run.judge_timed(trial(claim=CLAIM))
    assert (record.verdict, taken, clocked.asked) == (Outcome.FAILED, None, [])


def test_a_claim_that_fails_before_anything_is_timed_fails(run: Run, clocked: Clocked) -> None:
    record = run.judge_timed(trial(claim=DIVIDES))[0]
    assert record.verdict is Outcome.FAILED
    assert "ZeroDivisionError" in record.reason
    assert clocked.asked == []


def test_other_claims_take_no_times(run: Run, clocked: Clocked) -> None:
    record, taken = run.judge_timed(trial(claim=claims.FitsDevice()))
    assert (record.verdict, taken, clocked.asked) == (Outcome.PASSED, None, [])


def test_a_trial_knows_whether_programs_are_timed_for_it() -> None:
    timed: Trial = trial(claim=CLAIM)
    assert timed.is_timing
    assert not trial(OFFLOAD, claims.FitsDevice()).is_timing


GROWTH = GrowthTimes(lengths=(8, 64), seconds=((1.0, 1.1) * 4, (1.2, 1.3) * 4))


def test_how_time_grows_is_taken_once_and_of_nothing_else(harness: Harness) -> None:
    asked = []

    def time_growth(
        workload: Workload, variant: Variant, target: str, most_seconds: float
    ) -> Evidence:
        asked.append((workload.name, variant.name, target, most_seconds))
        toolchain = Toolchain(versions=dict(OLD))
        return Evidence(
            suite="scan",
            workload="stack",
            variant=variant.name,
            target=target,
            toolchain=toolchain,
            growth=GROWTH,
        )

    run = measuring(harness.start(), observe=time_growth, most_seconds=7.0)
    twice = [run.judge_timed(trial(claim=claims.TimeGrowth())) for _ in range(2)]
    assert [record.verdict for record, _ in twice] == [Outcome.PASSED] * 2
    assert [taken for _, taken in twice] == [GROWTH] * 2
    assert asked == [("stack", OFFLOAD.name, TARGET, 7.0)]
    assert not harness.observed.asked
    assert [seen.growth for seen in load_all(run.directory, GROWTHS)] == [GROWTH]
    assert load_all(run.directory) == ()


def test_a_claim_on_growth_is_timed_alone() -> None:
    assert trial(claim=claims.TimeGrowth()).is_timing
    assert trial(claim=CLAIM).is_timing
    assert not trial().is_timing


def _updating(harness: Harness, clocked: Clocked, update: BaselineUpdate) -> Run:
    return measuring(harness.start(update), time=clocked)


def _judge_and_write(run: Run, *trials: Trial) -> list[Record]:
    judged = [run.judge_timed(each)[0] for each in trials]
    update_baselines(run, judged)
    return judged


STORED = claims.StoredTimeRatio()
BOTH = (trial(claim=STORED), trial(NEGATIVE_CONTROL, STORED, must_fail=True))


def test_a_ratio_is_stored_with_the_bytes_and_held_to(harness: Harness, clocked: Clocked) -> None:
    assert run_once(harness, clocked) == [Outcome.FAILED, Outcome.PASSED]
    _judge_and_write(_updating(harness, clocked, BaselineUpdate.NEW), *BOTH)
    stored = load(harness.baselines, "scan", TARGET).numbers(
        ("stack", "offload", "stored-time-ratio")
    )
    assert [(each.value, each.machine) for each in stored] == [(pytest.approx(1.01), "")]
    assert run_once(harness, clocked) == [Outcome.PASSED, Outcome.PASSED]
    clocked.seconds["offload"] = 1.4
    assert run_once(harness, clocked) == [Outcome.FAILED, Outcome.PASSED]
    clocked.seconds["offload"] = 0.6
    assert run_once(harness, clocked) == [Outcome.IMPROVED, Outcome.PASSED]


def run_once(harness: Harness, clocked: Clocked) -> list[Outcome]:
    run = _updating(harness, clocked, BaselineUpdate.NOTHING)
    return [record.verdict for record in _judge_and_write(run, *BOTH)]


def test_a_ratio_does_not_rise_step_by_step_over_toolchains(
    harness: Harness, clocked: Clocked
) -> None:
    for number in range(4):
        harness.observed.versions["jaxlib"] = f"0.10.{number + 2}"
        clocked.seconds["offload"] = 1.2**number
        _judge_and_write(_updating(harness, clocked, BaselineUpdate.NEW), *BOTH)
    stored = load(harness.baselines, "scan", TARGET).numbers(
        ("stack", "offload", "stored-time-ratio")
    )
    assert [each.value for each in stored] == pytest.approx([1.0, 1.0])
    assert run_once(harness, clocked) == [Outcome.FAILED, Outcome.PASSED]


def test_a_time_holds_for_the_machine_that_it_was_stored_on(
    harness: Harness, clocked: Clocked
) -> None:
    alone = trial(SAVE, claims.BaselineTime())

    def verdict(cpu: str, update: BaselineUpdate = BaselineUpdate.NOTHING) -> Outcome:
        clocked.cpu = cpu
        (record,) = _judge_and_write(_updating(harness, clocked, update), alone)
        return record.verdict

    assert verdict("one") is Outcome.INCONCLUSIVE
    verdict("one", BaselineUpdate.NEW)
    verdict("other", BaselineUpdate.NEW)
    stored = load(harness.baselines, "scan", TARGET).numbers(("stack", "save", "baseline-time"))
    assert len({each.machine for each in stored}) == 2
    assert verdict("third") is Outcome.INCONCLUSIVE
    clocked.seconds["save"] = 1.5
    assert verdict("one") is Outcome.FAILED


def test_a_time_is_stored_before_its_control_has_one_to_fail(
    harness: Harness, clocked: Clocked
) -> None:
    alone = trial(SAVE, claims.BaselineTime(), negative_controls=(NEGATIVE_CONTROL,))
    (first,) = _judge_and_write(_updating(harness, clocked, BaselineUpdate.NEW), alone)
    assert (first.verdict, first.measured) == (Outcome.PASSED, 1.0)
    (again,) = _judge_and_write(_updating(harness, clocked, BaselineUpdate.NOTHING), alone)
    assert again.verdict is Outcome.PASSED
    clocked.seconds["negative_control"] = clocked.seconds["save"]
    (blind,) = _judge_and_write(_updating(harness, clocked, BaselineUpdate.NOTHING), alone)
    assert not blind.verdict.holds


def test_a_control_is_compared_with_a_time_that_was_stored_before(
    harness: Harness, clocked: Clocked
) -> None:
    control = trial(NEGATIVE_CONTROL, claims.BaselineTime(), must_fail=True)
    (record,) = _judge_and_write(_updating(harness, clocked, BaselineUpdate.NEW), control)
    assert record.verdict is Outcome.INCONCLUSIVE
    assert [pair.judged.name for pair in clocked.asked] == ["negative_control"]


def test_a_control_of_a_stored_time_that_cannot_run_fails_the_run(
    harness: Harness, clocked: Clocked
) -> None:
    """Only the variant has a stored time; the control's reference has none."""
    claim = claims.BaselineTime()
    _judge_and_write(_updating(harness, clocked, BaselineUpdate.NEW), trial(OFFLOAD, claim))
    harness.observed.unavailable["negative_control"] = Unavailable(reason="no room", remedy="")
    variant = trial(OFFLOAD, claim, negative_controls=(NEGATIVE_CONTROL,))
    run = _updating(harness, clocked, BaselineUpdate.NOTHING)
    record, control = _judge_and_write(run, variant, *variant.controls)
    assert (record.verdict, control.verdict) == (Outcome.INCONCLUSIVE, Outcome.FAILED)
    assert "cannot be judged here: no room" in control.reason


def test_a_time_of_an_unknown_machine_has_nothing_to_compare_with(
    harness: Harness, clocked: Clocked
) -> None:
    clocked.cpu = ""
    alone = trial(SAVE, claims.BaselineTime())
    (record,) = _judge_and_write(_updating(harness, clocked, BaselineUpdate.NOTHING), alone)
    assert record.verdict is Outcome.INCONCLUSIVE
