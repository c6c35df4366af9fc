"""The commands end to end: targets and report, their words and exit codes."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable
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


def _cut(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:-1])


@pytest.mark.parametrize(
    ("damaged", "found"),
    [
        (_cut, "with 3 of 4 verdicts"),
        (lambda data: data * 2, "with 8 of 4 verdicts"),
        (lambda data: data[:-9], "with 3 of 4 verdicts"),
        (lambda data: data + b"{", "whose last line is not finished and was left out"),
        (lambda _: b"", "with 0 of 4 verdicts"),
    ],
    ids=["cut", "twice", "torn", "more", "empty"],
)
def test_a_run_that_is_not_whole_is_shown_and_ends_with_1(
    project: Project, run: str, damaged: Callable[[bytes], bytes], found: str
) -> None:
    copy = project.root / "results/damaged"
    shutil.copytree(project.root / run, copy, dirs_exist_ok=True)
    (copy / "records.jsonl").write_bytes(
        damaged((project.root / run / "records.jsonl").read_bytes())
    )
    for arguments in ([], ["--format=sarif"], ["--format=badge"]):
        ended = project.assay("report", "results/damaged", *arguments)
        assert ended.exit_code == 1, ended.output
        said = " ".join(ended.output.split())
        assert f"assay: got results/damaged/records.jsonl {found}, wanted" in said
    assert project.assay("report", run).exit_code == 0


def test_no_report_and_no_history_says_that_a_cut_run_is_good(tmp_path: Path) -> None:
    good = SUITE.replace('    variant("mismatched", mismatched),\n', "")
    project = Project(tmp_path, {"mysuites/test_small.py": good})
    ended = project.pytest("mysuites")
    assert ended.exit_code == 0, ended.output
    file = project.newest() / "records.jsonl"
    file.write_bytes(_cut(file.read_bytes()))
    said = {form: project.assay("report", "results/latest", *form) for form in FORMS}
    assert "records.jsonl holds 2 of 3 verdicts (exit 1)" in said[()].output
    assert "Nothing regressed" not in said[()].output
    assert '"executionSuccessful": false' in said[("--format", "sarif")].output
    assert "records.jsonl holds 2 of 3 verdicts" in said[("--format", "badge")].output
    added = project.assay("history", "--db=h.db", "--add", "results/latest")
    assert (added.exit_code, "with 2 of 3 verdicts" in added.output) == (2, True), added.output


FORMS = ((), ("--format", "sarif"), ("--format", "badge"))


def test_a_damaged_invocation_is_misuse(project: Project, run: str) -> None:
    copy = project.root / "results/damaged"
    shutil.copytree(project.root / run, copy, dirs_exist_ok=True)
    (copy / "invocation.json").write_text("{")
    ended = project.assay("report", "results/damaged")
    assert ended.exit_code == 2, ended.output
    assert "got results/damaged/invocation.json that cannot be read" in ended.output


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
