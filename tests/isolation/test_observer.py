"""The observer's own process: its failure is never a program's, and it ends with its parent."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from assay.isolate import ObservationError, Observer
from assay.isolate.child import how_it_ended
from assay.model.evidence import FailureKind
from assay.model.target import TargetName
from assay.model.workload import Program, Role, Variant, Workload

WIDE = 2**17 + 7
"""More than a pipe holds."""


def _exits(_devices: object) -> Program:
    sys.exit(5)


def _exits_with(text: str, _devices: object) -> Program:
    sys.exit(len(text) % 8)


def _workload(variant: Variant) -> Workload:
    return Workload(suite="isolation", name="small", variants=(variant,))


@pytest.fixture
def observer() -> Iterator[Observer]:
    with Observer([TargetName.parse("cpu:8")], timeout_seconds=60) as observer:
        yield observer


def test_a_program_that_leaves_the_process_is_a_crash(observer: Observer) -> None:
    variant = Variant(name="exits", role=Role.CONTROL, program=_exits)
    evidence = observer.observe(_workload(variant), variant, "cpu:8")
    assert evidence.failure
    assert evidence.failure.kind is FailureKind.CRASH
    assert "exit status 5" in evidence.failure.message


def test_a_child_that_died_between_requests_is_replaced(observer: Observer) -> None:
    program = partial(_exits_with, "x" * WIDE)
    variant = Variant(name="exits", role=Role.CONTROL, program=program)
    child = observer._running()
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    evidence = observer.observe(_workload(variant), variant, "cpu:8")
    assert evidence.failure
    assert "exit status 7" in evidence.failure.message
    assert evidence.failure.during is FailureKind.BUILD


def test_an_assay_that_does_not_start_is_no_fault_of_the_program(
    observer: Observer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    variant = Variant(name="exits", role=Role.CONTROL, program=_exits)
    with pytest.raises(ObservationError, match=r"did not start: .* exit status 7"):
        observer.observe(_workload(variant), variant, "cpu:8")


def test_a_child_that_takes_no_request_is_given_up() -> None:
    program = partial(_exits_with, "x" * WIDE)
    variant = Variant(name="exits", role=Role.CONTROL, program=program)
    with Observer([TargetName.parse("cpu:8")], timeout_seconds=1) as observer:
        os.kill(observer._running().pid, signal.SIGSTOP)
        with pytest.raises(ObservationError, match="no answer within 1 s"):
            observer.observe(_workload(variant), variant, "cpu:8")


@pytest.mark.parametrize(
    ("code", "words"), [(3, "exit status 3"), (-9, "SIGKILL"), (-35, "signal 35")]
)
def test_every_end_of_a_process_has_a_name(code: int, words: str) -> None:
    assert how_it_ended(code) == words
