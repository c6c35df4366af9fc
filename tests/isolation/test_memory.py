"""A program that takes too much memory ends alone, and only what exceeds its limit is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.isolate import ObservationError, Observer, memory
from assay.isolate.memory import MemoryLimit, Watch, held_bytes, usual_limit
from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.target import TargetName
from assay.model.workload import Program, Role, Variant, Workload
from tests.exhaustive import nightly
from tests.plugin.project import PREAMBLE, Project

MIB = 2**20
LIMIT = MemoryLimit(nbytes=800 * MIB)
CPU = TargetName.parse("cpu:8")


def taken(nbytes: int) -> np.ndarray[Any, Any]:
    """So much memory, allocated and written in native code."""
    return np.ones(max(nbytes, 0), np.uint8)


def _double(devices: Sequence[Any], before: Callable[[], Any] = int, run: Any = int) -> Program:
    import jax

    def function(x: Any) -> Any:
        before()
        return x * 2

    def observe(x: Any) -> Any:
        run()
        return x * 2

    return Program(
        function=function,
        arguments=(jax.ShapeDtypeStruct((4,), "float32"),),
        in_shardings=jax.sharding.SingleDeviceSharding(devices[0]),
        values=lambda: (np.ones(4, np.float32),),
        observe=observe,
    )


def _takes_too_much() -> None:
    taken(4 * LIMIT.nbytes)


def _in_fork() -> None:
    process = os.fork()
    if process == 0:
        try:
            _takes_too_much()
        finally:
            os._exit(0)
    os.waitpid(process, 0)


def _almost_all() -> None:
    """Ends at 90 % of the limit, which the pages of libraries, that are files, would exceed."""
    free = int(LIMIT.nbytes * 0.9) - held_bytes(os.getsid(0))
    kept = taken(free)
    assert held_bytes(os.getsid(0)) > 0.85 * LIMIT.nbytes, kept.nbytes


def _dies_at_first(marker: Path, number: int) -> None:
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), number)


def observed(observer: Observer, program: Any) -> Evidence:
    variant = Variant(name="variant", role=Role.CONTROL, program=program)
    return observer.observe(
        Workload(suite="isolation", name="w", variants=(variant,)), variant, "cpu:8"
    )


@pytest.fixture(scope="module")
def observer() -> Iterator[Observer]:
    with Observer([CPU], timeout_seconds=60, memory_limit=LIMIT) as observer:
        yield observer


@pytest.mark.parametrize(
    ("program", "stage"),
    [
        (partial(_double, before=_takes_too_much), FailureKind.TRACE),
        nightly(partial(_double, run=_takes_too_much), FailureKind.EXECUTION),
        nightly(partial(_double, run=_in_fork), FailureKind.EXECUTION),
    ],
    ids=["compiled", "run", "in a fork"],
)
def test_a_program_that_takes_all_memory_ends_alone(
    observer: Observer, program: Any, stage: FailureKind
) -> None:
    failure = observed(observer, program).failure
    assert failure is not None
    assert (failure.kind, failure.during) == (FailureKind.MEMORY, stage)
    assert "the limit is 800.0 MiB; raise the memory limit" in failure.message
    assert observed(observer, _double).failure is None


@pytest.mark.exhaustive
def test_a_fork_of_the_observer_that_takes_too_much_is_ended() -> None:
    with Observer([CPU], timeout_seconds=60, forks_for="jax", memory_limit=LIMIT) as observer:
        failure = observed(observer, partial(_double, before=_takes_too_much)).failure
    assert failure is not None
    assert failure.kind is FailureKind.MEMORY


def test_a_program_just_below_its_limit_is_not_ended(observer: Observer) -> None:
    assert observed(observer, partial(_double, run=_almost_all)).failure is None


def test_a_limit_below_what_a_process_needs_says_so() -> None:
    with (
        Observer([CPU], timeout_seconds=60, memory_limit=MemoryLimit(nbytes=MIB)) as observer,
        pytest.raises(ObservationError, match=r"did not start: .*the limit is 1\.0 MiB; raise"),
    ):
        observed(observer, _double)


def test_the_kernel_takes_the_child_before_pytest(observer: Observer) -> None:
    score = Path(f"/proc/{observer._running().pid}/oom_score_adj").read_text()
    assert int(score) > int(Path("/proc/self/oom_score_adj").read_text())


def test_a_kill_by_the_kernel_judges_no_program(
    observer: Observer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter(range(100))
    monkeypatch.setattr("assay.isolate.child.kernel_kills", lambda: next(counts))
    dies = partial(_dies_at_first, tmp_path / "died", signal.SIGKILL)
    evidence = observed(observer, partial(_double, before=dies))
    assert evidence.failure == Failure(
        kind=FailureKind.MEMORY,
        message="memory ran out, and the kernel ended its process",
        during=FailureKind.TRACE,
        of_machine=True,
    )


def test_a_process_killed_from_outside_is_tried_once_more(
    observer: Observer, tmp_path: Path
) -> None:
    dies = partial(_dies_at_first, tmp_path / "died", signal.SIGKILL)
    evidence = observed(observer, partial(_double, before=dies))
    assert evidence.failure is None
    assert evidence.retries == ("the process ended by SIGKILL; stderr tail: none",)


def test_a_process_that_aborts_is_not_tried_again(observer: Observer, tmp_path: Path) -> None:
    dies = partial(_dies_at_first, tmp_path / "died", signal.SIGABRT)
    evidence = observed(observer, partial(_double, before=dies))
    assert evidence.failure is not None
    assert (evidence.failure.kind, evidence.retries) == (FailureKind.CRASH, ())


_SHARING = """
import os, sys
import numpy as np
shared = np.ones(256 * 2**20, np.uint8)
os.setsid()
os.fork()
os.write(1, b"x")
sys.stdin.buffer.read()
"""


def test_forks_that_share_pages_are_counted_once() -> None:
    """In a process of its own: to fork one in which jax runs warns."""
    command, pipe = [sys.executable, "-c", _SHARING], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0) as process:
        assert process.stdout
        ready = b"".join(process.stdout.read(1) for _ in range(2))
        held = held_bytes(process.pid)
        Watch(process.pid, MemoryLimit(nbytes=512 * MIB)).look()
        process.communicate(b"")
    assert ready == b"xx"
    assert 256 * MIB <= held < 512 * MIB


@pytest.mark.parametrize(
    ("machine", "workers", "nbytes"),
    [(64, "1", 55.6), (64, "4", 12.4), (8, "8", 2.0)],
    ids=["alone", "four workers", "too small"],
)
def test_the_usual_limit_is_a_workers_share(
    monkeypatch: pytest.MonkeyPatch, machine: int, workers: str, nbytes: float
) -> None:
    monkeypatch.setattr(memory, "machine_bytes", lambda: machine * 2**30)
    found = usual_limit({"PYTEST_XDIST_WORKER_COUNT": workers})
    assert found is not None
    assert (round(found.nbytes / 2**30, 1), found.of_machine) == (nbytes, True)


def test_a_cgroup_with_less_memory_than_the_machine_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = memory.machine_bytes()
    assert whole is not None
    monkeypatch.setattr(memory, "_cgroup_limits", lambda: iter([whole // 2, whole * 2]))
    assert memory.machine_bytes() == whole // 2


GREEDY = (
    PREAMBLE
    + """
import numpy as np

def greedy(devices):
    np.ones(2**32, np.uint8)
    return double(devices)

W = workload(variant("before", double), variant("greedy", greedy), variant("after", double))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)


@pytest.mark.exhaustive
def test_a_run_judges_a_greedy_program_and_goes_on(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_greedy.py": GREEDY})
    ended = project.pytest("--assay-memory-limit=900MiB", path=tmp_path)
    verdicts = {record.variant: record.verdict.value for record in ended.records}
    assert verdicts == {"before": "passed", "greedy": "failed", "after": "passed"}, ended.output
    assert "the limit is 900.0 MiB" in ended.record("greedy").reason
