"""Pages that a reader walks through: each file is written, each command gives what is shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, commands, missing, pages
from tests.plugin.project import Project

WALKS = ("docs/tutorial.md", "docs/first-check.md", "docs/add-a-suite.md", "docs/copies.md")
SLOW = {"docs/tutorial.md"}  # 21 s on 2 cores; the others take 4 to 9 s
NOT_WALKED = {
    "README.md": "tests/plugin/test_readme.py runs it",
    "docs/bisect.md": "it installs releases of JAX; tests/cli/test_bisect.py has small ones",
    "docs/fleet.md": "it needs a Ray cluster of several machines",
    "docs/history.md": "it shows months of runs; tests/report/test_history_output.py has its own",
    "docs/matrix.md": "it installs releases of JAX; tests/cli/test_matrix.py has small ones",
}
"""Pages that show a command with its output and are not walked, each with the reason."""
NOT_RUN = {"pip": "it installs 1.9 GB; tox installs the same extras"}
"""Programs that a page names and no test runs, each with the reason."""


def run(project: Project, words: tuple[str, ...]) -> str | None:
    """The output of a command of a page, typed as its reader would; None if no test runs it."""
    program, *arguments = words
    if program in NOT_RUN:
        return None
    if program == "pytest":
        return project.pytest("--color=no", *arguments, target="").output
    if program == "assay":
        return project.assay(*arguments).output
    ended = subprocess.run(
        [sys.executable if program == "python" else program, *arguments],
        cwd=project.root,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "page", [pytest.param(each, marks=[pytest.mark.exhaustive] * (each in SLOW)) for each in WALKS]
)
def test_each_command_gives_what_the_page_shows(page: str, tmp_path: Path) -> None:
    project, checked = Project(tmp_path, {}), 0
    for block in blocks(ROOT / page):
        if block.title:
            project.write({block.title: block.text})
            continue
        for command in commands(block) if block.language == "console" else ():
            output = run(project, command.words)
            if output is not None:
                assert missing(command.shown, output) == [], f"{command}: it is\n{output}"
                checked += 1
    assert checked


def test_every_page_that_shows_output_is_walked_or_has_a_reason() -> None:
    shown = {each.page for path in pages() for each in blocks(path) if each.text.startswith("$ ")}
    assert shown == {*WALKS, *NOT_WALKED}


@pytest.mark.parametrize(
    ("shown", "lost"),
    [
        (("MEMORY  4.00 GiB", "…", "host  0 B"), []),
        (("MEMORY  4.00 GiB", "host  0 B"), ["MEMORY  4.00 GiB", "host  0 B"]),
        (("…", "host  1 B"), ["host  1 B"]),
        (("…", "tempo…"), []),
        (("host  0 B", "…", "MEMORY  4.00 GiB"), ["MEMORY  4.00 GiB"]),
        (("copy 7 at a.py:7", "…"), []),
        (("copy 8 at a.py:6", "…"), ["copy 8 at a.py:6"]),
        ((), []),
    ],
)
def test_output_that_differs_from_the_page_is_seen(shown: tuple[str, ...], lost: list[str]) -> None:
    assert missing(shown, "MEMORY  3.98 GiB\ntemporaries 7\nhost  0 B\ncopy 9 at a.py:7\n") == lost
