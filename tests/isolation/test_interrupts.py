"""Ctrl-C keeps what was reached and leaves no process; nor does a pytest that is killed."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.store import records
from tests.plugin.project import PREAMBLE, Project

SLEEPS = (
    PREAMBLE
    + """
def sleeps(devices):
    Path("sleeping").write_text(str(os.getpid()))
    time.sleep(600)

W = workload(variant("double", double), variant("sleeps", sleeps))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)
QUICK = (
    PREAMBLE
    + """
W = workload(variant("double", double))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)
INTERRUPTS_ITSELF = """
import os, signal
from assay.plugin import benchmarks

def interrupted(directory, *rest):
    os.kill(os.getpid(), signal.SIGINT)
    (directory / "written").touch()

benchmarks.write_file = interrupted
"""
SECONDS = 60


def _await(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not happens():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, {"test_sleeps.py": SLEEPS})


@pytest.fixture
def begun(project: Project) -> Iterator[subprocess.Popen[bytes]]:
    """A run whose second program sleeps by now."""
    run = project.start()
    asleep = project.root / "sleeping"
    try:
        _await(lambda: (asleep.exists() and asleep.read_text() != "") or run.poll() is not None)
        yield run
    finally:
        run.kill()
        run.wait()


def test_ctrl_c_ends_the_run_and_keeps_what_was_reached(
    project: Project, begun: subprocess.Popen[bytes]
) -> None:
    child = int((project.root / "sleeping").read_text())
    begun.send_signal(signal.SIGINT)
    assert begun.wait(timeout=20) == pytest.ExitCode.INTERRUPTED
    (record,) = records.load(project.newest())
    assert (record.variant, record.verdict.value) == ("double", "passed")
    page = (project.newest() / "summary.md").read_text()
    assert "Interrupted: the remaining tests did not run (exit 2): 1 passed" in page
    assert "Nothing regressed" not in page
    assert not _runs(child)


def test_ctrl_c_while_the_run_is_written_loses_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_small.py": QUICK, "conftest.py": INTERRUPTS_ITSELF})
    assert project.start().wait(timeout=SECONDS) == pytest.ExitCode.OK
    assert "Nothing regressed (exit 0): 1 passed" in (project.newest() / "summary.md").read_text()
    assert (project.newest() / "written").exists()


def test_a_killed_run_keeps_its_records_and_its_observer_ends_by_itself(
    project: Project, begun: subprocess.Popen[bytes]
) -> None:
    child = int((project.root / "sleeping").read_text())
    assert _runs(child)
    begun.kill()
    begun.wait()
    _await(lambda: not _runs(child))
    (record,) = records.load(project.newest())
    assert record.variant == "double"
    told = project.assay("report", str(project.newest()))
    assert "Interrupted: the remaining tests did not run" in told.output
