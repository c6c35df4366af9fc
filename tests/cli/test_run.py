"""``assay run``: what it writes is in the current folder, and a run of nothing does not pass."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from assay.command import main
from tests.plugin.project import Project

SHIPPED = ("run", "dus_remat", "--", "--assay-target", "cpu:8", "-k", "plain and donated")


def test_the_suites_of_a_checkout_write_to_the_current_folder(tmp_path: Path) -> None:
    project = Project(tmp_path, {})
    ended = project.assay(*SHIPPED, "--assay-history=h.db")
    assert ended.exit_code == 0, ended.output
    assert {name.partition("/")[0] for name in ended.changed} == {"results", "h.db"}
    known = project.assay("history", ended.records[0].claim, "--db", "h.db")
    assert (known.exit_code, "dus_remat" in known.output) == (0, True), known.output
    again = project.assay(*SHIPPED, "--assay-resume=results/latest")
    assert again.exit_code == 0, again.output
    assert "resumed: kept" in again.output


def test_a_folder_is_one_of_the_current_folder(tmp_path: Path) -> None:
    project = Project(tmp_path, {})
    ended = project.assay(*SHIPPED, "--assay-results-dir=here")
    assert ended.exit_code == 0, ended.output
    assert {name.partition("/")[0] for name in ended.changed} == {"here"}


@pytest.mark.parametrize(
    ("words", "code"),
    [(("test_typo.py",), 1), (("test_one.py", "-k", "none"), 1), (("test_one.py",), 0)],
)
def test_a_run_without_a_test_does_not_pass(
    tmp_path: Path, words: tuple[str, ...], code: int
) -> None:
    files = {"test_typo.py": "def tset_one(): pass\n", "test_one.py": "def test_one(): pass\n"}
    ended = Project(tmp_path, files).assay("run", *words[:1], "--", *words[1:])
    assert ended.exit_code == code, ended.output
    assert ("got no test (exit 1), wanted one or more" in ended.output) is (code == 1)


def test_an_option_that_does_not_exist_is_misuse(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_one.py": "def test_one(): pass\n"})
    assert project.assay("run", "test_one.py", "--", "--assay-targt=cpu").exit_code == 2


class _Interrupted(ModuleType):
    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_an_interrupted_import_of_the_command_line_is_misuse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "assay.cli", _Interrupted("assay.cli"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (2, "assay: interrupted\n")
