"""A claim whose negative control proves nothing is never kept, whatever part of a run is chosen."""

from __future__ import annotations

import pytest

from tests.plugin.project import PREAMBLE, Ended, Project

SUITE = (
    PREAMBLE
    + """
def aborts(devices):
    os.abort()

def judged(name, *controls):
    return workload(arm("arm", double), *controls, name=name)

twin = lambda name, program, kind=FailureKind.TRACE: arm(
    name, program, Role.TWIN, fails_with=kind
)
SOUND = judged("sound", twin("control", mismatched))
BLIND = judged("blind", twin("control", double))
CRASHED = judged("crashed", twin("control", aborts))
OTHER = judged("other", twin("control", mismatched, FailureKind.COMPILER))
TWO = judged("two", twin("control", mismatched), twin("second", double))
test_one = Check(claim=claims.Compiles(), workloads=(SOUND, BLIND, CRASHED, OTHER), twin="control")
test_two = Check(claim=claims.Compiles(), workloads=(TWO,), twin=("control", "second"))
"""
)
CONTROL = "compiles.must-fail"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("controls"), {"test_small.py": SUITE})


@pytest.fixture(scope="module")
def whole(project: Project) -> Ended:
    return project.pytest()


def _verdicts(ended: Ended) -> dict[str, str]:
    return {f"{one.workload}/{one.arm}": one.verdict.value for one in ended.records}


def test_only_the_claim_whose_controls_all_failed_is_kept(whole: Ended) -> None:
    assert whole.exit_code == 1
    assert _verdicts(whole) == {
        "sound/arm": "kept",
        "sound/control": "kept",
        "blind/arm": "not-measured",
        "blind/control": "broken",
        "crashed/arm": "not-measured",
        "crashed/control": "broken",
        "other/arm": "not-measured",
        "other/control": "broken",
        "two/arm": "not-measured",
        "two/control": "kept",
        "two/second": "broken",
    }
    reasons = {one.workload: one.reason for one in whole.records if one.arm == "arm"}
    assert "the negative control 'second' did not fail: " in reasons["two"]


@pytest.mark.parametrize(
    "selection",
    [
        ("-k", "(blind or sound) and not must-fail"),
        ("test_small.py::test_one[blind/arm@cpu:8]", "test_small.py::test_one[sound/arm@cpu:8]"),
        ("-n", "1", "-k", "(blind or sound) and not must-fail"),
    ],
)
def test_a_control_is_judged_where_its_own_item_is_left_out(
    project: Project, selection: tuple[str, ...]
) -> None:
    ended = project.pytest(*selection)
    assert ended.exit_code == 1, ended.output
    assert (ended.outcomes["failed"], ended.outcomes["passed"]) == (1, 1)
    assert _verdicts(ended) == {
        "sound/arm": "kept",
        "sound/control": "kept",
        "blind/arm": "not-measured",
        "blind/control": "broken",
    }


def test_a_run_of_controls_alone_is_no_pass(project: Project) -> None:
    ended = project.pytest("-k", "sound and must-fail")
    assert (ended.exit_code, ended.outcomes["passed"]) == (1, 1), ended.output
    assert "The run judged negative controls only, which is no pass (exit 1)" in ended.output
