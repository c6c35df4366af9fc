"""docs/regressions: plain programs, the threads' releases, and the page that the numbers give."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from assay.model.bisection import Bisection, Point
from assay.model.units import Unit
from benchmarks.regression_gallery import (
    FOLDER,
    Entry,
    Window,
    disagreement,
    entries,
    page,
    stored,
    windows,
    write,
)
from tests.test_layers import imported

ENTRIES = entries()
PACKAGES = {"jax", "numpy", "torch", "torch_xla"}
EACH = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


def bisection(*numbers: float | None) -> Bisection:
    """Releases 0.1, 0.2, … with these numbers."""
    points = tuple(
        Point(version=f"0.{minor}", number=number) for minor, number in enumerate(numbers, 1)
    )
    return Bisection(
        subject="step.py:f",
        target="cpu",
        component="jax",
        metric="value",
        unit=Unit.RATIO,
        good="0.1",
        bad=points[-1].version,
        versions=tuple(point.version for point in points),
        points=points,
    )


@EACH
def test_measured_releases_are_those_that_the_thread_names(entry: Entry) -> None:
    assert disagreement(entry, stored(entry)) == ""


@EACH
def test_the_stored_numbers_answer_the_entrys_question(entry: Entry) -> None:
    found = stored(entry)
    assert found.subject == f"{entry.program.name}:f"
    assert (found.target, found.metric) == (entry.target, entry.metric)
    assert (found.good, found.bad) == (entry.good, entry.bad)
    assert len(found.points) == len(found.versions) or not entry.scan


@EACH
def test_a_program_is_plain_jax_and_names_its_thread(entry: Entry) -> None:
    text = entry.program.read_text()
    assert entry.thread in (ast.get_docstring(ast.parse(text)) or "")
    modules = {name.split(".")[0] for name in imported(text, "")}
    assert modules - sys.stdlib_module_names <= PACKAGES


def test_six_releases_agree_and_ten_regressions_are_shown() -> None:
    assert len(ENTRIES) >= 10
    assert sum(bool(entry.introduced or entry.fixed) for entry in ENTRIES) >= 6


def test_each_file_belongs_to_one_regression() -> None:
    names = sorted(entry.name for entry in ENTRIES)
    assert len(set(names)) == len(names)
    for folder in ("programs", "measured", "plots"):
        assert sorted(file.stem for file in (FOLDER / folder).glob("*.*")) == names


def test_page_and_plots_are_those_of_the_stored_numbers(tmp_path: Path) -> None:
    known = {entry: stored(entry) for entry in ENTRIES}
    write(tmp_path, known)
    assert (FOLDER / "README.md").read_text() == page(known)
    for entry in ENTRIES:
        # Another matplotlib may place the lines differently.
        new, old = (shown(folder / "plots" / f"{entry.name}.svg") for folder in (tmp_path, FOLDER))
        assert new == old


def shown(svg: Path) -> list[str | None]:
    return [each.text for each in ET.fromstring(svg.read_text()).iter() if each.text]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0, 0, 1, 0), [("0.3", "0.4")]),
        ((0, 0, 1, 1), [("0.3", "")]),
        ((1, 0, 0), [("", "0.2")]),
        ((1, 1), [("", "")]),
        ((0, 1, 0, 1), [("0.2", "0.3"), ("0.4", "")]),
        ((0, None, 1), [("0.3", "")]),
        ((0, 0.5), []),
    ],
)
def test_windows_are_the_ranges_above_the_limit(
    numbers: tuple[float | None, ...], expected: list[tuple[str, str]]
) -> None:
    found = windows(bisection(*numbers), 0.5)
    assert found == tuple(Window(introduced=first, fixed=last) for first, last in expected)


@pytest.mark.parametrize(
    ("introduced", "fixed", "numbers", "words"),
    [
        ("0.3", "0.4", (0, 0, 1, 0), ""),
        ("0.2", "", (0, 0, 1, 0), "measured 0.3, and the thread names 0.2"),
        ("", "0.3", (0, 0, 1, 1), "measured no step, and the thread names 0.3"),
        ("", "", (0, 0), "got 0 ranges of bad releases"),
        ("", "", (0, 1, 0, 1), "got 2 ranges of bad releases"),
    ],
)
def test_another_release_than_the_threads_is_noticed(
    introduced: str, fixed: str, numbers: tuple[float, ...], words: str
) -> None:
    entry = msgspec.structs.replace(ENTRIES[0], introduced=introduced, fixed=fixed, limit="")
    said = disagreement(entry, bisection(*numbers))
    assert said.startswith(words)
    assert bool(said) == bool(words)


def test_a_step_that_is_missing_changes_the_page() -> None:
    entry = next(each for each in ENTRIES if len(stored(each).steps) > 1)
    found = stored(entry)
    assert page({entry: replace(found, steps=found.steps[:1])}) != page({entry: found})
