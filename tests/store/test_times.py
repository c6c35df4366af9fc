"""Times are taken once a run, what was measured is on disk at once, and damage is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.model.evidence import Failure, FailureKind, Toolchain
from assay.model.target import Unavailable
from assay.model.timing import (
    Calibration,
    DeviceTimes,
    Ending,
    Keep,
    Machine,
    Times,
    VariantTimes,
)
from assay.store import evidence
from assay.store.evidence import MeasurementCacheError

KEY = ("suite", "stack/full", "plain", "squeeze", "cpu:8", "at most 1")
CALIBRATION = Calibration(matmul=(0.1, 0.2), copy=(0.3,), dispatch=(1e-6,))
PLAIN = Times(
    suite="suite",
    workload="stack/full",
    target="cpu:8",
    question="at most 1",
    toolchain=Toolchain(versions={"jaxlib": "0.12.0"}),
    reference=VariantTimes(variant="plain"),
    judged=VariantTimes(variant="squeeze"),
)
FULL = Times(
    suite="suite",
    workload="stack/full",
    target="cpu:8",
    question="at most 1",
    toolchain=Toolchain(versions={"jaxlib": "0.12.0"}, flags="--a"),
    reference=VariantTimes(
        variant="plain",
        trace=0.1,
        compile=0.2,
        first=0.3,
        runs_per_sample=4,
        samples=(0.1 + 0.2, 1e-9),
        on_device=DeviceTimes(busy=0.1, to_host=0.2, to_device=None),
    ),
    judged=VariantTimes(variant="squeeze", samples=(1.0, 2.0)),
    ended=Ending.TURNS,
    machine=Machine(cpu="a cpu", cores=2, device="cpu", load=0.5),
    before=CALIBRATION,
    after=CALIBRATION,
    failure=Failure(kind=FailureKind.EXECUTION, message="≥"),
    failed_variant="plain",
    unavailable=Unavailable(reason="why"),
    seconds=1.5,
)


def never(_: Keep) -> Times:
    raise AssertionError("timed again")


@pytest.mark.parametrize("seen", [PLAIN, FULL], ids=["plain", "full"])
def test_times_come_back_as_they_were_taken_and_are_taken_once(tmp_path: Path, seen: Times) -> None:
    assert evidence.TIMES.once(tmp_path, KEY, lambda _: seen) == seen
    assert evidence.TIMES.once(tmp_path, KEY, never) == seen
    assert evidence.TIMES.load_all(tmp_path) == ((seen,), ())


@pytest.mark.parametrize("part", range(len(KEY)))
def test_another_pair_or_question_has_times_of_its_own(tmp_path: Path, part: int) -> None:
    evidence.TIMES.once(tmp_path, KEY, lambda _: PLAIN)
    other = tuple("other" if index == part else word for index, word in enumerate(KEY))
    assert evidence.TIMES.once(tmp_path, other, lambda _: FULL) == FULL


def test_an_interrupted_run_keeps_what_was_measured(tmp_path: Path) -> None:
    def interrupted(keep: Keep) -> Times:
        keep(PLAIN)
        keep(FULL)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evidence.TIMES.once(tmp_path, KEY, interrupted)
    assert evidence.TIMES.load_all(tmp_path) == ((FULL,), ())
    assert evidence.TIMES.once(tmp_path, KEY, lambda _: PLAIN) == PLAIN
    assert evidence.TIMES.load_all(tmp_path) == ((PLAIN,), ())


def test_unfinished_times_are_not_taken_for_whole_ones(tmp_path: Path) -> None:
    def finished(keep: Keep) -> Times:
        keep(PLAIN)
        return FULL

    evidence.TIMES.once(tmp_path, KEY, finished)
    assert evidence.TIMES.load_all(tmp_path) == ((FULL,), ())


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"suite": 1}', b"\xff\xfe"])
def test_a_damaged_file_is_told_and_hides_no_other(tmp_path: Path, damage: bytes) -> None:
    evidence.TIMES.once(tmp_path, KEY, lambda _: PLAIN)
    (path,) = (tmp_path / evidence.TIMES.folder).glob("*.json")
    path.write_bytes(damage)
    evidence.TIMES.once(tmp_path, ("other", *KEY[1:]), lambda _: FULL)
    with pytest.raises(MeasurementCacheError, match=r"got .*wanted .*delete it and run again"):
        evidence.TIMES.once(tmp_path, KEY, never)
    whole, (error,) = evidence.TIMES.load_all(tmp_path)
    assert whole == (FULL,)
    assert str(path) in str(error)


def test_a_run_that_timed_nothing_has_no_times(tmp_path: Path) -> None:
    assert evidence.TIMES.load_all(tmp_path) == ((), ())
