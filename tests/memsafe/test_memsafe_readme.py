"""The first example of memsafe's README prints what the README shows, without Assay installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installed import REPOSITORY, install

README = (REPOSITORY / "memsafe/README.md").read_text()
FENCED = re.findall(r"```(?:python)?\n(.*?)```", README, re.DOTALL)
PROGRAM, REFUSED, ONE_LINE, EXPLAINED = FENCED[:4]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without Assay, with memsafe as pip installs it."""
    pytest.importorskip("libtpu", reason="the example needs the TPU compiler")
    folder = tmp_path_factory.mktemp("reader")
    install(REPOSITORY / "memsafe", folder / "installed")
    return folder


def run(project: Path, source: str) -> subprocess.CompletedProcess[str]:
    (project / "attend.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-P", "attend.py"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "installed"), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_program_runs_out_of_memory_as_written(project: Path) -> None:
    ended = run(project, PROGRAM)
    assert ended.returncode == 1
    assert REFUSED.replace("\n", " ").strip()[:90] in ended.stderr.replace("\n", " ")


def test_one_line_makes_it_fit_as_the_readme_prints(project: Path) -> None:
    *program, compiled = PROGRAM.splitlines(keepends=True)
    assert compiled.endswith(".compile()\n")
    ended = run(project, "".join(program) + ONE_LINE)
    assert ended.returncode == 0, ended.stderr
    found = ended.stdout

    def loops(text: str) -> list[str]:
        return [line for line in text.splitlines() if re.match(r" +(loop|makes|inside)", line)]

    assert loops(found) == loops(EXPLAINED)
    assert re.match(r"loss in 16\.91 GB: \d{3}\.\d\d MB compiled, ", found)
