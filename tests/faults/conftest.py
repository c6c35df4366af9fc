"""A project in which all passes, and copies of it to put faults to."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import warm
from tests.faults.fault import SUITE, Fault
from tests.faults.injection import NAME, REACHED
from tests.faults.victim import FILES

_SECONDS = 120.0
_OUTER = ("PYTEST_", "ASSAY_", "JAX_", "XLA_", "TPU_", "COV_", "TOX_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended, what it printed, and the newest run's page; ``reached`` by the fault."""

    exit_code: int
    output: str
    page: str
    reached: bool

    @property
    def summary(self) -> str:
        """What the run says last, in one line: from its headline on, if it came to one."""
        *_, rest = re.split(" s of work| on programs from the cache", self.output)
        return " ".join(rest.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A folder in which Assay's commands are run."""

    root: Path

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> Ended:
        """Run ``python COMMAND`` here."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(_OUTER)}
        marker = self.root / "reached"
        here = {"HOME": str(self.root), "COLUMNS": "100", REACHED: str(marker)}
        code, output = warm.run(
            command, cwd=self.root, env={**kept, **here, **environment}, seconds=_SECONDS
        )
        page = self.root / "results" / "latest" / "summary.md"
        return Ended(
            exit_code=code,
            output=output,
            page=page.read_text() if page.is_file() else "",
            reached=marker.exists(),
        )


@pytest.fixture(scope="session")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's files, with the baselines of a run in which nothing was at fault."""
    return passing_project(tmp_path_factory.mktemp("baselines")).root


def passing_project(root: Path) -> Project:
    """A project in that folder whose run ends with 0, with its baselines."""
    project = Project(root=root)
    for name, text in FILES.items():
        path = project.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ended = project.run([*SUITE, "--assay-update-baselines=all"], {})
    assert ended.exit_code == 0, ended.output
    shutil.rmtree(project.root / "results")
    return project


@pytest.fixture
def project(baseline: Path, tmp_path: Path) -> Project:
    root = tmp_path / "project"
    shutil.copytree(baseline, root)
    return Project(root=root)


@pytest.fixture
def put_to(project: Project) -> Callable[[Fault], Ended]:
    """Run the fault's command in a project of its own, with the fault at work."""

    def run(fault: Fault) -> Ended:
        fault.prepare(project.root)
        return project.run([*fault.command, *fault.more], {NAME: fault.name})

    return run
