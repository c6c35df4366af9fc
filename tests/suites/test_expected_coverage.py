"""The stored coverage is that of the suites: who drops a variant is told before a whole run."""

import os
from pathlib import Path

import pytest

from assay.model.verdict import MUST_FAIL
from assay.store.baselines import load_coverage
from tests import warm

ROOT = Path(__file__).parents[2]
STORED = ROOT / "baselines" / "coverage.json"
OF_TWO_MEMORIES = {
    "device-bytes-fall",
    "fits-device",
    "host-bytes",
    "no-worse-than-nothing",
    "to-device-bytes",
    "to-host-bytes",
}
"""A CPU has one memory, of no stated size."""
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


def test_no_claim_on_a_devices_memory_is_expected_to_be_judged_on_a_cpu() -> None:
    judged = [
        f"{slot.suite} {slot.claim}"
        for slots in load_coverage(STORED.parent).counts.values()
        for slot, count in slots.items()
        if slot.target.startswith("cpu")
        and slot.claim.removesuffix(MUST_FAIL) in OF_TWO_MEMORIES
        and count.judged
    ]
    assert judged == []
