"""A bisection that is killed halfway measures only what is missing when it runs again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

VERSIONS = tuple(f"0.{minor}.0" for minor in range(1, 10))
BLOCKED = "0.7.0"  # the fourth of 0.1.0, 0.9.0, 0.5.0, 0.7.0, 0.6.0

PROGRAM = """
import os, sys, time
from pathlib import Path

HERE = Path(__file__).parent
VERSION = Path(sys.prefix).name

def number():
    with (HERE / "measured").open("a") as log:
        log.write(VERSION + "\\n")
    parent = os.getppid()
    while VERSION == "BLOCKED" and not (HERE / "go").exists() and os.getppid() == parent:
        time.sleep(0.05)
    return 1.0 if VERSION < "0.6.0" else 5.0
"""

# Each release is this environment under the release's name.
COMMAND = """
import sys
from pathlib import Path
from assay.cli import main
from assay.toolchains import bisect, releases
from assay.toolchains.environments import Environment

def named(release, python=""):
    return Environment(folder=Path.cwd() / release.version, versions={})

bisect.versions = lambda *_: VERSIONS
releases.Release.environment = named
main()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM.replace("BLOCKED", BLOCKED))
    (tmp_path / "command.py").write_text(COMMAND.replace("VERSIONS", repr(VERSIONS)))
    for version in VERSIONS:
        (tmp_path / version).symlink_to(sys.prefix)
    return tmp_path


def start(project: Path) -> subprocess.Popen[str]:
    asked = ["program.py:number", "--metric", "returned", "--good", "0.1.0", "--bad", "0.9.0"]
    return subprocess.Popen(
        [sys.executable, "command.py", "bisect", *asked],
        cwd=project,
        env={**os.environ, "XDG_CACHE_HOME": str(project / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def measured(project: Path) -> list[str]:
    log = project / "measured"
    return log.read_text().split() if log.exists() else []


def test_a_killed_search_continues_where_it_was(project: Path) -> None:
    killed = start(project)
    end = time.monotonic() + 120
    while BLOCKED not in measured(project):
        assert killed.poll() is None, killed.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
    killed.kill()
    _, said = killed.communicate()
    assert said.splitlines() == [
        "0.1.0: 1",
        "0.9.0: 5 (changed after 0.1.0, at 0.9.0 at the latest; about 3 more to measure)",
        "0.5.0: 1 (changed after 0.5.0, at 0.9.0 at the latest; about 2 more to measure)",
    ]
    (project / "go").touch()
    again = start(project)
    found, said = again.communicate(timeout=120)
    assert again.returncode == 1, said
    assert "jax 0.6.0 changed it, 1 → 5" in found
    counts = Counter(measured(project))
    assert counts == {"0.1.0": 1, "0.9.0": 1, "0.5.0": 1, BLOCKED: 2, "0.6.0": 1}
