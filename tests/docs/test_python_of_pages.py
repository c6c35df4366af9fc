"""Every Python block of a page runs: here, in a walk, or in the test that is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import pytest

from tests.docs.pages import ROOT, blocks, pages
from tests.docs.test_walks import WALKS
from tests.plugin.project import PREAMBLE, Project

HERE = (
    *("docs/bisect.md", "docs/multi-process.md", "docs/timing.md", "docs/timing-reruns.md"),
    *("memsafe/docs/adding-a-rule.md", "memsafe/docs/rewrites.md"),
)
ELSEWHERE = {
    "CONTRIBUTING.md": "tests/test_recipes.py",
    "README.md": "tests/plugin/test_readme.py",
    "memsafe/README.md": "tests/memsafe/test_memsafe_readme.py",
    "docs/regressions/README.md": "tests/test_regression_gallery.py",
    # PyTorch/XLA takes 7.4 GB; this file of the suite holds the same program and measures its rate.
    "suites/fsdp_accumulation/UPSTREAM_FLAKY_RECOMPILE.md": (
        "suites/fsdp_accumulation/flaky_recompile.py"
    ),
}
"""Pages whose Python another file runs."""


def code(page: str) -> str:
    """The Python blocks of a page, one after the other."""
    return "\n".join(each.text for each in blocks(ROOT / page) if each.language == "python")


def test_no_python_of_a_page_is_left_out() -> None:
    with_python = {
        path.relative_to(ROOT).as_posix()
        for path in pages()
        if any(each.language == "python" for each in blocks(path))
    }
    assert with_python == {*HERE, *ELSEWHERE, *WALKS}
    assert all((ROOT / file).is_file() for file in ELSEWHERE.values())


@pytest.mark.parametrize("page", sorted({*HERE, *ELSEWHERE, *WALKS}))
def test_python_of_a_page_is_python(page: str) -> None:
    found = [each for each in blocks(ROOT / page) if each.language == "python"]
    assert [compile(each.text, str(each), "exec") for each in found]


def test_the_loop_of_bisect_runs() -> None:
    names: dict[str, Any] = {}
    exec(code("docs/bisect.md"), names)
    assert int(jax.jit(names["episode"])(*names["example_args"]())) == names["STEPS"]


def test_the_gradient_of_a_while_loop_is_right() -> None:
    names: dict[str, Any] = {}
    exec(code("memsafe/docs/rewrites.md"), names)
    assert float(names["gradient"]) == pytest.approx(0.5 / 2**0.5, rel=1e-5)


def new_rule(text: str) -> None:
    """The page's test of a new rule."""
    names: dict[str, Any] = {}
    exec("import jax.numpy as jnp\nfrom tests.memsafe.pieces import *", names)
    exec(text, names)
    names["test_a_cumulative_sum_is_split_across_its_axis"]()


def test_the_test_of_a_new_rule_passes_and_would_fail() -> None:
    text = code("memsafe/docs/adding-a-rule.md")
    new_rule(text)
    with pytest.raises(AssertionError):
        new_rule(text.replace("expect=[", "expect=[((0,), (0,), True), "))


def test_the_sum_of_several_processes_passes(tmp_path: Path) -> None:
    ended = Project(tmp_path, {"test_sum.py": code("docs/multi-process.md")}).pytest()
    assert (ended.exit_code, ended.outcomes) == (0, {"passed": 3}), ended.output


def test_a_check_against_another_release_is_collected(tmp_path: Path) -> None:
    text = PREAMBLE + 'W = workload(variant("plain", double))\n' + code("docs/timing-reruns.md")
    project = Project(tmp_path, {"test_time.py": text})
    ended = project.pytest(
        "--collect-only", "-q", "--assay-against", "0.10.2", "--assay-level=full"
    )
    assert "test_no_slower_than_before[small/plain@cpu:8]" in ended.output


@pytest.mark.exhaustive
def test_the_claim_on_times_is_judged(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_norm.py": code("docs/timing.md")})
    ended = project.pytest(target="cpu")
    assert ended.exit_code == 0, ended.output
    assert {one.variant for one in ended.records} == {"ours", "twice"}
