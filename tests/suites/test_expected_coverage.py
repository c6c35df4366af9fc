"""The stored coverage is that of the suites: who drops a variant is told before a whole run."""

import os
from pathlib import Path

import pytest

from tests import warm

ROOT = Path(__file__).parents[2]
STORED = ROOT / "baselines" / "coverage.json"
ACCEPT = "pytest suites --collect-only --assay-update-baselines=all --assay-level"


@pytest.mark.parametrize("level", ["quick", "full"])
def test_the_expected_coverage_is_that_of_the_suites(tmp_path: Path, level: str) -> None:
    copy = tmp_path / STORED.name
    copy.write_bytes(STORED.read_bytes())
    folders = [f"--assay-baselines-dir={tmp_path}", f"--assay-results-dir={tmp_path}/results"]
    _, output = warm.run(
        ["-m", *ACCEPT.split(), level, *folders, "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")},
        seconds=300,
    )
    assert "tests collected" in output
    assert copy.read_text() == STORED.read_text(), f"if it is meant, run: {ACCEPT} {level}"
