"""``--assay-resume`` reaches what an interrupted run lacks, and never mixes two runs."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from assay.model.verdict import Record
from assay.plugin.resume import claim
from assay.store import records
from tests.plugin.project import PREAMBLE, Ended, Project

SUITE = (
    PREAMBLE
    + """
def adding(number):
    def program(devices):
        return Program(
            function=lambda x: x + number,
            arguments=(X,),
            values=lambda: (jnp.zeros(8),),
            observe=lambda x: x + number,
        )

    return program

W = workload(
    variant("first", double), variant("second", double), variant("one", adding(1)),
    variant("same", adding(1), reference="one"),
    variant("refused", mismatched, Role.NEGATIVE_CONTROL, fails_with=FailureKind.TRACE),
    variant("wrong", adding(2), Role.NEGATIVE_CONTROL, reference="one"),
)
test_compiles = Check(claim=claims.Compiles(), workloads=(W,), negative_control="refused")
test_equal = Check(
    claim=claims.ValuesEqual(), workloads=(W,), variants=("same",), negative_control="wrong"
)
"""
)
KILLED_AT_ITS_FOURTH_ITEM = """
import os, signal
from pathlib import Path
def pytest_runtest_call(item, seen=[]):
    seen.append(item)
    if len(seen) == 4 and Path("kill").exists():
        os.kill(os.getpid(), signal.Signals[Path("kill").read_text()])
"""
_TEST = "test_mine.py"


def facts(found: tuple[Record, ...]) -> list[tuple[object, ...]]:
    """What the records say, apart from the run's name, the times and their order."""
    return sorted((*each.key, each.verdict.value, str(each.measured)) for each in found)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A run that nothing interrupted."""
    project = Project(tmp_path_factory.mktemp("whole"), {_TEST: SUITE})
    ended = project.pytest("--assay-no-cache")
    assert ended.exit_code == 0, ended.output
    return ended


@pytest.fixture(scope="module")
def _killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = {_TEST: SUITE, "conftest.py": KILLED_AT_ITS_FOURTH_ITEM, "kill": "SIGKILL"}
    project = Project(tmp_path_factory.mktemp("killed"), files)
    assert project.pytest().exit_code == -signal.SIGKILL
    assert len(records.load(project.newest())) == 3
    (project.root / "kill").unlink()
    return project.root


@pytest.fixture
def killed(_killed: Path, tmp_path: Path) -> Project:
    """A project whose run was killed after three verdicts."""
    shutil.copytree(_killed, tmp_path / "copy", symlinks=True)
    return Project(tmp_path / "copy", {})


def resumed(project: Project, *arguments: str) -> tuple[Ended, tuple[Record, ...]]:
    run = project.newest()
    ended = project.pytest(f"--assay-resume=results/{run.name}", *arguments)
    assert [path.name for path in (project.root / "results").glob("2*")] == [run.name]
    return ended, records.load(run)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_resumed_run_reaches_the_rest_once(
    killed: Project, whole: Ended, workers: tuple[str, ...]
) -> None:
    before = (killed.newest() / records.FILE_NAME).read_bytes()
    ended, found = resumed(killed, *workers)
    assert ended.exit_code == 0, ended.output
    assert facts(found) == facts(whole.records)
    assert (killed.newest() / records.FILE_NAME).read_bytes().startswith(before)
    assert "resumed: kept 3 verdicts of the interrupted run" in ended.output
    assert (killed.root / "results" / "latest").readlink() == Path(killed.newest().name)


def test_a_torn_last_line_is_removed_and_reported(killed: Project, whole: Ended) -> None:
    file = killed.newest() / records.FILE_NAME
    file.write_bytes(file.read_bytes()[:-20])
    ended, found = resumed(killed)
    assert ended.exit_code == 0, ended.output
    assert "the last line of records.jsonl was incomplete, and was removed" in ended.output
    assert facts(found) == facts(whole.records)


def test_an_error_of_assay_is_judged_again(killed: Project, whole: Ended) -> None:
    file = killed.newest() / records.FILE_NAME
    file.write_text(file.read_text().replace('"verdict":"passed"', '"verdict":"error"', 1))
    ended, found = resumed(killed)
    assert ended.exit_code == 0, ended.output
    assert "resumed: kept 2 verdicts" in ended.output
    assert "1 error of Assay judged nothing, tried again" in ended.output
    assert facts(found) == facts(whole.records)


def test_a_measurement_that_cannot_be_read_is_taken_again(killed: Project, whole: Ended) -> None:
    run = killed.newest()
    file = run / records.FILE_NAME
    for path in (run / "evidence").glob("*.json"):
        path.write_bytes(path.read_bytes()[:50])
    assert resumed(killed)[0].exit_code == 3
    ended, found = resumed(killed)
    assert ended.exit_code == 0, ended.output
    assert facts(found) == facts(whole.records)
    assert b'"error"' not in file.read_bytes()


def test_a_finished_run_gains_nothing_and_ends_the_same(killed: Project, whole: Ended) -> None:
    _, found = resumed(killed)
    ended, again = resumed(killed)
    assert (ended.exit_code, again) == (0, found)
    assert facts(again) == facts(whole.records)


def test_values_that_the_end_of_a_run_deleted_are_measured_again(
    killed: Project, whole: Ended
) -> None:
    part, _ = resumed(killed, "-k", "compiles")
    assert part.exit_code == 0, part.output
    ended, found = resumed(killed)
    assert ended.exit_code == 0, ended.output
    assert facts(found) == facts(whole.records)


def test_an_interrupted_run_says_how_to_continue(killed: Project) -> None:
    killed.write({"kill": "SIGINT"})
    ended = killed.pytest()
    assert ended.exit_code == 2
    run = killed.newest()
    assert f"--assay-resume={run}" in ended.output
    (killed.root / "kill").unlink()
    assert killed.pytest(f"--assay-resume={run}").exit_code == 0


def test_a_failure_of_the_first_part_fails_the_whole(killed: Project) -> None:
    file = killed.newest() / records.FILE_NAME
    file.write_text(file.read_text().replace('"verdict":"passed"', '"verdict":"failed"', 1))
    assert resumed(killed)[0].exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--assay-resume=results/none",), "results/none without a records.jsonl"),
        (("--assay-resume=.",), "without a records.jsonl"),
        (("--assay-resume=results/latest", "--assay-level=full"), "give the same options"),
    ],
    ids=["missing", "no run", "another level"],
)
def test_what_cannot_be_resumed_is_refused(
    killed: Project, arguments: tuple[str, ...], says: str
) -> None:
    run = killed.newest()
    (killed.root / "results" / "latest").symlink_to(run.name)
    before = (run / records.FILE_NAME).read_bytes()
    ended = killed.pytest(*arguments)
    assert (ended.exit_code, says in ended.output) == (2, True), ended.output
    assert (run / records.FILE_NAME).read_bytes() == before


def test_a_run_is_not_continued_with_another_jax(killed: Project) -> None:
    file = killed.newest() / records.FILE_NAME
    file.write_text(file.read_text().replace('"jax":"', '"jax":"0.0.'))
    ended, _ = resumed(killed)
    assert (ended.exit_code, "continue with the toolchain" in ended.output) == (2, True)


def test_a_run_is_not_continued_with_edited_tests(killed: Project) -> None:
    killed.write({_TEST: SUITE.replace("x * 2", "x * 3")})
    before = records.load(killed.newest())
    ended, after = resumed(killed)
    assert (ended.exit_code, "changed since" in ended.output) == (2, True), ended.output
    assert before == after


def test_a_run_that_goes_on_is_not_resumed(killed: Project) -> None:
    with claim(killed.newest()):
        ended, _ = resumed(killed)
    assert (ended.exit_code, "has not ended" in ended.output) == (2, True), ended.output
