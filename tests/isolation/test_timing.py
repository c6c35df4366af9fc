"""Two programs timed in the observer's child: what either does there is evidence, never a crash."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from assay.isolate import NotPortable, ObservationError, Observer
from assay.isolate.messages import Answer
from assay.model.evidence import Failure, FailureKind
from assay.model.target import TargetName
from assay.model.timing import Ending, TimedPair, Times, Turns
from assay.model.workload import Program, Role, Variant, Workload

QUESTION = "any"
RUNS_BEFORE = 3
"""Runs of a program before its turns, if one run is a sample: the first one, and the warming up."""

_HUNDREDTH = 0.01


def _never(_reference: Sequence[float], _judged: Sequence[float]) -> bool:
    return False


def _program(function: Any, _devices: object) -> Program:
    import jax

    values = (np.ones(64, np.float32),)
    shape = jax.ShapeDtypeStruct((64,), np.float32)
    return Program(function=function, arguments=(shape,), values=lambda: values)


def _sound(x: Any) -> Any:
    return x * 2


def _mismatched(x: Any) -> Any:
    return x + np.ones(65)


def _called(host: Any, x: Any) -> Any:
    import jax

    return jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


class _Counted:
    """Does something to the run of a number, in the process in which it runs."""

    def __init__(self, number: int, deed: Any, seconds: float) -> None:
        self._number, self._deed, self._seconds, self._runs = number, deed, seconds, 0

    def __call__(self, x: Any) -> Any:
        self._runs += 1
        if self._runs == self._number:
            self._deed()
        return _waits(self._seconds, x)


def _raises() -> None:
    raise RuntimeError("not again")


def on_run(number: int, deed: Any, seconds: float = 0.0) -> Any:
    return partial(_program, partial(_called, _Counted(number, deed, seconds)))


SOUND = partial(_program, _sound)


@pytest.fixture(scope="module")
def observer() -> Iterator[Observer]:
    with Observer([TargetName.parse("cpu")], timeout_seconds=60) as observer:
        yield observer


def timed(
    observer: Observer,
    reference: Any = SOUND,
    judged: Any = SOUND,
    kept: list[Times] | None = None,
    **asked: Any,
) -> Times:
    variants = [
        Variant(name=name, role=Role.CONTROL, program=program)
        for name, program in (("reference", reference), ("judged", judged))
    ]
    pair = TimedPair(
        workload=Workload(suite="isolation", name="w", variants=tuple(variants)),
        reference=None if asked.get("alone") else variants[0],
        judged=variants[1],
        target=asked.get("target", "cpu"),
        turns=Turns(
            reference="reference",
            question=QUESTION,
            enough=asked.get("enough", _never),
            most=asked.get("most", 8),
        ),
        most_seconds=asked.get("most_seconds", 20.0),
    )
    return observer.time(pair, (kept if kept is not None else []).append)


def test_both_are_timed_with_all_that_belongs_to_a_time(observer: Observer) -> None:
    seen = timed(observer)
    assert seen.ended is Ending.TURNS
    for variant in (seen.reference, seen.judged):
        assert len(variant.samples) == 8
        assert min(variant.samples) > 0
        assert variant.compile
        assert variant.first
        assert variant.trace
        assert variant.on_device is None
    assert seen.machine
    assert seen.drift.keys() == {"matmul", "copy", "dispatch"}
    assert seen.failure is seen.unavailable is None
    assert "jaxlib" in seen.toolchain.versions


def test_a_program_is_timed_alone_where_there_is_no_other(observer: Observer) -> None:
    seen = timed(observer, reference=partial(_program, _mismatched), alone=True)
    assert seen.is_alone
    assert (seen.ended, seen.failure) == (Ending.TURNS, None)
    assert (len(seen.judged.samples), seen.reference.samples) == (8, ())
    assert seen.judged.compile
    assert seen.machine
    for calibration in (seen.before, seen.after):
        assert calibration is not None
        assert {len(seconds) for seconds in asdict(calibration).values()} == {9}


def test_a_program_alone_that_dies_is_evidence_of_its_own(observer: Observer) -> None:
    seen = timed(observer, judged=on_run(1, os.abort), alone=True)
    assert seen.failure
    assert (seen.failure.kind, seen.failed_variant) == (FailureKind.CRASH, "judged")


def test_times_are_handed_over_while_they_are_taken(observer: Observer) -> None:
    kept: list[Times] = []
    slow = on_run(0, _raises)  # which never comes
    timed(observer, slow, partial(_program, _slow), most=8, kept=kept)
    assert [each.at_work for each in kept][:4] == ["reference", "judged", "reference", "judged"]
    growing = [len(each.judged.samples) for each in kept]
    assert growing[-1] > 0
    assert growing == sorted(growing)
    assert {each.ended for each in kept} == {Ending.UNFINISHED}


def _slow(x: Any) -> Any:
    return _called(partial(_waits, 0.4), x)


def _waits(seconds: float, x: Any) -> Any:
    time.sleep(seconds)
    return np.asarray(x)


def test_a_program_that_raises_on_its_second_run_is_a_failure_of_its_own(
    observer: Observer,
) -> None:
    seen = timed(observer, judged=on_run(2, _raises))
    assert seen.failure
    assert (seen.failure.kind, seen.failed_variant) == (FailureKind.EXECUTION, "judged")
    assert "callback" in seen.failure.message
    assert seen.judged.first is not None


def test_a_program_that_raises_in_the_turns_leaves_the_samples_before(observer: Observer) -> None:
    slow = partial(_program, _hundredth)
    # Ten milliseconds a run, so that one run is a sample on any machine's clock.
    seen = timed(observer, slow, on_run(RUNS_BEFORE + 4, _raises_late, _HUNDREDTH))
    assert seen.failure
    assert seen.failed_variant == "judged"
    assert 0 < len(seen.judged.samples) == len(seen.reference.samples) < 8


def _hundredth(x: Any) -> Any:
    return _called(partial(_waits, _HUNDREDTH), x)


def _raises_late() -> None:
    raise RuntimeError("late")


def test_a_program_that_does_not_compile_is_a_failure(observer: Observer) -> None:
    seen = timed(observer, reference=partial(_program, _mismatched))
    assert seen.failure
    assert seen.failed_variant == "reference"
    assert seen.reference.samples == ()


def test_a_program_that_cannot_be_built_is_a_failure(observer: Observer) -> None:
    seen = timed(observer, judged=_raises_when_built)
    assert seen.failure
    assert (seen.failure.kind, seen.failed_variant) == (FailureKind.BUILD, "judged")


def _raises_when_built(_devices: object) -> Program:
    raise RuntimeError("no such program")


def test_a_program_without_values_cannot_be_timed(observer: Observer) -> None:
    seen = timed(observer, judged=_without_values)
    assert seen.failure is None
    assert seen.unavailable
    assert "values" in seen.unavailable.reason


def _without_values(_devices: object) -> Program:
    import jax

    return Program(function=_sound, arguments=(jax.ShapeDtypeStruct((64,), np.float32),))


def test_a_compile_only_target_times_nothing(observer: Observer) -> None:
    seen = timed(observer, target="gpu-h100")
    assert seen.unavailable
    assert seen.unavailable.reason == "a compile-only target runs nothing"
    assert "cpu" in seen.unavailable.remedy


def test_the_cap_of_seconds_ends_the_turns(observer: Observer) -> None:
    slow = partial(_program, _slow)
    begun = time.monotonic()
    seen = timed(observer, slow, slow, most=1000, most_seconds=1.0)
    assert seen.ended is Ending.SECONDS
    assert seen.judged.first is not None
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize(
    ("number", "whose"), [(1, "judged"), (RUNS_BEFORE + 4, "")], ids=["first run", "turns"]
)
def test_a_process_that_dies_of_a_run_is_evidence_and_the_next_one_serves(
    observer: Observer, number: int, whose: str
) -> None:
    slow = partial(_program, _hundredth)
    seen = timed(observer, slow, on_run(number, os.abort, _HUNDREDTH))
    assert seen.failure
    assert (seen.failure.kind, seen.failed_variant) == (FailureKind.CRASH, whose)
    assert "SIGABRT" in seen.failure.message
    assert timed(observer).failure is None


def test_a_run_that_never_ends_is_a_timeout() -> None:
    with Observer([TargetName.parse("cpu")], timeout_seconds=8) as observer:
        seen = timed(observer, judged=on_run(1, partial(time.sleep, 600)))
    assert seen.failure
    assert (seen.failure.kind, seen.failed_variant) == (FailureKind.TIMEOUT, "judged")


@pytest.mark.exhaustive
def test_progress_keeps_a_long_pair_from_being_given_up() -> None:
    with Observer([TargetName.parse("cpu")], timeout_seconds=6) as observer:
        slow = partial(_program, _slow)
        seen = timed(observer, slow, slow, most=12)
    assert seen.seconds > 6
    assert (seen.failure, seen.ended) == (None, Ending.TURNS)


def test_a_profiler_that_takes_the_process_down_leaves_the_times(
    observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = timed(observer)
    died = Failure(kind=FailureKind.CRASH, message="SIGSEGV")

    def dies_after(times: Times, *_: object) -> Iterator[Answer]:
        yield Answer(times=times, final=False)
        yield Answer(failure=died)

    monkeypatch.setattr(observer, "_answers", partial(dies_after, whole))
    assert timed(observer) == replace(whole, not_profiled="SIGSEGV")
    unfinished = replace(whole, ended=Ending.UNFINISHED)
    monkeypatch.setattr(observer, "_answers", partial(dies_after, unfinished))
    assert timed(observer).failure == died


def test_a_question_that_cannot_be_sent_is_misuse(observer: Observer) -> None:
    import threading

    with pytest.raises(NotPortable, match=r"got a question 'any' that cannot be sent"):
        timed(observer, enough=threading.Lock())


def test_a_question_that_fails_is_a_fault_of_assay(observer: Observer) -> None:
    with pytest.raises(ObservationError, match="ZeroDivisionError"):
        timed(observer, enough=_divides)


def _divides(_reference: Sequence[float], _judged: Sequence[float]) -> bool:
    return bool(1 // 0)


def test_a_forked_child_times_too() -> None:
    # JAX may be forked as long as nothing has run in the process that forks.
    kept: list[Times] = []
    with Observer([TargetName.parse("cpu")], timeout_seconds=60, forks_for="jax") as observer:
        assert timed(observer, kept=kept).ended is Ending.TURNS
        assert timed(observer, judged=on_run(1, os.abort)).failed_variant == "judged"
        assert timed(observer).ended is Ending.TURNS
    assert kept
