"""Times of this machine, accepted and judged again: a pytest a run, a process a session."""

from __future__ import annotations

import json
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.judge.stored_times import FEWEST_ACCEPTED
from assay.model.timing import Ending, Times, digest
from assay.store import times

from .project import PREAMBLE, Ended, Project

TURNS = "TURNS = 10"
SUITE = (
    PREAMBLE
    + """
import numpy as np
from functools import partial

TURNS = 10
SQUARE = jax.ShapeDtypeStruct((200, 200), jnp.float32)

def works(times, devices):
    with Path("processes").open("a") as file:
        file.write(f"{os.getpid()}\\n")
    def work(x):
        return jax.lax.fori_loop(0, times * TURNS, lambda _, y: jnp.tanh(y @ y) * 0.1, x)
    values = lambda: (np.full((200, 200), 0.1, np.float32),)
    return Program(function=work, arguments=(SQUARE,), values=values)

W = workload(
    arm("base", partial(works, 1)), arm("more", partial(works, 4), Role.TWIN, reference="base")
)
# Wide enough that a busy machine's noise does not decide.
CLAIM = claims.AcceptedTime(least_change=0.25, seen_change=0.6, most_load=100.0)
test_time = Check(claim=CLAIM, workloads=(W,), arms=("base",))
"""
)
WITH_TWIN = SUITE.replace('arms=("base",))', 'arms=("base",), twin="more")')
SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One project's times: unknown, accepted, judged again, slower, and on another machine."""

    project: Project
    unseen: Ended
    accepted: Ended
    processes: list[str]
    again: Ended
    slower: Ended
    elsewhere: Ended

    @property
    def file(self) -> Path:
        (found,) = (self.project.root / "baselines/times").glob("*/cpu/mine.json")
        return found


def as_of_another_machine(folder: Path) -> Path:
    """Put a machine's times aside, and in their place the same of a machine of more cores."""
    file = json.loads((folder / "cpu" / "mine.json").read_text())
    file["machine"]["cores"] = "999"
    other = folder.with_name(f"other-{digest(file['machine'])}")
    shutil.move(folder, folder.parents[2] / "aside")
    (other / "cpu").mkdir(parents=True)
    (other / "cpu" / "mine.json").write_text(json.dumps(file))
    return other


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    project = Project(tmp_path_factory.mktemp("stored"), {"suite/test_stored.py": SUITE})

    def run(*arguments: str) -> Ended:
        return project.pytest("suite", *arguments, target="cpu", seconds=SECONDS)

    unseen = run()
    written = project.root / "processes"
    written.unlink()
    accepted = run("--update-baselines=new", "--why", "the first of this machine", "-n", "1")
    processes = written.read_text().split()
    project.write({"suite/test_stored.py": WITH_TWIN})
    again = run()
    project.write({"suite/test_stored.py": SUITE.replace(TURNS, "TURNS = 20")})
    slower = run()
    (folder,) = (project.root / "baselines/times").iterdir()
    moved = as_of_another_machine(folder)
    elsewhere = run()
    shutil.rmtree(moved)
    shutil.move(project.root / "aside", folder)
    return Story(
        project=project,
        unseen=unseen,
        accepted=accepted,
        processes=processes,
        again=again,
        slower=slower,
        elsewhere=elsewhere,
    )


def _verdict(ended: Ended, claim: str = "accepted-time", arm: str = "base") -> str:
    return ended.record(arm, claim).verdict.value


def test_a_machine_never_seen_is_not_measured_and_told_how_to_accept(story: Story) -> None:
    assert (story.unseen.exit_code, _verdict(story.unseen)) == (1, "not-measured")
    assert (
        "no time was ever accepted on this machine"
        in story.unseen.record("base", "accepted-time").reason
    )
    assert "--update-baselines=new" in story.unseen.output


def test_a_first_time_is_accepted_with_its_provenance(story: Story) -> None:
    assert (story.accepted.exit_code, _verdict(story.accepted)) == (0, "kept")
    file = json.loads(story.file.read_text())
    assert file["machine"]["device"] == "cpu"
    (point,) = file["accepted"]["small/base/accepted-time"]["points"]
    assert point["why"] == "the first of this machine"
    assert "jaxlib" in point["toolchain"]
    assert len(point["sessions"]) == FEWEST_ACCEPTED
    for session in point["sessions"]:
        assert len(session["samples"]) >= 10
        assert session["calibration"].keys() == {"matmul", "copy", "dispatch"}


def test_each_session_is_a_process_of_its_own(story: Story) -> None:
    # One more is the observer, which compiles it once before.
    assert len(set(story.processes)) == len(story.processes) == FEWEST_ACCEPTED + 1


def test_the_same_program_is_not_broken_and_changes_no_file(story: Story) -> None:
    assert _verdict(story.again) in {"kept", "not-measured"}
    assert not [name for name in story.again.changed if name.startswith("baselines")]


def test_a_twin_of_four_times_the_work_breaks_it_as_it_must(story: Story) -> None:
    assert _verdict(story.again, "accepted-time.must-fail", "more") == "kept"
    assert story.again.exit_code == 0


def test_twice_the_work_is_broken_with_both_times(story: Story) -> None:
    record = story.slower.record("base", "accepted-time")
    assert (story.slower.exit_code, record.verdict.value) == (1, "broken")
    assert record.baseline is not None
    assert record.limit == record.baseline.value
    assert 1.25 < record.measured / record.limit < 4
    assert "slower: " in story.slower.output
    assert "--why=" in story.slower.output


def test_times_of_another_machine_are_not_compared_with(story: Story) -> None:
    assert (story.elsewhere.exit_code, _verdict(story.elsewhere)) == (1, "not-measured")
    (name,) = (story.project.root / "baselines/times").iterdir()
    assert name.name in story.elsewhere.record("base", "accepted-time").reason


def test_the_sessions_stand_in_the_reports_as_one(story: Story) -> None:
    assert f"{FEWEST_ACCEPTED} sessions" in story.accepted.output
    found = list((story.project.root / "results").glob("*/benchmarks.json"))
    taken = [json.loads(path.read_text())["benchmarks"] for path in sorted(found)]
    info: dict[str, Any] = taken[1][0]["extra_info"]
    assert (info["arm"], info["question"]) == ("base", f"{FEWEST_ACCEPTED} sessions")
    assert "beside" not in info


def test_an_entry_that_nothing_measures_is_an_orphan(story: Story, tmp_path: Path) -> None:
    shutil.copytree(story.project.root / "baselines", tmp_path / "baselines")
    renamed = SUITE.replace("AcceptedTime(", 'AcceptedTime(name="renamed", ')
    project = Project(tmp_path, {"suite/test_stored.py": renamed})
    collected = project.pytest("--collect-only", "-q", target="cpu").output
    orphan = "baselines[mine/small/base/accepted-time@cpu]"
    assert orphan in collected
    only = ("-k", "baselines", "suite")
    told = project.pytest(*only, target="cpu")
    assert told.exit_code == 1
    assert _verdict(told, "accepted-time.orphaned") == "broken"
    removed = project.pytest(*only, "--update-baselines=all", target="cpu")
    assert removed.exit_code == 0
    assert not list((tmp_path / "baselines").rglob("*.json"))


def test_a_busy_machine_accepts_nothing_and_the_run_says_so(tmp_path: Path) -> None:
    """No machine is so idle that a load of nothing at all would do."""
    busy = SUITE.replace("most_load=100.0", "most_load=0.0")
    project = Project(tmp_path, {"test_stored.py": busy})
    ended = project.pytest("--update-baselines=new", target="cpu", seconds=SECONDS)
    assert (ended.exit_code, _verdict(ended)) == (1, "not-measured")
    assert "not accepted: got a load average of" in ended.record("base", "accepted-time").reason
    assert not (tmp_path / "baselines").exists()


def test_a_damaged_file_is_misuse(story: Story, tmp_path: Path) -> None:
    shutil.copytree(story.project.root / "baselines", tmp_path / "baselines")
    (path,) = (tmp_path / "baselines").rglob("*.json")
    path.write_text("{}")
    ended = Project(tmp_path, {"test_stored.py": SUITE}).pytest(target="cpu")
    assert ended.exit_code == 2
    assert "holds no accepted times" in ended.output


def test_a_reason_with_nothing_to_accept_is_misuse(tmp_path: Path) -> None:
    ended = Project(tmp_path, {"test_stored.py": SUITE}).pytest("--why", "so", target="cpu")
    assert ended.exit_code == 2
    assert "got --why='so' with nothing to accept" in ended.output


def test_ctrl_c_keeps_the_sessions_that_were_measured(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_stored.py": SUITE})
    run = project.start("--update-baselines=new")
    end = time.monotonic() + 120
    while len(_finished(project)) < 2:
        assert time.monotonic() < end, "nothing was timed"
        assert run.poll() is None
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=30) == pytest.ExitCode.INTERRUPTED
    assert 2 <= len(_finished(project)) < FEWEST_ACCEPTED
    assert (project.newest() / "benchmarks.json").exists()
    assert not (tmp_path / "baselines").exists()


def _finished(project: Project) -> list[Times]:
    found = list((project.root / "results").glob("2*"))
    taken = times.KEPT.load_all(found[0])[0] if found else ()
    return [each for each in taken if each.ended is not Ending.UNFINISHED]
