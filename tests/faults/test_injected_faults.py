"""Assay that is broken on purpose never ends with 0, and says which part fails."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import Ended, Project
from tests.faults.fault import PASSED, QUALIFY, SUITE, Fault
from tests.faults.mounted import mounts_work
from tests.faults.table import FAULTS, KILLED_CONTROLLER

_WORDS_OF_SUCCESS = "Nothing regressed"


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_is_told(fault: Fault, put_to: Callable[[Fault], Ended]) -> None:
    if fault.mounts and not mounts_work():
        pytest.skip("mounts no disk: not root, or in a container")
    ended = put_to(fault)
    assert ended.reached == fault.is_injected, (
        f"{fault.place or fault.hides} was not reached:\n{ended.output}"
    )
    assert (ended.exit_code == PASSED) == fault.is_healed, ended.output
    good = fault.after_a_good_run or fault.is_healed
    assert (_WORDS_OF_SUCCESS in ended.output + ended.page) == good, ended.output
    missing = [words for words in fault.says if words not in ended.summary]
    assert not missing, f"{missing} not in:\n{ended.output}"
    assert ended.exit_code == fault.ends, ended.output


@pytest.mark.parametrize("command", [SUITE, (*SUITE, "-n", "1"), QUALIFY], ids=" ".join)
def test_without_a_fault_the_run_ends_with_0(project: Project, command: tuple[str, ...]) -> None:
    ended = project.run(command, {})
    assert ended.exit_code == PASSED, ended.output
    assert _WORDS_OF_SUCCESS in ended.output
    assert _WORDS_OF_SUCCESS in ended.page


def test_a_run_whose_controller_is_killed_reads_as_unfinished(
    put_to: Callable[[Fault], Ended], project: Project
) -> None:
    ended = put_to(KILLED_CONTROLLER)
    assert ended.exit_code == -signal.SIGKILL, ended.output
    (folder,) = (project.root / "results").glob("2*")
    report = project.run(("-m", "assay.cli", "report", str(folder)), {})
    assert "Interrupted: the remaining tests did not run" in report.summary
    again = project.run((*QUALIFY, "--from", str(folder)), {})
    assert again.exit_code != PASSED, again.output
    assert "Not qualified" in again.output


def test_the_page_of_faults_has_every_fault_and_lost_nothing() -> None:
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")][
        1:
    ]
    faults = (*FAULTS, KILLED_CONTROLLER)
    assert [(row[0], row[2]) for row in rows] == [(each.name, str(each.ends)) for each in faults]
    assert all(len(row) == 5 and row[3] and row[4].startswith("nothing lost") for row in rows)


def test_every_fault_has_a_name_of_its_own() -> None:
    names = [fault.name for fault in (*FAULTS, KILLED_CONTROLLER)]
    assert sorted(set(names)) == sorted(names)
