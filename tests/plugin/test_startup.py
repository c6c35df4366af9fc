"""A project that does not use Assay imports one small module of it; one that does gets the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.plugin.project import PREAMBLE, Project

NOTES_MODULES = """
import sys
from pathlib import Path

def pytest_unconfigure(config):
    Path("loaded").write_text(" ".join(sorted(sys.modules)))
"""
COVERAGE = {"baselines/coverage.json": '{"schema": 1, "suites": {}}'}
PLAIN = {"test_plain.py": "def test_plain(): pass\n", "conftest.py": NOTES_MODULES}
OWN_TARGET = """
def pytest_addoption(parser):
    parser.addoption("--target", "--level", default="mine")
"""
CHECK = (
    PREAMBLE
    + """
W = workload(variant("double", double))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))

def test_own_option(request):
    assert request.config.getoption("--target") == "mine"
"""
)
FIXTURE = (
    PREAMBLE
    + """
def test_fixture(assay):
    assert assay.compile(lambda x: x * 2, X, target="cpu:8").memory.output_bytes == 32

def test_plain(): pass
"""
)
LATE = FIXTURE.replace("(assay):", "(request):\n    assay = request.getfixturevalue('assay')")


def loaded(project: Project, *arguments: str) -> set[str]:
    """The modules of Assay in pytest's process at its end."""
    cold = project.root / "cold"
    cold.mkdir(exist_ok=True)
    ended = project.pytest(*arguments, path=cold, target="")
    assert ended.exit_code == 0, ended.output
    names = (project.root / "loaded").read_text().split()
    return {name for name in names if name.partition(".")[0] == "assay"}


def test_without_a_use_of_assay_only_its_entry_is_imported(tmp_path: Path) -> None:
    assert loaded(Project(tmp_path, PLAIN)) == {"assay", "assay.plugin"}
    assert not (tmp_path / "results").exists()


def test_a_file_of_expected_coverage_starts_it(tmp_path: Path) -> None:
    assert "assay.plugin.hooks" in loaded(Project(tmp_path, {**PLAIN, **COVERAGE}))


def test_an_option_starts_it(tmp_path: Path) -> None:
    assert "assay.plugin.hooks" in loaded(Project(tmp_path, PLAIN), "--assay-level=full")


def test_options_of_the_same_short_names_do_not_collide(tmp_path: Path) -> None:
    project = Project(tmp_path, {"conftest.py": OWN_TARGET, "test_small.py": CHECK})
    ended = project.pytest()
    assert ended.exit_code == 0, ended.output
    assert ended.record("double").verdict.value == "passed"


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
@pytest.mark.parametrize("text", [FIXTURE, LATE], ids=["fixture", "late"])
def test_a_fixture_alone_leaves_records_and_a_summary(
    tmp_path: Path, text: str, workers: tuple[str, ...]
) -> None:
    ended = Project(tmp_path, {"test_plain.py": text}).pytest(*workers, target="")
    assert ended.exit_code == 0, ended.output
    assert [record.claim for record in ended.records] == ["assertions"]
    assert "Nothing regressed (exit 0): 1 passed" in ended.output
    assert (tmp_path / "results" / "latest" / "summary.md").is_file()


def test_a_check_alone_reaches_the_controller_of_workers(tmp_path: Path) -> None:
    check = CHECK.replace("def test_own_option", "def unused")
    ended = Project(tmp_path, {"test_small.py": check}).pytest("-n", "2", "-k", "cpu", target="")
    assert ended.exit_code == 0, ended.output
    assert {record.target for record in ended.records} == {"cpu:8"}
    assert "Nothing regressed (exit 0)" in ended.output


@pytest.mark.parametrize("more", [{}, COVERAGE], ids=["no coverage", "with expected coverage"])
def test_help_lists_the_options_under_a_heading_of_their_own(
    tmp_path: Path, more: Mapping[str, str]
) -> None:
    help_text = Project(tmp_path, {**PLAIN, **more}).pytest("--help", target="").output
    _, heading, options = help_text.partition("\nXLA regression checks:\n")
    assert heading
    assert "  --assay-target=NAME" in options
    assert "  --assay-update-baselines={new,all}" in options
