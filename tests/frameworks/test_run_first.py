"""While programs are timed, the scheduler is asked to run this process before others."""

from __future__ import annotations

import os
import threading

import pytest

from assay.frameworks import timing
from assay.frameworks.timing import Runner, run_first, take_turns
from assay.model.timing import Turns


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What the system was asked for: thread and nice value; every change is granted."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "setpriority", lambda _which, who, nice: found.append((who, nice)))
    return found


def test_every_thread_runs_first_and_goes_back(asked: list[tuple[int, int]]) -> None:
    usual, ended = os.getpriority(os.PRIO_PROCESS, 0), threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    with run_first():
        during = dict(asked)
    ended.set()
    thread.join()
    assert {os.getpid(), thread.native_id} <= set(during)
    assert set(during.values()) == {-20}
    assert {dict(asked)[each] for each in (os.getpid(), thread.native_id)} == {usual}


def test_who_may_not_run_first_is_timed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_which: int, _who: int, _nice: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse)
    monkeypatch.setattr(timing, "_AUTOGROUP", timing._THREADS / "none")
    with run_first():
        nice = os.getpriority(os.PRIO_PROCESS, 0)
    assert nice == os.getpriority(os.PRIO_PROCESS, 0)


def test_turns_are_taken_at_that_priority(asked: list[tuple[int, int]]) -> None:
    before: list[int] = []

    def run(count: int) -> float:
        before.append(len(asked))
        return 0.01 * count

    turns = Turns(reference="a", question="2", enough=lambda _a, b: len(b) == 2, most=2)
    take_turns((Runner(run=run), Runner(run=run)), turns, most_seconds=30.0)
    assert before[0] == 0
    assert before[-1] > 0
    assert len(asked) > before[-1]
