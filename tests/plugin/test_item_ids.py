"""One item a workload × variant × target × claim: readable, selectable, and observed once."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from assay.plugin import program_of
from tests.plugin.project import PREAMBLE, Ended, Project

TWO_CLAIMS = (
    PREAMBLE
    + """
def noted(name, program, devices):
    with Path("builds").open("a") as file:
        file.write(f"{name}\\n")
    return program(devices)

from functools import partial
W = workload(
    variant("mismatched", partial(noted, "mismatched", mismatched)),
    variant("double", partial(noted, "double", double)),
    variant(
        "negative_control",
        partial(noted, "negative_control", mismatched),
        Role.NEGATIVE_CONTROL,
        fails_with=FailureKind.TRACE,
    ),
)
test_step_compiles = Check(
    claim=claims.Compiles(), workloads=(W,), negative_control="negative_control"
)
test_memory_is_no_worse_than_the_baseline = Check(
    claim=claims.BaselineTempBytes(), workloads=(W,), variants=("double",)
)
def test_mail(): assert "no program" == "no program"
"""
)
ITEMS = (
    "test_step_compiles[small/mismatched@cpu:8]",
    "test_step_compiles[small/double@cpu:8]",
    "test_step_compiles[small/negative_control@cpu:8/negative-control]",
    "test_memory_is_no_worse_than_the_baseline[small/double@cpu:8]",
)


def _selected(ended: Ended) -> list[str]:
    lines = ended.output.splitlines()
    return [line.partition("::")[2] for line in lines if line.startswith("test_small.py::")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("items"), {"test_small.py": TWO_CLAIMS})


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Path]:
    """The same project with two workers."""
    project = Project(tmp_path_factory.mktemp("workers"), {"test_small.py": TWO_CLAIMS})
    return project.pytest("-n", "2", "--assay-update-baselines=new"), project.root


@pytest.fixture(scope="module")
def stopped_and_resumed(project: Project) -> tuple[Ended, Ended]:
    """A run that stops at the first failure, and one of the last failures."""
    return project.pytest("-x"), project.pytest("--lf")


def test_a_worker_judges_all_claims_of_one_program_before_the_next(tmp_path: Path) -> None:
    ended = Project(tmp_path, {"test_small.py": TWO_CLAIMS}).pytest("-n", "1")
    variants = [record.variant for record in ended.records]
    assert len(variants) > len(set(variants)) == len(list(groupby(variants)))


def test_ids_name_test_workload_variant_target_and_control(project: Project) -> None:
    assert _selected(project.pytest("--collect-only", "-q")) == [*ITEMS, "test_mail"]


@pytest.mark.parametrize(
    ("expression", "items"),
    [
        ("temp-bytes", ITEMS[3:]),
        ("mine and negative-control", ITEMS[2:3]),
    ],
)
def test_items_are_selected_by_claim_suite_and_control(
    project: Project, expression: str, items: tuple[str, ...]
) -> None:
    found = project.pytest("--collect-only", "-q", "-k", expression)
    assert _selected(found) == list(items)
    assert not (project.root / "builds").exists(), "collecting builds nothing"


def test_first_failure_ends_the_run(stopped_and_resumed: tuple[Ended, Ended]) -> None:
    stopped, _ = stopped_and_resumed
    assert stopped.exit_code == 1
    assert [record.variant for record in stopped.records] == ["mismatched"]
    assert stopped.outcomes == {"failed": 1}, stopped.output


def test_last_failures_alone_are_judged_again(stopped_and_resumed: tuple[Ended, Ended]) -> None:
    stopped, resumed = stopped_and_resumed
    assert resumed.exit_code == 1
    outputs = stopped.output + resumed.output
    # The control has no item of its own here, and is judged all the same.
    assert [record.variant for record in resumed.records] == ["mismatched", "negative_control"], (
        outputs
    )


def test_workers_observe_each_program_once(workers: tuple[Ended, Path]) -> None:
    _, root = workers
    assert sorted((root / "builds").read_text().split()) == [
        "double",
        "mismatched",
        "negative_control",
    ]


def test_workers_send_every_record(workers: tuple[Ended, Path]) -> None:
    ended, _ = workers
    assert ended.exit_code == 1
    assert sorted((one.variant, one.claim, one.verdict.value) for one in ended.records) == [
        ("double", "compiles", "passed"),
        ("double", "temp-bytes", "passed"),
        ("mismatched", "compiles", "failed"),
        ("negative_control", "compiles.negative-control", "passed"),
    ]


def test_workers_numbers_are_stored_by_one_process(workers: tuple[Ended, Path]) -> None:
    ended, _ = workers
    assert "baselines/cpu-8/mine.json" in ended.changed


def test_a_project_without_checks_gets_no_results(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_plain.py": "def test_plain(): ...\n"})
    ended = project.pytest()
    assert (ended.exit_code, ended.outcomes) == (0, {"passed": 1})
    assert not ended.changed
    assert "results" not in ended.output
    assert not (tmp_path / "results").exists()


PLACES = (
    PREAMBLE
    + """
W = workload(variant("double", double))
class TestGroup:
    test_typed: Check = Check(claim=claims.Compiles(), workloads=(W,))

@pytest.mark.parametrize("number", [1])
def test_fixture(assay, number):
    assert assay.compile(lambda x: x * number, X, target="cpu:8").memory.output_bytes == 32
"""
).replace("import os,", "import pytest, os,")


def test_a_record_names_the_file_and_line_of_its_test(tmp_path: Path) -> None:
    ended = Project(tmp_path, {"deep/test_small.py": PLACES}).pytest()
    typed, decorated = (
        1 + PLACES.partition(start)[0].count("\n") for start in ("    test_typed", "@pytest.mark")
    )
    assert {record.claim: record.test for record in ended.records} == {
        "compiles": f"deep/test_small.py:{typed}",
        "assertions": f"deep/test_small.py:{decorated}",
    }


@pytest.mark.parametrize(
    ("nodeid", "program"),
    [
        ("test_a.py::test_b[block/double@cpu:8]", "block/double@cpu:8"),
        ("test_a.py::test_b[block/double@gpu-h100/negative-control]", "block/double@gpu-h100"),
        ("test_a.py::test_pins[actions/checkout@v4]", ""),
        ("test_a.py::test_b", ""),
    ],
)
def test_a_parameter_that_looks_like_a_program_is_none(nodeid: str, program: str) -> None:
    assert program_of(nodeid) == program
