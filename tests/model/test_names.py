"""A name is one place: in an id, a record, a baseline's entry and a file's name."""

from collections.abc import Callable

import pytest

from assay.model.blame import check_name, legible, suite_of
from assay.model.workload import Program, Role, Variant, Workload
from tests.run.fakes import trial

PLACES = (
    "../../../../pwn",
    "a/b",
    "a\\b",
    "/etc",
    "..",
    ".hidden",
    "",
    "a\nb",
    "x" * 151,
    "\ud800",
)


def _program(devices: object) -> Program:
    raise AssertionError(devices)


def _variant(name: str) -> Variant:
    return Variant(name=name, role=Role.CONTROL, program=_program)


@pytest.mark.parametrize("name", [*PLACES, "a@cpu"])
@pytest.mark.parametrize(
    "make",
    [
        _variant,
        lambda name: Workload(suite="mine", name=name, variants=(_variant("a"),)),
        lambda name: Workload(suite=name, name="small", variants=(_variant("a"),)),
        lambda name: trial(claim=type("Named", (), {"name": name, "uses_baseline": False})()),
    ],
    ids=["variant", "workload", "suite", "claim"],
)
def test_a_name_that_is_no_name_is_refused(make: Callable[[str], object], name: str) -> None:
    with pytest.raises(ValueError, match=r"^got .* for the name of a.*; rename it$"):
        make(name)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="got 3, int, for the name of a variant, wanted text"):
        check_name("a variant", 3)


@pytest.mark.parametrize("suite", ["a b", "a[1]", "ü", "a%b"])
def test_a_suite_is_named_as_a_file_is(suite: str) -> None:
    with pytest.raises(ValueError, match="for the name of a suite, wanted letters, digits"):
        check_name("a suite", suite)


FILES = (
    "test_x.py",
    "a/test_x.py",
    "b/test_x.py",
    "a.test_x.py",
    "a-test_x.py",
    "a b/test_x.py",
    "a/b/test_x.py",
    "a.b/test_x.py",
    "../a/test_x.py",
    "/a/test_x.py",
    f"{'long/' * 60}test_x.py",
    "a[b]/test_x.py",
    "+a b/test_x.py",
    "тест/проверка.py",
)


def test_no_two_files_share_a_suite_and_each_is_a_name() -> None:
    suites = [suite_of(file) for file in FILES]
    assert len(set(suites)) == len(FILES)
    assert suites[:2] == ["test_x", "a.test_x"]
    for suite in suites:
        check_name("a suite", suite)


TESTS = (
    "test_a",
    "TestA.test_a",
    "test_a[a/b]",
    "test_a[a-b]",
    "test_a[a b]",
    "test_a[ü]",
    "é" * 99,
)


def test_no_two_tests_share_a_name_and_each_is_one() -> None:
    names = [legible(test) for test in TESTS]
    assert len(set(names)) == len(TESTS)
    assert names[:2] == ["test_a", "TestA.test_a"]
    for name in names:
        check_name("a workload", f"{name}-12345")
