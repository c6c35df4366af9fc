"""No program is judged by what was seen of another, and no name leads out of its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import PREAMBLE, Ended, Project

PLAIN = """
import jax, jax.numpy as jnp, pytest

def sorts(length):
    return jax.ShapeDtypeStruct((length,), jnp.float32)

class TestSmall:
    def test_fits(self, assay):
        def step(x):
            return jnp.sort(x * 2)[::-1] + 1
        assert assay.compile(step, sorts(8), target="cpu:8").memory.temp_bytes <= 1024

class TestHuge:
    @pytest.mark.parametrize("kind", ["a/b", "a-b"])
    def test_fits(self, assay, kind):
        def step(x):
            return jnp.sort(x * 2)[::-1] + 1
        length = sorts(8 if kind == "a/b" else 2**20)
        assert assay.compile(step, length, target="cpu:8").memory.temp_bytes <= 1024
"""
WORKLOAD = (
    PREAMBLE
    + """
W = workload(variant("double", NAME))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    huge = PLAIN.replace("sorts(8)", "sorts(2**20)")
    files = {"a/test_x.py": PLAIN, "b/test_x.py": huge, "a/__init__.py": "", "b/__init__.py": ""}
    return Project(tmp_path_factory.mktemp("plain"), files).pytest()


def test_tests_of_one_name_are_judged_by_their_own_programs(plain: Ended) -> None:
    verdicts = {
        (one.suite, one.workload.partition("]")[0]): one.verdict.value for one in plain.records
    }
    assert plain.exit_code == 1, plain.output
    assert verdicts == {
        ("a.test_x", "TestSmall.test_fits"): "passed",
        ("a.test_x", "TestHuge.test_fits[a-b"): "failed",
        ("b.test_x", "TestSmall.test_fits"): "failed",
        ("b.test_x", "TestHuge.test_fits[a-b"): "failed",
    } | {key: value for key, value in verdicts.items() if value == "passed"}
    assert plain.outcomes == {"failed": 3, "passed": 3}


def test_two_workloads_of_one_name_are_misuse(tmp_path: Path) -> None:
    files = {
        f"{folder}/test_{folder}.py": WORKLOAD.replace("NAME", program)
        for folder, program in (("a", "double"), ("b", "mismatched"))
    }
    ended = Project(tmp_path, files).pytest()
    assert ended.exit_code == 2, ended.output
    assert "got two workloads named 'small' in suite 'mine'" in ended.output
    assert not ended.records


def test_a_workload_that_two_files_import_is_one(tmp_path: Path) -> None:
    again = (
        "from assay import Check, claims\nfrom test_a import W\n"
        "test_again = Check(claim=claims.BaselineTempBytes(), workloads=(W,))\n"
    )
    files = {"test_a.py": WORKLOAD.replace("NAME", "double"), "test_b.py": again}
    ended = Project(tmp_path, files).pytest("--collect-only", "-q")
    assert ended.exit_code == 0, ended.output


def test_a_suite_that_leads_out_of_the_folder_is_misuse(tmp_path: Path) -> None:
    file = WORKLOAD.replace("NAME)", 'double), suite="../../../../pwn"')
    ended = Project(tmp_path, {"test_a.py": file}).pytest("--assay-update-baselines=all")
    assert ended.exit_code == 2, ended.output
    assert "got '../../../../pwn' for the name of a suite, wanted letters" in ended.output
    assert not ended.changed
