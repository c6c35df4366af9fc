"""The mutants of ``benchmarks.mutation``: what is changed, what is left alone, what names them."""

from __future__ import annotations

import pytest

from benchmarks.mutation.__main__ import ROOMS, listed_mutants, mutants_in
from benchmarks.mutation.lines import Map
from benchmarks.mutation.mutants import mutants_of


def changed(source: str) -> dict[str, str]:
    """What each mutant of the source makes of it."""
    return {each.mutation: each.mutated for each in mutants_of("file.py", source)}


@pytest.mark.parametrize(
    ("source", "mutation", "mutated"),
    [
        ("x = a < b", "a < b → a <= b", "x = (a <= b)"),
        ("x = a < b", "a < b → a >= b", "x = (a >= b)"),
        ("x = a and b", "and, or exchanged", "x = (a or b)"),
        ("x = a and b", "without b", "x = (a)"),
        ("x = not a", "not a → a", "x = (a)"),
        ("x = a + b", "a + b → a - b", "x = (a - b)"),
        ("x = 3", "3 → 2", "x = (2)"),
        ("x = 3", "3 → 4", "x = (4)"),
        ("x = 'word'", "'word' → ''", "x = ('')"),
        ("x = True", "True → False", "x = (False)"),
        ("x = min(a)", "min → max", "x = (max)(a)"),
        ("x = f(a, b)", "f: arguments swapped", "x = (f(b, a))"),
        ("x = f(a=b)", "f: without a=", "x = (f())"),
        ("x = [a for a in b if c]", "condition negated", "x = [a for a in b if (not (c))]"),
        ("x = a if b else c", "condition negated", "x = a if (not (b)) else c"),
        ("if a: b = c", "condition negated", "if (not (a)): b = c"),
        ("def f(a=1): ...", "1 → 2", "def f(a=(2)): ..."),
        ("def f(): return a", "return None", "def f(): return None"),
        ("f(a)", "statement removed", "pass"),
        ("raise f", "statement removed", "pass"),
        ("x += f", "statement removed", "pass"),
        ("for a in b: continue", "continue → break", "for a in b: break"),
    ],
)
def test_a_change_is_made(source: str, mutation: str, mutated: str) -> None:
    assert changed(source)[mutation] == mutated


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        "x: Literal[1]",
        "@f(frozen=True)\nclass C: ...",
        "assert a == 1",
        "x = f'{a + 1} b'",
        "x = 'several words'",
        "raise ValueError('word')  # removed",
        "f(reason='word')  # removed",
        "x = math.hypot(a, b)  # symmetric",
        "import a",
        "__all__ = ['a']",
    ],
)
def test_messages_types_and_assertions_are_left_alone(source: str) -> None:
    assert set(changed(source)) <= {"statement removed"}


def test_every_mutant_has_a_name_of_its_own_and_can_be_compiled() -> None:
    source = "def f(a=1, b=1):\n    return g(a, b) if a == b == 1 or a > 1 else [1, 'é' + 'b']\n"
    mutants = mutants_of("file.py", source)
    assert len({each.key for each in mutants}) == len(mutants) > 10
    assert [
        compile(each.mutated, "file.py", "exec") for each in mutants if each.mutated == source
    ] == []


def test_the_lines_of_a_condition_are_not_those_of_its_body() -> None:
    source = "def g():\n  if a:\n    f(\n      1)\n"
    lines = {each.text: each.lines for each in mutants_of("f.py", source)}
    assert lines == {"if a:": range(2, 3), "f(": range(3, 5), "1)": range(3, 5)}


def test_what_the_import_runs_has_no_lines_of_its_own() -> None:
    source = "a = 1\nclass C:\n  b = 2\n  def f(c=3):\n    return c\n"
    lines = {each.text: len(each.lines) for each in mutants_of("f.py", source)}
    assert lines == {"a = 1": 0, "b = 2": 0, "def f(c=3):": 0, "return c": 1}


def test_those_who_run_a_line_are_asked_before_their_neighbours() -> None:
    seconds = {"b/t.py::slow": 5.0, "b/t.py::quick": 1.0, "a/t.py::away": 0.5, "b/t.py::near": 0.1}
    ran = {"file.py": {1: {"b/t.py::slow", "b/t.py::quick", "a/t.py::away"}}}
    found = Map(seconds=seconds, ran=ran).tests("file.py", range(1, 2), "b", 60.0)
    assert found == ["b/t.py::quick", "b/t.py::slow", "a/t.py::away", "b/t.py::near"]


def test_no_more_tests_are_asked_than_fit() -> None:
    seconds = {"t.py::first": 2.0, "t.py::second": 3.0, "t.py::third": 4.0}
    ran = {"file.py": {1: set(seconds)}}
    found = Map(seconds=seconds, ran=ran).tests("file.py", range(1, 2), "", 3.0)
    assert found == ["t.py::first", "t.py::second"]


def test_a_line_that_no_test_runs_is_asked_of_all_tests_of_its_file() -> None:
    """The fast ones first: to ask for a constant, a test need not run a line of the file."""
    found = Map(seconds={"t.py::a": 1.0, "t.py::b": 0.1}, ran={"file.py": {9: {"t.py::a"}}})
    assert found.tests("file.py", range(1, 2), "", 60.0) == ["t.py::b", "t.py::a"]
    assert found.tests("other.py", range(1, 2), "", 60.0) == []


def test_every_listed_mutant_is_still_there_and_has_a_reason() -> None:
    there = {each.key for room in ROOMS.values() for each in mutants_in(room)}
    assert [key for key, reason in listed_mutants().items() if key not in there or not reason] == []
