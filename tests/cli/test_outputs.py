"""A page or a bundle that cannot be written is refused before any work, and no input is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.cli.outputs import check_outputs
from assay.model.blame import WrongValue
from assay.store import records
from tests.store.test_records import RECORD

SOURCE = "def f(x):\n    return x\n\ndef example_args():\n    return (1.0,)\n"
INSPECT = ("inspect", "mk.py:f")
BISECT = ("bisect", "mk.py:f", "--good", "0.8.0", "--bad", "0.9.0")
MATRIX = ("matrix", "dus_remat", "--release", "0.8.0", "--target", "cpu:8")
REPORT = ("report", "run")


class WorkBegan(Exception):
    """Raised in place of the work."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, a run and a folder; the work of each command is not done."""

    def begin(*_: object, **__: object) -> Iterator[None]:
        raise WorkBegan

    for place in (
        "assay.inspection.inspect",
        "assay.toolchains.bisect.find",
        "assay.plugin.collection.collect",
        "assay.store.records.read",
    ):
        monkeypatch.setattr(place, begin)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mk.py").write_text(SOURCE)
    for name in ("folder", "run"):
        (tmp_path / name).mkdir()
    records.append(tmp_path / "run", RECORD)
    return tmp_path


@pytest.mark.parametrize("command", [INSPECT, BISECT, MATRIX, REPORT])
@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("mk.py", "wanted a file for a page, such as page.html"),
        ("new.py", "got --html=new.py, a Python file, wanted"),
        ("folder", "got --html=folder, a folder, wanted"),
        ("mk.py/page.html", "got --html=mk.py/page.html, where mk.py is a file, wanted a folder"),
        ("/proc/page.html", "where /proc cannot be written to (No such file or directory), wanted"),
        ("/dev/null", "got --html=/dev/null, a device or a pipe, wanted"),
        (f"{'x' * 300}/page.html", "(File name too long), wanted a path that can be used"),
    ],
)
def test_an_unusable_page_is_refused_before_any_work(
    command: tuple[str, ...], page: str, words: str
) -> None:
    found = CliRunner().invoke(app, [*command, "--html", page])
    assert isinstance(found.exception, WrongValue)
    assert words in str(found.exception)
    assert Path("mk.py").read_text() == SOURCE


@pytest.mark.parametrize(
    ("bundle", "words"),
    [
        ("mk.py", "got --bundle=mk.py, where mk.py is a file, wanted a folder"),
        ("mk.py/bundle", "got --bundle=mk.py/bundle, where mk.py is a file, wanted a folder"),
        ("/proc/bundle", "where /proc cannot be written to"),
        (".", "got --bundle=., the folder of mk.py, wanted a folder of its own, such as bundle"),
    ],
)
def test_an_unusable_bundle_is_refused_before_any_work(bundle: str, words: str) -> None:
    found = CliRunner().invoke(app, [*BISECT, "--bundle", bundle])
    assert isinstance(found.exception, WrongValue)
    assert words in str(found.exception)


@pytest.mark.parametrize(
    "command",
    [
        ("inspect", "new.hlo", "--html", "new.hlo"),
        ("inspect", "mk.py:f", "--diff", "new.hlo", "--html", "./folder/../new.hlo"),
        ("report", "run", "--html", "run/records.jsonl"),
        ("report", "run/records.jsonl", "--html", "run/records.jsonl"),
    ],
)
def test_no_page_replaces_what_the_command_reads(command: tuple[str, ...]) -> None:
    Path("new.hlo").write_text("HloModule m")
    found = CliRunner().invoke(app, command)
    assert isinstance(found.exception, WrongValue)
    assert "the file that the command reads" in str(found.exception)


@pytest.mark.parametrize("command", [INSPECT, BISECT, MATRIX, REPORT])
def test_a_usable_page_lets_the_work_begin(command: tuple[str, ...]) -> None:
    found = CliRunner().invoke(app, [*command, "--html", "new/page.html"])
    assert isinstance(found.exception, WorkBegan)


@pytest.mark.parametrize(
    "check",
    [
        lambda: check_outputs("mk.py:f", html=Path("page.html"), bundle=Path("bundle")),
        lambda: check_outputs("mk.py:f", html=Path("mk.py.html"), bundle=Path("folder")),
        lambda: check_outputs("suites.x:w/v", html=None, bundle=Path()),
        lambda: check_outputs(html=None),
    ],
)
def test_a_check_leaves_nothing_behind(folder: Path, check: Callable[[], None]) -> None:
    before = sorted(folder.rglob("*"))
    check()
    assert sorted(folder.rglob("*")) == before
