"""Whatever is killed, full or read-only: no finished record is lost, none is twice or invented."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.model.verdict import Record
from assay.store import records
from tests import warm
from tests.plugin.project import Ended, Project
from tests.plugin.test_resume import SUITE, facts

KILLS = 100
_TEST = "test_mine.py"
_ROLES = {"worker": b"-c\0import sys;exec(eval(", "child": b"assay.isolate"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A run in which nothing is killed."""
    ended = Project(tmp_path_factory.mktemp("whole"), {_TEST: SUITE}).pytest("--assay-no-cache")
    assert ended.exit_code == 0, ended.output
    return ended


def reached(project: Project) -> tuple[Record, ...]:
    found = list((project.root / "results").glob("2*/records.jsonl"))
    return records.load(found[0]) if found else ()


def resuming(project: Project) -> list[str]:
    return [f"--assay-resume=results/{project.newest().name}"] if reached(project) else []


def process(project: Project, role: str) -> int | None:
    """The worker or the child of the run, if it lives."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                here = (folder / "cwd").readlink() == project.root
                if here and _ROLES[role] in (folder / "cmdline").read_bytes():
                    return int(folder.name)
    return None


def live(project: Project) -> Iterator[subprocess.Popen[bytes]]:
    """Runs that continue one another, each of which is killed in the end."""
    command = ("-P", "-m", "pytest", "--assay-target", "cpu:8", "-n", "1")
    while True:
        run = subprocess.Popen(
            [warm.shared().executable, *command, *resuming(project)],
            cwd=project.root,
            env=project.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        yield run
        run.kill()
        run.wait()


class Killer:
    """Kills processes of runs at random moments, and checks the records after each kill."""

    def __init__(self, root: Path, whole: Ended) -> None:
        self.killed: Counter[str] = Counter()
        self._root, self._whole = root, whole
        self._chosen = random.Random(21)

    def kill(self, number: int) -> None:
        """Kill until a whole run is reached, or this many processes were killed."""
        project = Project(self._root / str(number), {_TEST: SUITE})
        kept: tuple[Record, ...] = ()
        judged_at_kill = -1
        for run in live(project):
            # Most of the kills come after a verdict, some while the run starts.
            goes_on = self._chosen.random() < 0.8
            while goes_on and run.poll() is None and len(reached(project)) <= len(kept):
                time.sleep(0.02)
            for role in ("child", "worker"):
                time.sleep(self._chosen.uniform(0, 0.2))
                # A program whose process is killed twice fails: docs/limits.md.
                if role == "child" and len(reached(project)) == judged_at_kill:
                    continue
                pid = process(project, role)
                if pid is not None:
                    judged_at_kill = len(reached(project))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        self.killed[role] += 1
            time.sleep(self._chosen.uniform(0, 0.2))
            self.killed["controller"] += run.poll() is None
            run.kill()
            run.wait()
            now = reached(project)
            assert now[: len(kept)] == kept
            kept = now
            if len(kept) == len(self._whole.records) or self.killed.total() >= KILLS:
                break
        ended = project.pytest(*resuming(project))
        assert ended.exit_code == 0, ended.output
        assert facts(reached(project)) == facts(self._whole.records)
        shutil.rmtree(project.root)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_a_hundred_kills_lose_nothing(tmp_path: Path, whole: Ended) -> None:
    killer = Killer(tmp_path, whole)
    number = 0
    while killer.killed.total() < KILLS:
        killer.kill(number)
        number += 1
    assert min(killer.killed[role] for role in ("controller", "worker", "child")) > KILLS / 10
