"""The commands end to end: targets and report, their words and exit codes."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from assay.cli import main
from tests.plugin.project import PREAMBLE, Project

SUITE = (
    PREAMBLE
    + """
from assay import FailureKind, Fails, Upstream, UpstreamState

KNOWN = KnownDefect(
    variants=("known",), targets=("*",), reason="shapes do not fit",
    expects={"compiles": Fails(kind=FailureKind.TRACE, message="incompatible shapes")},
    upstream=Upstream(
        link="https://example.org/1", state=UpstreamState.OPEN, opened="2023-04-05"
    ),
    last_seen="2026-11-20",
)
W = workload(
    variant("double", double),
    variant("mismatched", mismatched),
    variant("known", mismatched),
    variant("negative_control", mismatched, Role.NEGATIVE_CONTROL, fails_with=FailureKind.TRACE),
    known_defects=(KNOWN,),
)
test_compiles = Check(claim=claims.Compiles(), workloads=(W,), negative_control="negative_control")
"""
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("qualified"), {"mysuites/test_small.py": SUITE})


@pytest.fixture(scope="module")
def run(project: Project) -> str:
    return f"results/{project.pytest('mysuites').records[0].run}"


def test_targets_lists_the_live_cpu_and_ends_with_0(project: Project) -> None:
    ended = project.assay("targets")
    assert ended.exit_code == 0
    (line,) = [line for line in ended.output.splitlines() if line.startswith("cpu:8 ")]
    assert line.split()[1] == "live"
    assert not ended.changed


def test_report_prints_a_run_from_its_records(project: Project, run: str) -> None:
    ended = project.assay("report", run)
    assert ended.exit_code == 0
    assert "The run fails (exit 1): 1 failed, 1 known defect, 2 passed." in ended.output
    assert "mine / small" not in ended.output
    assert "mine / small" in project.assay("report", "-v", run).output


def test_the_page_tells_the_state_of_a_known_defect_and_the_machine(
    project: Project, run: str
) -> None:
    ended = project.assay("report", run, "--html", "page.html")
    assert ended.exit_code == 0
    page = (project.root / "page.html").read_text()
    assert "https://example.org/1</a></th><td>open upstream; opened on 2023-04-05, " in page
    assert f"<dt>python</dt><dd>{platform.python_version()}</dd>" in page
    assert page == (project.root / run / "report.html").read_text()


def test_a_missing_run_is_misuse(project: Project) -> None:
    ended = project.assay("report", "results/absent")
    assert ended.exit_code == 2, ended.output
    assert "got no readable results/absent" in ended.output
    assert "Traceback" not in ended.output


HOSTILE = "\x1b]8;;https://example.org\x07\u202e\r\x9b31m.txt"


@pytest.mark.parametrize("command", [["inspect"], ["report"], ["history", "--db=h.db", "--add"]])
def test_a_hostile_name_does_not_reach_the_terminal(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["assay", *command, HOSTILE])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "example.org" in said
    assert said.replace("\n", "").isprintable()
