"""Installed into an empty project, the plugin judges a workload file and a plain test."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.installed import REPOSITORY, install
from tests.plugin.project import PREAMBLE, Ended, Project

WORKLOAD = '''
"""A stranger's workload file, as the README would show it."""
import jax
import jax.numpy as jnp
from assay import Variant, Check, Program, Role, Workload, claims

def double(devices):
    x = jax.ShapeDtypeStruct((8,), jnp.float32)
    return Program(function=lambda x: x * 2, arguments=(x,))

BLOCK = Workload(
    suite="mine",
    name="block",
    variants=(Variant(name="double", role=Role.CONTROL, program=double),),
)
test_block_compiles = Check(claim=claims.Compiles(), workloads=(BLOCK,))
'''
PLAIN = """
import jax
import jax.numpy as jnp

X = jax.ShapeDtypeStruct((8,), jnp.float32)

def triple(x):
    return x * 3

def test_triple(assay):
    assert assay.compile(triple, X, target="cpu:8").memory.output_bytes == 32
"""
BROKEN_PLAIN = """
import jax
import jax.numpy as jnp
import pytest

X = jax.ShapeDtypeStruct((8,), jnp.float32)

@pytest.fixture
def compiled_before(assay):
    assay.compile(lambda x: x + jnp.zeros(7), X, target="cpu:8")

@pytest.mark.parametrize("folder", ["a/b"])
def test_mismatched(assay, folder):
    assay.compile(lambda x: x + jnp.zeros(9), X, target="cpu:8")

def test_baseline(assay):
    found = assay.compile(lambda x: x * 2, X, target="cpu:8")
    assert found.memory.temp_bytes <= assay.baseline("temp_bytes")

def test_mail(compiled_before): ...
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as pip installs it, in a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    install(REPOSITORY, folder)
    return folder


def test_the_wheel_holds_the_templates_of_pages(wheel: Path) -> None:
    folder = Path("assay/report/templates")
    templates = {path.name for path in (REPOSITORY / folder).iterdir()}
    assert {"page.html", "bisection.html"} <= templates
    assert {path.name for path in (wheel / folder).iterdir()} == templates


@pytest.fixture(scope="module")
def passing(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """An empty folder with both files and the installed package in front of all others."""
    files = {"checks/test_block.py": WORKLOAD, "test_plain.py": PLAIN}
    project = Project(tmp_path_factory.mktemp("stranger"), files)
    return project.pytest("-p", "no:cacheprovider", path=wheel)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A project in pytest's importlib mode whose programs do not trace."""
    workload = PREAMBLE + (
        'W = workload(variant("mismatched", mismatched))\n'
        "test_compiles = Check(claim=claims.Compiles(), workloads=(W,))\n"
    )
    files = {"checks/test_mismatched.py": workload, "test_plain.py": BROKEN_PLAIN}
    project = Project(tmp_path_factory.mktemp("failed"), files)
    return project.pytest("--import-mode=importlib")


def test_the_installed_package_has_every_file_and_both_entry_points(wheel: Path) -> None:
    source = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "assay").rglob("*")
        if path.suffix in {".py", ".toml", ".typed"}
    }
    installed = {path.relative_to(wheel).as_posix() for path in wheel.rglob("*")}
    assert any(name.endswith(".toml") for name in source)
    assert source <= installed
    (distribution,) = distributions(path=[str(wheel)])
    points = {(point.group, point.value) for point in distribution.entry_points}
    assert points == {("pytest11", "assay.plugin"), ("console_scripts", "assay.command:main")}


def test_the_installed_package_is_the_one_that_runs(wheel: Path) -> None:
    program = "import assay; print(assay.__file__)"
    found = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=True,
        cwd=wheel,
    )
    assert Path(found.stdout.strip()).is_relative_to(wheel)


def test_a_workload_file_and_a_plain_test_pass(passing: Ended) -> None:
    assert (passing.exit_code, passing.outcomes) == (0, {"passed": 2}), passing.output
    assert passing.record("double").verdict.value == "passed"
    assert passing.record("triple", "assertions").verdict.value == "passed"


def test_a_run_leaves_records_summary_junit_and_latest(passing: Ended) -> None:
    run = f"results/{passing.records[0].run}"
    names = {"records.jsonl", "report.html", "summary.md", "junit.xml"}
    assert {f"{run}/{name}" for name in names} | {"results/latest"} <= passing.changed


def test_failed_claims_fail_the_run(failing: Ended) -> None:
    assert failing.exit_code == 1
    assert failing.outcomes == {"failed": 3, "errors": 1}
    assert {record.verdict.value for record in failing.records} == {"failed"}


def test_a_module_that_pytest_loaded_from_a_file_reaches_the_observer(failing: Ended) -> None:
    assert "TypeError: add got incompatible shapes" in failing.record("mismatched").reason


def test_a_failed_claim_is_told_in_words_and_without_a_traceback(failing: Ended) -> None:
    words = (
        "failed: compiles of small/mismatched on cpu:8\n"
        "  it does not trace: checks/test_mismatched.py:14: TypeError: add got "
        "incompatible shapes for broadcasting: (8,), (9,).\n"
        "  measured: 1 (1)\n"
        "  limit: 0 (0)\n"
    )
    assert words in failing.output
    assert "Traceback" not in failing.output
    assert "isolate.py" not in failing.output


def test_a_plain_test_fails_at_its_own_line(failing: Ended) -> None:
    lines = BROKEN_PLAIN.splitlines()
    (line,) = [number for number, text in enumerate(lines, start=1) if "zeros(9)" in text]
    assert f"test_plain.py:{line}: CompileError" in failing.output
    assert f"does not trace: test_plain.py:{line}: TypeError" in failing.output
    assert "assay/api.py" not in failing.output


def test_a_program_of_a_fixture_is_recorded(failing: Ended) -> None:
    assert [record.workload for record in failing.records].count("test_mail") == 1


def test_no_name_of_a_workload_divides_a_baselines_entry(failing: Ended) -> None:
    (name,) = {
        one.workload for one in failing.records if one.workload.startswith("test_mismatched")
    }
    assert re.fullmatch(r"test_mismatched\[a-b\]-[0-9a-f]{8}", name)
