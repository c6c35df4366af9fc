"""Reruns come back as they were made, once a run; what was interrupted is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from assay.model.evidence import Failure, FailureKind, Toolchain
from assay.model.rerun import Pair, Rerun, Side
from assay.model.timing import Change, Ending, ProcessTimes, Ratio
from assay.store.evidence import RERUNS, MeasurementCacheError

KEY = ("suite", "stack/full", "plain", "cpu:8", "0.10.2, 0.02 to 0.04, negative control False")
PROCESS = ProcessTimes(
    trace=None, compile=0.1 + 0.2, first=1.0, runs_per_sample=4, samples=(1e-9, 0.3)
)
PLAIN = Rerun(suite="suite", workload="stack/full", variant="plain", target="cpu:8")
FULL = replace(
    PLAIN,
    negative_control=True,
    ended=Ending.STOPPED,
    old=Toolchain(versions={"jax": "0.10.2"}),
    pairs=(Pair(old=PROCESS, new=PROCESS),),
    ratio=Ratio(ratio=1.0, low=0.9, high=1.1, units=4, change=Change.SAME),
    failure=Failure(kind=FailureKind.CRASH, message="≥"),
    side=Side.NEW,
)


def never(_: Callable[[Rerun], None]) -> Rerun:
    raise AssertionError("rerun again")


@pytest.mark.parametrize("made", [PLAIN, FULL], ids=["plain", "full"])
def test_a_rerun_comes_back_as_it_was_made_and_is_made_once(tmp_path: Path, made: Rerun) -> None:
    assert RERUNS.once(tmp_path, KEY, lambda _: made) == made
    assert RERUNS.once(tmp_path, KEY, never) == made
    assert RERUNS.load_all(tmp_path) == ((made,), ())


@pytest.mark.parametrize("part", range(len(KEY)))
def test_another_question_has_a_rerun_of_its_own(tmp_path: Path, part: int) -> None:
    RERUNS.once(tmp_path, KEY, lambda _: PLAIN)
    other = tuple("other" if index == part else word for index, word in enumerate(KEY))
    assert RERUNS.once(tmp_path, other, lambda _: FULL) == FULL


def test_an_interrupted_rerun_keeps_its_pairs_and_is_made_again(tmp_path: Path) -> None:
    def interrupted(keep: Callable[[Rerun], None]) -> Rerun:
        keep(FULL)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RERUNS.once(tmp_path, KEY, interrupted)
    assert RERUNS.load_all(tmp_path) == ((FULL,), ())
    RERUNS.once(tmp_path, KEY, lambda _: PLAIN)
    assert RERUNS.load_all(tmp_path) == ((PLAIN,), ())


def test_a_damaged_file_says_what_to_do_and_hides_no_other(tmp_path: Path) -> None:
    RERUNS.once(tmp_path, KEY, lambda _: PLAIN)
    (path,) = (tmp_path / RERUNS.folder).glob("*.json")
    path.write_bytes(b"{")
    with pytest.raises(MeasurementCacheError, match="delete it and run again"):
        RERUNS.once(tmp_path, KEY, never)
    RERUNS.once(tmp_path, (*KEY, "other"), lambda _: FULL)
    found, (damaged,) = RERUNS.load_all(tmp_path)
    assert found == (FULL,)
    assert str(path) in str(damaged)
