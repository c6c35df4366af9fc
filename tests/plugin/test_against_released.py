"""``--assay-against`` a released version of jax: two real environments, where an index answers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from assay.model.verdict import Outcome
from assay.store import evidence
from tests.plugin.project import PREAMBLE, Project
from tests.toolchains.index import OTHER, skip_without_index

pytestmark = pytest.mark.exhaustive

TIMED = (
    PREAMBLE
    + f"""
import numpy as np

def rests(devices):
    seconds = 0.02 if jax.__version__ == "{OTHER}" else 0.06
    def rest(x):
        time.sleep(seconds)
        return x
    call = lambda x: jax.pure_callback(rest, X, x)
    return Program(function=call, arguments=(X,), values=lambda: (np.ones(8, np.float32),))

W = workload(variant("worse", rests))
test_time = Check(claim=claims.TimeAgainst(), workloads=(W,))
"""
)


@pytest.fixture
def uv_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's own, though a project has a home of its own, and an environment of 0.5 GB."""
    command = [skip_without_index(), "cache", "dir"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    monkeypatch.setenv("UV_CACHE_DIR", found.stdout.strip())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    yield
    shutil.rmtree(tmp_path / ".cache", ignore_errors=True)


@pytest.mark.usefixtures("uv_cache")
def test_a_program_that_is_slower_on_the_present_jax_fails(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_timed.py": TIMED})
    ended = project.pytest(
        f"--assay-against={OTHER}", "-k", "not negative-control", target="cpu", seconds=600
    )
    record = ended.record("worse", "time-against")
    assert record.verdict is Outcome.FAILED
    assert record.measured == pytest.approx(3, rel=0.3)
    assert f"a run on jax {jax.__version__}, jaxlib {jax.__version__} takes" in record.reason
    assert f"what it takes on jax {OTHER}, jaxlib {OTHER} (" in record.reason
    assert ended.exit_code == 1
    found, damaged = evidence.RERUNS.load_all(project.newest())
    assert not damaged
    # The negative control is judged although it was deselected.
    made, control = sorted(found, key=lambda each: each.negative_control)
    assert (made.negative_control, control.negative_control) == (False, True)
    assert made.old is not None
    assert made.old.versions["jax"] == OTHER
