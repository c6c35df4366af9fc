"""Checks that no run can make sense of are told while they are collected, in a line, with 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from .project import PREAMBLE, Project

HEAD = (
    PREAMBLE
    + """
W = workload(variant("a", double), variant("b", double), variant("c", double, reference="a"))
COMPILES = claims.Compiles()
class Beside(claims.Compiles):
    def needs(self, variant):
        return ("gone",)
test_checked = Check("""
)


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (
            "claim=COMPILES, workloads=(W,), variants=('a', 'nope')",
            "got variants='nope', which match none",
        ),
        (
            "claim=COMPILES, workloads=(W,), variants='c*'",
            "test_checked: got variants='c*', a string, wanted a tuple",
        ),
        (
            "claim=COMPILES, workloads=(W,), variants=('a',), negative_control='nope'",
            "got negative_control='nope', wanted a variant: ",
        ),
        (
            "claim=claims.ValuesEqual(), workloads=(W,)",
            (
                "which is compared with no variant; wanted one; do this: Variant(name='a', "
                "reference=…)"
            ),
        ),
        (
            "claim=claims.TimeRatio(at_most=2.0), workloads=(W,), variants=('c',)",
            "test_checked: got at_most=2.0 for TimeRatio, wanted a Formula; do this: at_most=",
        ),
        ("claim=claims.TimeRatio, workloads=(W,)", "do this: claim=TimeRatio(…)"),
        (
            "claim=COMPILES, workloads=(W,), variants=()",
            "test_checked: got no variants, wanted one or",
        ),
        ("claim=COMPILES, workloads=()", "test_checked: got no workloads, wanted one or more"),
        (
            (
                "claim=claims.BaselineTempBytes(), workloads=(W,), variants=('c',), "
                "negative_control='a'"
            ),
            "test_checked: got temp-bytes.negative-control put to small/a, which is compared",
        ),
        (
            "claim=COMPILES, workloads=(workload(variant('a', double), framework='jaxx'),)",
            "framework='jaxx' of workload 'small', wanted one of jax, hlo, torch_xla; write jax",
        ),
        (
            "claim=COMPILES, workloads=(workload(variant('one', double)),), negative_control='on'",
            "got negative_control='on', wanted a variant: small has one; write one",
        ),
        (
            "claim=Beside(), workloads=(W,)",
            "compared with 'gone', wanted a variant: ",
        ),
    ],
)
def test_a_check_of_nothing_is_misuse(tmp_path: Path, check: str, words: str) -> None:
    project = Project(tmp_path, {"test_small.py": f"{HEAD}{check})"})
    ended = project.pytest("--collect-only")
    assert ended.exit_code == 2, ended.output
    assert words in " ".join(ended.output.split())
    assert "Traceback" not in ended.output
    assert "site-packages" not in ended.output


def test_a_workload_that_has_none_of_the_variants_needs_no_control(tmp_path: Path) -> None:
    check = "claim=COMPILES, workloads=(W, V), variants=('c',), negative_control='a')"
    other = "V = workload(variant('other', double), name='other')\ntest_checked ="
    file = f"{HEAD}{check}".replace("test_checked =", other)
    ended = Project(tmp_path, {"test_small.py": file}).pytest("--collect-only", "-q")
    assert ended.exit_code == 0, ended.output
    assert "test_checked[small/a@cpu:8/negative-control]" in ended.output


MADE_ELSEWHERE = (
    PREAMBLE
    + """
V = workload(variant("double", double), name="other")
shared = Check(claim=claims.Compiles(), workloads=(V,))
another = Check(claim=claims.Runs(), workloads=(V,))
"""
)
NAMED = (
    PREAMBLE
    + """
import elsewhere
from elsewhere import shared

ALIAS = elsewhere.another
W = workload(variant("double", double))
test_shared = shared
class TestAll:
    NAME = Check(claim=claims.Compiles(), workloads=(W,))
"""
)


@pytest.mark.parametrize(
    ("name", "code"), [("tset_fits", 2), ("check_fits", 0), ("test_fits", 0), ("_fits", 0)]
)
def test_a_check_that_would_never_run_is_misuse(tmp_path: Path, name: str, code: int) -> None:
    """An imported one runs where it was made, and a private one is a part of others."""
    files = {
        "pytest.ini": "[pytest]\npython_functions = check_*\n",
        "elsewhere.py": MADE_ELSEWHERE,
        "test_small.py": NAMED.replace("NAME", name),
    }
    ended = Project(tmp_path, files).pytest("--collect-only", "-q")
    assert ended.exit_code == code, ended.output
    assert "::test_shared[other/double@cpu:8]" in ended.output
    assert (f"::{name}[small/double@cpu:8]" in ended.output) is (code == 0 and name != "_fits")
    words = f"got Check {name}, wanted a name that starts with test_; do this: rename it"
    assert (words in " ".join(ended.output.split())) is (code == 2)
