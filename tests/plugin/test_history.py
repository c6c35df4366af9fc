"""A run adds itself to a database at its end, or says that it did not and how to do so."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.model.history import Trend
from assay.store.history import opened
from tests.plugin.project import PREAMBLE, Project

SUITE = (
    PREAMBLE
    + """
W = workload(variant("double", double))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)


def trends(path: Path) -> tuple[Trend, ...]:
    with opened(str(path)) as database:
        return database.trends(lambda _: True)


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_each_run_adds_itself_and_shows_its_history(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    project = Project(tmp_path, {"test_small.py": SUITE})
    for _ in range(2):
        ended = project.pytest("--assay-history=team/history.db", *workers)
        assert ended.exit_code == 0, ended.output
    (trend,) = trends(tmp_path / "team" / "history.db")
    assert trend.name[2:4] == ("double", "compiles")
    assert len({sample.run for sample in trend.samples}) == 2
    page = (tmp_path / "results/latest/report.html").read_text()
    assert "1 series of 2 runs: 0 with changes" in page


def test_a_run_that_judges_nothing_adds_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_small.py": SUITE})
    project.pytest("--assay-history=history.db", "--collect-only")
    assert trends(tmp_path / "history.db") == ()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://host/name", "got a database URL that starts with mysql://"),
        ("test_small.py", "test_small.py: file is not a database"),
    ],
)
def test_a_database_that_cannot_be_used_ends_the_run_before_it_starts(
    tmp_path: Path, url: str, words: str
) -> None:
    project = Project(tmp_path, {"test_small.py": SUITE})
    ended = project.pytest(f"--assay-history={url}")
    assert ended.exit_code == 2
    assert words in " ".join(ended.output.split())
    assert ended.records == ()


LOSES_ITS_DATABASE = """
from pathlib import Path
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    Path("history.db").write_bytes(b"no database" * 100)
"""


def test_a_database_that_is_lost_meanwhile_is_reported_and_loses_no_record(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_small.py": SUITE, "conftest.py": LOSES_ITS_DATABASE})
    ended = project.pytest("--assay-history=history.db")
    assert ended.exit_code == 3
    assert "not everything could be written (exit 3)" in ended.output
    assert "file is not a database" in " ".join(ended.output.split())
    assert f"then add the run: assay history --add {project.newest()}" in ended.output
    assert ended.record("double").verdict.value == "passed"
    assert (project.newest() / "report.html").is_file()
    (tmp_path / "history.db").unlink()
    again = project.assay("history", "--add", str(project.newest()), "--db", "history.db")
    assert (again.exit_code, again.output.count("1 verdict added")) == (0, 1)


def test_a_path_that_pytest_would_read_as_its_rootdir_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path / "mine", {"test_small.py": SUITE})
    database = tmp_path / "history.db"
    trends(database)
    ended = project.pytest("--assay-history", str(database), "test_small.py")
    assert ended.exit_code == 2
    assert f"write --assay-history={database}" in ended.output
