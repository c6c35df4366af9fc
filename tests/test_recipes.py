"""CONTRIBUTING's recipes, followed to the letter in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin.project import Project

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SECTION = re.compile(r"^## (Add a [^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(
    r"^```(python|diff|sh)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
STEP = re.compile(r"^(\d)\. ", re.MULTILINE)
RECIPES = {name: text for name, text in SECTION.findall(PAGE) if BLOCK.search(text)}
COPIED = ("assay", "suites", "baselines", "tests", "conftest.py", "pyproject.toml")


def added(recipe: str) -> int:
    """The lines that a recipe's example adds."""
    lines = 0
    for kind, _, text in BLOCK.findall(recipe):
        if kind == "python":
            lines += text.count("\n")
        elif kind == "diff":
            lines += len(re.findall(r"^\+(?!\+\+ )", text, re.MULTILINE))
    return lines


def follow(recipe: str, place: Path) -> list[str]:
    """Apply a recipe's blocks in their order, and run its commands, which it gives back."""
    project = Project(place, {})
    (place / "pytest.ini").unlink()  # The repository has a configuration of its own.
    bin_folder = str(Path(sys.executable).parent)
    variables = {
        **project.environment(place),
        "PATH": os.pathsep.join([bin_folder, os.environ["PATH"]]),
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
    }
    for kind, file, text in BLOCK.findall(recipe):
        if kind == "python":
            project.write({file: text})
            continue
        command = ["bash", "-ec", text]
        if kind == "diff":
            command = ["git", "apply", "--unidiff-zero", "-"]
        ended = subprocess.run(
            command,
            cwd=place,
            env=variables,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{text}\n{ended.stdout}{ended.stderr}"
    return [text for kind, _, text in BLOCK.findall(recipe) if kind == "sh"]


def copy(place: Path) -> Path:
    """The parts of the repository that the recipes change or run."""
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=ignored)
        else:
            shutil.copy(source, place / name)
    return place


def test_there_is_a_recipe_for_each_kind_of_contribution() -> None:
    wanted = {"workload", "claim", "measurement", "target"}
    assert {f"Add a {kind}" for kind in wanted} == set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_five_steps_and_few_lines(name: str) -> None:
    assert STEP.findall(RECIPES[name]) == ["1", "2", "3", "4", "5"]
    assert 0 < added(RECIPES[name]) < 30


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_followed_to_the_letter_works(name: str, tmp_path: Path) -> None:
    commands = follow(RECIPES[name], copy(tmp_path))
    assert any("pytest" in each for each in commands)  # What was added is tried.


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("```diff\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n```\n", "x: No such file"),
        ("```sh\necho something fails\nfalse\n```\n", "something fails"),
        ("```sh\npytest tests/absent.py\n```\n", "file or directory not found"),
    ],
)
def test_a_recipe_that_does_not_work_is_noticed(tmp_path: Path, recipe: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        follow(recipe, tmp_path)
