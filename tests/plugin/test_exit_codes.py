"""0 all passed, 1 failed or nothing judged, 2 misuse, 3 Assay failed; misuse is told in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import PREAMBLE, Project

COMPILES = (
    PREAMBLE
    + """
W = workload(variant("double", double))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)
DAMAGED = '{"schema": 1, "suite": "mine"'


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("misuse"), {"test_small.py": COMPILES})


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--assay-target=gpu-h10", "write gpu-h100"),
        ("--assay-target=,", "got --assay-target without a name"),
        ("--assay-level=slow", "got --assay-level=slow, wanted quick, full, device or soak"),
        ("--assay-update-baselines=old", "got --assay-update-baselines=old, wanted new or all"),
        (
            "--assay-against=nonsense",
            "--assay-against: got 'nonsense', wanted a version of jax (0.10.2)",
        ),
        ("--assay-against=", "--assay-against=baseline takes that of the nearest baseline"),
        (
            "--assay-against-seconds=60",
            "got --assay-against-seconds=60 with nothing to compare, wanted",
        ),
        (
            "--assay-compile-timeout=soon",
            "got --assay-compile-timeout=soon, wanted a positive number",
        ),
        ("--assay-compile-timeout=-1", "got --assay-compile-timeout=-1, wanted a positive number"),
        ("--assay-results-dir=test_small.py", "test_small.py is a file, wanted a folder"),
        ("--assay-results-dir=/proc/nope", "got --assay-results-dir=/proc/nope, where /proc"),
        ("--assay-baselines-dir=pytest.ini/x", "pytest.ini is a file, wanted a folder"),
        (
            "--assay-compile-timeout=nan",
            "got --assay-compile-timeout=nan, wanted a positive number",
        ),
    ],
)
def test_misuse_ends_with_2_and_says_what_to_do(project: Project, option: str, words: str) -> None:
    target = (
        option.removeprefix("--assay-target=") if option.startswith("--assay-target") else "cpu:8"
    )
    ended = project.pytest(
        *([] if option.startswith("--assay-target") else [option]), target=target
    )
    assert ended.exit_code == 2, ended.output
    assert words in ended.output
    assert "Traceback" not in ended.output
    assert not ended.changed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DAMAGED, "restore it from version control"),
        (
            '{"schema":1,"suite":"mine","target":"cpu:8","baselines":{"a/b":[]}}',
            "wanted workload/variant/claim",
        ),
        (
            '{"schema":1,"suite":"mine","target":"cpu","baselines":{}}',
            "move the file to its own place",
        ),
    ],
)
def test_a_damaged_baseline_file_is_misuse_and_stays_as_it_is(
    tmp_path: Path, text: str, words: str
) -> None:
    files = {"test_small.py": COMPILES, "baselines/cpu-8/mine.json": text}
    ended = Project(tmp_path, files).pytest("--assay-update-baselines=all")
    assert ended.exit_code == 2
    assert words in ended.output
    assert "Traceback" not in ended.output
    assert not ended.changed


def test_seconds_that_cap_no_comparison_are_misuse(project: Project) -> None:
    ended = project.pytest("--assay-against=0.10.2", "--assay-against-seconds=0")
    assert ended.exit_code == 2, ended.output
    assert "got --assay-against-seconds=0, wanted a positive number of seconds" in ended.output


def test_what_cannot_be_written_at_the_end_is_told_and_ends_with_3(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_small.py": COMPILES, "results/latest/kept": ""})
    ended = project.pytest()
    assert ended.exit_code == 3, ended.output
    assert "assay: not everything could be written (exit 3): " in ended.output
    sentence = "The results are incomplete: not everything could be written (exit 3): 1 passed."
    assert sentence in ended.output
    assert sentence in (project.newest() / "summary.md").read_text()
    assert "Nothing regressed" not in ended.output
    assert "Traceback" not in ended.output


FAILS = """
def pytest_runtest_logreport(report):
    if report.when == "teardown":
        raise RuntimeError("mine")
"""


def test_a_run_that_a_plugin_ended_never_says_that_nothing_regressed(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_small.py": COMPILES, "conftest.py": FAILS})
    ended = project.pytest()
    assert ended.exit_code == 3, ended.output
    page = (project.newest() / "summary.md").read_text()
    assert "pytest or a plugin failed: the remaining tests did not run (exit 3)" in page
    assert "pytest or a plugin failed" in project.assay("report", str(project.newest())).output


def test_workers_are_not_begun_on_a_damaged_baseline_file(tmp_path: Path) -> None:
    text = '{"schema":2,"suite":"mine","target":"cpu:8","baselines":{}}'
    files = {"test_small.py": COMPILES, "baselines/cpu-8/mine.json": text}
    ended = Project(tmp_path, files).pytest("-n", "1")
    assert ended.exit_code == 2, ended.output
    assert "mine.json: got schema 2, wanted 1; use the Assay that wrote it" in ended.output
    assert "bringing up nodes" not in ended.output


@pytest.mark.parametrize("option", ["--assay-results-dir", "--assay-baselines-dir"])
def test_a_folder_that_pytest_would_take_for_its_root_is_refused(
    project: Project, tmp_path: Path, option: str
) -> None:
    ended = project.pytest(option, str(tmp_path))
    assert ended.exit_code == 2, ended.output
    assert f"write {option}={tmp_path}" in "".join(ended.output.splitlines())
    assert not ended.changed
    assert project.pytest(f"{option}={tmp_path}", "--collect-only").exit_code == 0


def test_a_run_that_judged_nothing_fails(project: Project) -> None:
    ended = project.pytest(target="tpu")
    assert ended.exit_code == 1, ended.output
    assert {record.verdict.value for record in ended.records} == {"unsupported"}
    assert "The run judged nothing, which is not a pass (exit 1)" in ended.output


def test_two_checks_of_one_claim_on_one_program_are_misuse(tmp_path: Path) -> None:
    again = "test_again = Check(claim=claims.Compiles(), workloads=(W,))\n"
    ended = Project(tmp_path, {"test_small.py": COMPILES + again}).pytest()
    assert ended.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "got two checks of 'compiles' on small/double@cpu:8" in ended.output
    assert "Traceback" not in ended.output
    assert not ended.changed
