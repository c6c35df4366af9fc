"""Expected verdicts are data: what is no longer reached fails the run, and is told in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import PREAMBLE, Ended, Project

SUITE = (
    PREAMBLE
    + """
W = workload(variant("one", double), variant("two", double), suite="SUITE", scopes=(
    Scope(level=Level.QUICK, targets=("cpu:8", "cpu:4")), Scope(level=Level.FULL, targets=("tpu",)),
))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)
TORCH = SUITE.replace('suite="SUITE"', 'suite="torch", framework="torch_xla"')
NEEDS = """
from assay.frameworks.framework import Unsupported

def needs_a_library(size):
    raise Unsupported("no such library")

"""
FILE = "baselines/coverage.json"
FILES = {
    "mine/test_mine.py": SUITE.replace("SUITE", "mine"),
    "other/test_other.py": SUITE.replace("SUITE", "other"),
    "torch/test_torch.py": TORCH,
}
COLLECTED = ("--collect-only", "--assay-update-baselines=all", "-q")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Three suites of two verdicts each on cpu:8, expected; torch_xla is not installed."""
    pytest.importorskip("jax")
    project = Project(tmp_path_factory.mktemp("covered"), FILES)
    assert FILE in project.pytest(*COLLECTED).changed
    return project


@pytest.fixture(scope="module")
def whole(project: Project) -> Ended:
    return project.pytest()


@pytest.fixture(scope="module")
def shrunk(project: Project, whole: Ended) -> Project:
    """The same without one suite, and with one variant less in another."""
    assert whole.exit_code == 0, whole.output
    (project.root / "other/test_other.py").unlink()
    fewer = FILES["mine/test_mine.py"].replace('variant("two", double), ', "")
    project.write({"mine/test_mine.py": fewer})
    return project


def test_a_whole_run_tells_its_coverage(project: Project, whole: Ended) -> None:
    line = (
        "coverage: 4 of 4 expected verdicts judged on 1 target; 2 verdicts of 1 suite not run: "
        "torch_xla is not installed; "
    )
    assert line in " ".join(whole.output.split())
    assert line in (project.newest() / "summary.md").read_text().replace("\\", "")
    assert not project.pytest(*COLLECTED).changed, "writing twice gives the same bytes"


def test_a_target_without_expected_verdicts_is_named(project: Project, whole: Ended) -> None:
    ended = project.pytest("mine", target="cpu:4")
    assert ended.exit_code == whole.exit_code == 0, ended.output
    words = " ".join(ended.output.split())
    assert (
        "coverage: no expected verdicts are stored for cpu:4, only for cpu:8, so missing ones are "
        "not detected; 2 more than expected" in words
    )
    assert "no expected verdicts are stored" not in whole.output


def test_lost_verdicts_fail_the_run_that_held_them(shrunk: Project) -> None:
    ended = shrunk.pytest()
    words = " ".join(ended.output.split())
    assert ended.exit_code == 1, ended.output
    assert "coverage: 1 of 4 expected verdicts judged on 1 target" in words
    assert (
        "missing: other on cpu:8: 0 of 2 expected verdicts judged (compiles): bring the checks"
        in words
    )
    assert "missing: mine on cpu:8: 1 of 2 expected verdicts judged (compiles)" in words
    assert "Expected verdicts are missing (exit 1)" in words


@pytest.mark.parametrize("selection", [("-k", "one"), ("mine/test_mine.py",), ("torch", "mine")])
def test_a_part_is_held_to_what_it_selects(shrunk: Project, selection: tuple[str, ...]) -> None:
    ended = shrunk.pytest(*selection)
    assert ended.exit_code == int("torch" in selection), ended.output
    assert "missing: other" not in ended.output


def test_what_is_gone_on_purpose_is_stored(shrunk: Project) -> None:
    ended = shrunk.pytest("--assay-update-baselines=all")
    assert (ended.exit_code, FILE in ended.changed) == (0, True), ended.output
    assert '"other"' not in (shrunk.root / FILE).read_text()


def test_a_verdict_that_judges_nothing_any_more_is_missing(tmp_path: Path) -> None:
    suite = FILES["mine/test_mine.py"].replace("double), variant", "needs_a_library), variant")
    suite = suite.replace("W =", NEEDS + "W =")
    project = Project(tmp_path, {"mine/test_mine.py": suite})
    written = project.pytest("--assay-update-baselines=all")
    assert written.exit_code == 0, written.output
    same = project.pytest()
    assert same.exit_code == 0, same.output
    assert "coverage: 1 of 1 expected verdicts judged on 1 target" in same.output
    project.write({"mine/test_mine.py": suite.replace("double)", "needs_a_library)")})
    ended = project.pytest("-k", "one or two")
    assert ended.exit_code == 1, "nothing was judged"
    ended = project.pytest()
    words = " ".join(ended.output.split())
    assert ended.exit_code == 1, ended.output
    assert "mine on cpu:8: 0 of 1 expected verdicts judged (compiles): no such library" in words


def test_a_time_that_is_not_measured_is_counted_and_not_missing(tmp_path: Path) -> None:
    timed = FILES["mine/test_mine.py"].replace(
        'variant("two", double)', 'variant("two", double, reference="one")'
    )
    timed += 'test_time = Check(claim=claims.TimeRatio(), workloads=(W,), variants=("two",))\n'
    project = Project(tmp_path, {"mine/test_mine.py": timed})
    project.pytest(*COLLECTED)
    ended = project.pytest("--benchmark-disable")
    assert ended.exit_code == 0, ended.output
    words = " ".join(ended.output.split())
    assert "coverage: 2 of 3 expected verdicts judged on 1 target; 1 timing inconclusive" in words


def test_a_framework_that_is_required_must_be_installed(tmp_path: Path) -> None:
    project = Project(tmp_path, {"torch/test_torch.py": TORCH, "mine.py": ""})
    project.pytest(*COLLECTED)
    ended = project.pytest("--assay-require-framework=torch_xla")
    assert ended.exit_code == 1, ended.output
    words = " ".join(ended.output.split())
    assert (
        "missing: torch on cpu:8: 0 of 2 expected verdicts judged (compiles): torch_xla is not"
        in words
    )


def test_a_target_that_is_named_must_be_judged(tmp_path: Path) -> None:
    project = Project(tmp_path, {"mine/test_mine.py": FILES["mine/test_mine.py"]})
    ended = project.pytest(target="cpu:8,cpu:2,tpu")
    words = " ".join(ended.output.split())
    assert ended.exit_code == 1, ended.output
    assert "missing: nothing was judged on cpu:2: no workload's scopes try it at" in words
    assert "missing: nothing was judged on tpu: no workload's scopes try it at" in words
    assert (project.root / FILE).exists() is False


def test_a_named_target_whose_verdicts_judge_nothing_fails_the_run(tmp_path: Path) -> None:
    suite = (
        FILES["mine/test_mine.py"].replace('"cpu:4"', '"tpu-v5e:2x4"').replace("W =", NEEDS + "W =")
    )
    needs = suite.replace("(size)", "(devices)").replace(
        "    raise",
        '    if devices[0].platform == "cpu":\n        return double(devices)\n    raise',
    )
    files = {"mine/test_mine.py": needs.replace('"one", double', '"one", needs_a_library')}
    ended = Project(tmp_path, files).pytest("-k", "one", target="cpu:8,tpu-v5e:2x4")
    words = " ".join(ended.output.split())
    assert ended.exit_code == 1, ended.output
    assert "missing: nothing was judged on tpu-v5e:2x4: no such library" in words
    assert "nothing was judged on cpu:8" not in words


def test_one_gpu_is_tried_where_its_number_is_left_out(tmp_path: Path) -> None:
    suite = FILES["mine/test_mine.py"].replace('("cpu:8", "cpu:4")', '("gpu-h100:*",)')
    project = Project(tmp_path, {"mine/test_mine.py": suite})
    ended = project.pytest("--collect-only", "-q", target="gpu-h100")
    assert "test_compiles[small/one@gpu-h100]" in ended.output
