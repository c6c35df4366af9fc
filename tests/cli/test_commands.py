"""The commands end to end: targets, qualify and report, their files and exit codes."""

from __future__ import annotations

import msgspec
import pytest

from tests.plugin.project import PREAMBLE, Ended, Project

SUITE = (
    PREAMBLE
    + """
from assay import FailureKind, Fails, Upstream

KNOWN = KnownDefect(
    variants=("known",), targets=("*",), reason="shapes do not fit",
    expects={"compiles": Fails(kind=FailureKind.TRACE, message="incompatible shapes")},
    upstream=Upstream(link="https://example.org/1"), last_seen="2026-11-20",
)
W = workload(
    variant("double", double),
    variant("mismatched", mismatched),
    variant("known", mismatched),
    variant("negative_control", mismatched, Role.NEGATIVE_CONTROL, fails_with=FailureKind.TRACE),
    known_defects=(KNOWN,),
)
test_compiles = Check(claim=claims.Compiles(), workloads=(W,), negative_control="negative_control")
"""
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("qualified"), {"mysuites/test_small.py": SUITE})


@pytest.fixture(scope="module")
def qualified(project: Project) -> Ended:
    return project.assay("qualify", "--target", "cpu:8", "--suites", "mysuites")


@pytest.fixture(scope="module")
def run(qualified: Ended) -> str:
    return f"results/{qualified.records[0].run}"


def _decisions(project: Project, run: str) -> dict[str, tuple[str, bool]]:
    page = msgspec.json.decode((project.root / run / "qualification.json").read_bytes())
    return {one["variant"]: (one["decision"], one["known"]) for one in page["features"]}


def test_targets_lists_the_live_cpu_and_ends_with_0(project: Project) -> None:
    ended = project.assay("targets")
    assert ended.exit_code == 0
    (line,) = [line for line in ended.output.splitlines() if line.startswith("cpu:8 ")]
    assert line.split()[1] == "live"
    assert not ended.changed


def test_qualify_decides_every_feature(project: Project, qualified: Ended, run: str) -> None:
    assert qualified.exit_code == 1, qualified.output
    assert _decisions(project, run) == {
        "double": ("pass", False),
        "mismatched": ("fail", False),
        "known": ("fail", True),
    }


def test_qualify_writes_its_pages_beside_the_records(qualified: Ended, run: str) -> None:
    names = ("qualification.json", "qualification.md", "records.jsonl")
    assert {f"{run}/{name}" for name in names} <= qualified.changed


def test_qualify_from_a_run_decides_alike_and_runs_nothing(
    project: Project, qualified: Ended, run: str
) -> None:
    (project.root / run / "qualification.json").unlink()
    ended = project.assay("qualify", "--target", "cpu:8", "--from", run)
    assert (ended.exit_code, ended.records) == (qualified.exit_code, ())
    assert set(_decisions(project, run)) == {"double", "mismatched", "known"}


def test_report_prints_a_run_from_its_records(project: Project, run: str) -> None:
    ended = project.assay("report", run)
    assert ended.exit_code == 0
    assert "The run fails (exit 1): 1 failed, 1 known defect, 2 passed." in ended.output
    assert "mine / small" not in ended.output
    assert "mine / small" in project.assay("report", "-v", run).output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("qualify", "--target", "cpi:8"), "write cpu:8"),
        (("qualify", "--target", "cpu:8", "--suites", "absent"), "got no folder absent"),
        (("qualify", "--target", "cpu:8", "--from", "results/absent"), "got no readable"),
        (
            ("qualify", "--target", "cpu:8", "--suites", "mysuites", "--level", "slow"),
            "quick, full",
        ),
        (("qualify",), "--target"),
        (("report", "results/absent"), "got no readable results/absent"),
    ],
)
def test_misuse_ends_with_2_and_a_line(
    project: Project, arguments: tuple[str, ...], words: str
) -> None:
    ended = project.assay(*arguments)
    assert ended.exit_code == 2, ended.output
    assert words in ended.output
    assert "Traceback" not in ended.output


def test_qualify_of_a_target_without_records_is_misuse(project: Project, run: str) -> None:
    ended = project.assay("qualify", "--target", "cpu:4", "--from", run)
    assert ended.exit_code == 2
    assert "without a record of cpu:4" in " ".join(ended.output.split())
