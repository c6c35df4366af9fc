"""``python -m assay.toolchains`` refuses what it cannot use before it measures anything."""

import subprocess
import sys
from pathlib import Path

import pytest


def run(*options: str) -> subprocess.CompletedProcess[str]:
    program = "suites.dus_remat.workloads:stack-timed/plain"
    command = [sys.executable, "-m", "assay.toolchains", "--against", "0.10.2", *options, program]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("seconds", ["0", "-5", "nan", "inf", "soon"])
def test_seconds_that_cap_nothing_are_misuse(seconds: str) -> None:
    ended = run(f"--seconds={seconds}")
    assert ended.returncode == 2
    assert f"got {seconds}, wanted a positive number of seconds; try 300" in ended.stderr


@pytest.mark.parametrize("name", ["nowhere/times.json", ""])
def test_a_file_that_cannot_be_written_is_misuse(tmp_path: Path, name: str) -> None:
    ended = run(f"--json={tmp_path / name}")
    assert ended.returncode == 2
    assert "wanted a file in a folder that can be written to; name another" in ended.stderr
