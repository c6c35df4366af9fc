"""README's snippets do what README says, in an empty project of someone else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installed import REPOSITORY, install
from tests.plugin.project import Project

README = (REPOSITORY / "README.md").read_text()
TRAIN, TEST, CHECK, MEMSAFE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
TARGET = "tpu-v5e:2x4"
SOURCE = re.compile(r"train\.py:\d+")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    files = {"train.py": TRAIN, "test_train.py": TEST, "test_square.py": CHECK}
    return Project(tmp_path_factory.mktemp("readme"), files)


def test_readme_fits_its_bound() -> None:
    assert len(README.splitlines()) <= 200
    assert len([line for line in TEST.splitlines() if line.strip()]) <= 6


def test_the_checks_pass_once_their_number_is_stored(project: Project) -> None:
    missing = project.pytest(target=TARGET)
    assert missing.exit_code == 1
    assert "Baseline('temp_bytes')" in missing.output
    stored = project.pytest("--assay-update-baselines=new", target=TARGET)
    assert stored.exit_code == 0, stored.output
    ended = project.pytest(target=TARGET)
    assert (ended.exit_code, ended.outcomes) == (0, {"passed": 3}), ended.output
    verdicts = {(one.variant, one.claim): one.verdict.value for one in ended.records}
    assert verdicts == {
        ("small", "fits-device"): "passed",
        ("huge", "fits-device.negative-control"): "passed",
        ("train_step", "temp_bytes"): "passed",
        ("train_step", "assertions"): "passed",
    }


def test_a_larger_batch_fails_as_readme_shows(project: Project) -> None:
    # How much it needs depends on the compiler: 35.25 GiB with jax 0.10.2, 23.25 with 0.12.
    shown = re.compile(r"assert Fits\(needed [\d.]+ GiB, available 15\.75 GiB\)")
    assert shown.search(README)
    project.write({"train.py": TRAIN.replace("8192, 4096", "32768, 4096")})
    ended = project.pytest("-k", "train", target=TARGET)
    project.write({"train.py": TRAIN})
    assert ended.exit_code == 1
    assert shown.search(ended.output), ended.output


def test_inspect_prints_the_page(project: Project) -> None:
    ended = project.assay("inspect", "train.py:train_step", "--target", "gpu-h100")
    assert ended.exit_code == 0, ended.output
    shown = README.partition("$ assay inspect train.py")[2].partition("```")[0].splitlines()[1:]
    heads = [line.partition("  ")[0] for line in shown if line[:1].isupper()]
    assert heads == ["MEMORY", "TRANSFERS", "COPIES", "ALIVE AT THE PEAK"]
    assert all(f"\n{head}  " in ended.output for head in heads)
    assert set(SOURCE.findall("\n".join(shown))) <= set(SOURCE.findall(ended.output))


def test_memsafe_computes_within_the_budget(tmp_path: Path) -> None:
    smaller = MEMSAFE.replace("110_000", "20_000").replace('"1GB"', '"100MB"')
    assert smaller != MEMSAFE
    install(REPOSITORY / "memsafe", tmp_path / "installed")
    (tmp_path / "smooth.py").write_text(smaller)
    found = subprocess.run(
        [sys.executable, "smooth.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.fullmatch(r"\[[\d.]+ [\d.]+ [\d.]+\]\n", found.stdout)
