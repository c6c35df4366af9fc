"""The last sentence and the exit code agree, in the terminal and in summary.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import PREAMBLE, Ended, Project

SUITE = (
    PREAMBLE
    + """
from assay import Upstream, UpstreamIssue

ISSUE = UpstreamIssue(
    problem="It does not compile", upstream=Upstream(link="https://x.org"),
    variants=("double",), claims=("compiles",),
)
W = workload(
    variant("double", double), variant("lost", double),
    variant("negative_control", mismatched, Role.NEGATIVE_CONTROL, fails_with=FailureKind.TRACE),
    upstream_issue=ISSUE,
)
test_compiles = Check(claim=claims.Compiles(), workloads=(W,), negative_control="negative_control")
"""
)
KILLED_ONCE = """
import os, signal
def pytest_runtest_call(item):
    if "lost" in item.name and "PYTEST_XDIST_WORKER" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
"""
FAILING = "def test_mine():\n    assert 1 == 2\n"


def _sentences(project: Project, ended: Ended) -> tuple[str, str]:
    """The last sentence on the terminal and that of the newest summary.md."""
    told = [line for line in ended.output.splitlines() if "(exit " in line]
    page = (project.newest() / "summary.md").read_text().splitlines()
    return told[-1], page[2].strip("*")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Ended]:
    files = {"mysuites/test_small.py": SUITE, "conftest.py": KILLED_ONCE}
    project = Project(tmp_path_factory.mktemp("killed"), files)
    return project, project.pytest("mysuites", "-n", "1")


def test_a_killed_worker_is_told_wherever_the_run_is(killed: tuple[Project, Ended]) -> None:
    project, ended = killed
    told, page = _sentences(project, ended)
    assert told == page == "The run is incomplete (exit 1): 2 passed; 1 item reached no verdict."
    assert project.assay("report", str(project.newest())).output.rstrip().endswith(told)


def test_the_issue_of_a_suite_comes_back_from_a_worker(killed: tuple[Project, Ended]) -> None:
    project, ended = killed
    for output in (ended.output, project.assay("report", str(project.newest())).output):
        assert "  today     It does not compile on 0 of 1 compiler (CPU 0 of 1).\n" in output
        assert "  upstream  https://x.org\n" in output
        assert "mine / small" not in output


def test_a_failing_plain_test_beside_passed_verdicts_fails_the_run(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_small.py": SUITE, "test_plain.py": FAILING})
    ended = project.pytest("-v")
    assert ended.exit_code == 1, ended.output
    assert "mine / small" in ended.output, "the grid, which -v asks for"
    told, page = _sentences(project, ended)
    assert told == page == "A test or a worker failed (exit 1): 3 passed."


def test_a_file_that_no_worker_could_collect_fails_the_run(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_small.py": SUITE, "test_odd.py": "import gone\n"})
    ended = project.pytest("-n", "1")
    assert ended.exit_code == 1, ended.output
    assert "Nothing regressed" not in ended.output
