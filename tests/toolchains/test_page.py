"""A page and an exit code for whatever came of a rerun."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assay.model.evidence import Failure, FailureKind, Toolchain, Unavailable
from assay.model.rerun import Pair, Rerun, Side
from assay.model.timing import Change, Ending, ProcessTimes, Ratio
from assay.model.verdict import ExitCode
from assay.toolchains.__main__ import _exit_code
from assay.toolchains.pairs import page

FAILURE = Failure(kind=FailureKind.CRASH, message="SIGABRT")
ROOT = Path(__file__).parents[2]


def times(*samples: float) -> ProcessTimes:
    return ProcessTimes(trace=None, compile=None, first=1.0, runs_per_sample=1, samples=samples)


def rerun(**known: object) -> Rerun:
    known = {"old": Toolchain(versions={"jax": "1"}), "new": Toolchain(versions={}), **known}
    return Rerun(suite="s", workload="w", variant="a", target="cpu", **known)  # type: ignore[arg-type]


def ratio(change: Change) -> Ratio:
    return Ratio(ratio=1.5, low=1.4, high=1.6, units=4, change=change)


def test_a_pair_without_a_turn_is_told_as_such() -> None:
    words = page(rerun(pairs=(Pair(old=times(), new=times()),), ended=Ending.SECONDS))
    assert "pair 1: 0 samples, too few to judge" in words
    assert "the time limit" in words


def test_each_pair_has_its_own_ratio() -> None:
    pair = Pair(old=times(*[0.002] * 8), new=times(*[0.003] * 8))
    words = page(rerun(pairs=(pair,)))
    assert "jax 1, Python : 2 ms a run" in words
    assert "pair 1: 1.5000 ratio of medians, 8 samples" in words


def test_a_failure_names_its_side() -> None:
    words = page(rerun(failure=FAILURE, side=Side.OLD))
    assert "on the baseline toolchain: takes its process down: SIGABRT" in words


@pytest.mark.parametrize(
    ("known", "code"),
    [
        ({"ratio": ratio(Change.SLOWER)}, ExitCode.FAILED),
        ({"ratio": ratio(Change.SAME)}, ExitCode.PASSED),
        ({"ratio": ratio(Change.FASTER)}, ExitCode.PASSED),
        ({"ratio": ratio(Change.TOO_NOISY)}, ExitCode.MISUSE),
        ({}, ExitCode.MISUSE),
        ({"unavailable": Unavailable(reason="no uv")}, ExitCode.MISUSE),
        ({"failure": FAILURE, "side": Side.NEW}, ExitCode.FAILED),
        ({"failure": FAILURE, "side": Side.OLD}, ExitCode.MISUSE),
        ({"failure": FAILURE, "side": Side.NEW, "ratio": ratio(Change.SAME)}, ExitCode.FAILED),
    ],
)
def test_nothing_that_was_not_decided_ends_as_passed(
    known: dict[str, object], code: ExitCode
) -> None:
    assert _exit_code(rerun(**known)) is code


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("no_such_module:w/a", "wanted MODULE:WORKLOAD/VARIANT"),
        ("", "wanted MODULE:WORKLOAD/VARIANT"),
        ("suites.dus_remat.workloads:nothing/plain", "wanted one of suites.dus_remat.workloads's"),
        ("suites.dus_remat.workloads:stack/nothing", "got variant 'nothing', wanted one of"),
    ],
)
def test_a_program_that_is_not_there_is_misuse(program: str, words: str) -> None:
    command = [sys.executable, "-m", "assay.toolchains", "--against", "0.10.2", program]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == ExitCode.MISUSE.value
    assert words in ended.stderr
