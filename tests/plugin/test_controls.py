"""A claim whose negative control proves nothing never passes, whatever part of a run is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import PREAMBLE, Ended, Project

SUITE = (
    PREAMBLE
    + """
def aborts(devices):
    os.abort()

def judged(name, *controls):
    return workload(variant("variant", double), *controls, name=name)

negative_control = lambda name, program, kind=FailureKind.TRACE: variant(
    name, program, Role.NEGATIVE_CONTROL, fails_with=kind
)
SOUND = judged("sound", negative_control("control", mismatched))
BLIND = judged("blind", negative_control("control", double))
CRASHED = judged("crashed", negative_control("control", aborts))
OTHER = judged("other", negative_control("control", mismatched, FailureKind.COMPILER))
TWO = judged("two", negative_control("control", mismatched), negative_control("second", double))
test_one = Check(
    claim=claims.Compiles(), workloads=(SOUND, BLIND, CRASHED, OTHER), negative_control="control"
)
test_two = Check(claim=claims.Compiles(), workloads=(TWO,), negative_control=("control", "second"))
"""
)
CONTROL = "compiles.negative-control"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("controls"), {"test_small.py": SUITE})


@pytest.fixture(scope="module")
def whole(project: Project) -> Ended:
    return project.pytest()


ALONE = (
    PREAMBLE
    + """
W = workload(variant("double", double), variant("broken", mismatched, Role.NEGATIVE_CONTROL,
             fails_with=FailureKind.TRACE))
test_alone = Check(claim=claims.Compiles(), workloads=(W,), variants=("double",))
"""
)
HINT = (
    "1 check has no negative control: test_small.py::test_alone; a check without one cannot show "
    "that it detects the fault"
)


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_a_check_without_a_control_passes_with_a_hint(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    project = Project(tmp_path, {"test_small.py": ALONE})
    ended = project.pytest(*workers)
    assert (ended.exit_code, _verdicts(ended)) == (0, {"small/double": "passed"}), ended.output
    assert HINT in " ".join(ended.output.split())
    again = project.assay("report", str(project.newest()))
    assert HINT in " ".join(again.output.split())
    assert "1 check has no negative control" in (project.newest() / "summary.md").read_text()


def test_a_check_with_a_control_and_plain_asserts_get_no_hint(tmp_path: Path) -> None:
    controlled = ALONE.replace('("double",)', '("double",), negative_control="broken"')
    plain = (
        "def test_plain(assay):\n    assert assay.compile(lambda x: x * 2, X).memory.output_bytes\n"
    )
    ended = Project(tmp_path, {"test_small.py": controlled + plain}).pytest()
    assert ended.exit_code == 0, ended.output
    assert len(ended.records) == 3
    assert "no negative control" not in ended.output


def _verdicts(ended: Ended) -> dict[str, str]:
    return {f"{one.workload}/{one.variant}": one.verdict.value for one in ended.records}


def test_only_the_claim_whose_controls_all_failed_passes(whole: Ended) -> None:
    assert whole.exit_code == 1
    assert _verdicts(whole) == {
        "sound/variant": "passed",
        "sound/control": "passed",
        "blind/variant": "inconclusive",
        "blind/control": "failed",
        "crashed/variant": "inconclusive",
        "crashed/control": "failed",
        "other/variant": "inconclusive",
        "other/control": "failed",
        "two/variant": "inconclusive",
        "two/control": "passed",
        "two/second": "failed",
    }
    reasons = {one.workload: one.reason for one in whole.records if one.variant == "variant"}
    assert "the negative control 'second' did not fail: " in reasons["two"]


@pytest.mark.parametrize(
    "selection",
    [
        ("-k", "(blind or sound) and not negative-control"),
        (
            "test_small.py::test_one[blind/variant@cpu:8]",
            "test_small.py::test_one[sound/variant@cpu:8]",
        ),
        ("-n", "1", "-k", "(blind or sound) and not negative-control"),
    ],
)
def test_a_control_is_judged_where_its_own_item_is_left_out(
    project: Project, selection: tuple[str, ...]
) -> None:
    ended = project.pytest(*selection)
    assert ended.exit_code == 1, ended.output
    assert (ended.outcomes["failed"], ended.outcomes["passed"]) == (1, 1)
    assert _verdicts(ended) == {
        "sound/variant": "passed",
        "sound/control": "passed",
        "blind/variant": "inconclusive",
        "blind/control": "failed",
    }


def test_a_run_of_controls_alone_is_no_pass(project: Project) -> None:
    ended = project.pytest("-k", "sound and negative-control")
    assert (ended.exit_code, ended.outcomes["passed"]) == (1, 1), ended.output
    assert "The run judged negative controls only, which is not a pass (exit 1)" in ended.output
