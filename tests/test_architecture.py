"""The drawing in docs/architecture.md is that of the source, whose parts stay small."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.test_layers import ROOT, imported, room_of, rooms_of

MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60
PAGE = (ROOT / "docs/architecture.md").read_text()
ARROW = re.compile(r"^ +(\w+) --> (\w+)$", re.MULTILINE)
FUNCTION = re.compile(r"^\| \d+ \| `([\w.]+):([\w.]+)` \|", re.MULTILINE)


def arrows(root: Path) -> Iterator[tuple[str, str]]:
    """The imports from one package of assay to another, but for those of ``model``."""
    rooms = rooms_of(root)
    for file in sorted((root / "assay").rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        here = room_of(".".join(parts), rooms)
        for name in imported(file.read_text(), ".".join(parts[:-1])):
            there = room_of(name, rooms)
            if name.startswith("assay.") and there not in {here, "model", "assay"}:
                yield here, there


def test_the_drawing_shows_the_imports_between_its_packages() -> None:
    drawn = ARROW.findall(PAGE)
    assert drawn
    packages = {package for arrow in drawn for package in arrow}
    real = {arrow for arrow in arrows(ROOT) if set(arrow) <= packages}
    assert sorted(drawn) == sorted(real)


@pytest.mark.parametrize(("module", "function"), FUNCTION.findall(PAGE))
def test_every_step_names_a_function(module: str, function: str) -> None:
    found = import_module(module)
    for name in function.split("."):
        found = getattr(found, name)
    assert callable(found)


def test_an_import_that_is_not_drawn_is_noticed(tmp_path: Path) -> None:
    for package in ("hlo", "store"):
        (tmp_path / "assay" / package).mkdir(parents=True)
        (tmp_path / "assay" / package / "__init__.py").touch()
    (tmp_path / "assay/hlo/peak.py").write_text("from assay.store import files\n")
    assert list(arrows(tmp_path)) == [("hlo", "store")]


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The functions and methods of a module, each with its lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("room", ["assay", "memsafe/src", "suites"])
def test_modules_and_functions_stay_small(room: str) -> None:
    large = []
    for file in sorted((ROOT / room).rglob("*.py")):
        source = file.read_text()
        place, lines = str(file.relative_to(ROOT)), source.count("\n")
        large += [f"{place}: {lines} lines"] if lines > MOST_LINES else []
        for name, length in functions(ast.parse(source)):
            if length > MOST_LINES_OF_A_FUNCTION:
                large.append(f"{place}: {name} has {length} lines")
    assert large == []
