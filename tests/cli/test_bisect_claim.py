"""``assay bisect --metric claim``: the release at which a suite's claim began or ceased to hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from assay.cli import app
from assay.model.blame import WrongValue
from assay.model.evidence import Failure, FailureKind
from assay.toolchains.pairs import RerunError
from tests.toolchains.small_suite import AS_LISTED, RELEASES, FakeReleases, write_suite

CLAIM = "temp-bytes-at-most"


@pytest.fixture(autouse=True)
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeReleases:
    write_suite(tmp_path)
    monkeypatch.chdir(tmp_path)
    found = FakeReleases(gives=AS_LISTED)
    found.install(monkeypatch)
    return found


def bisect(variant: str, *options: str, claim: str = CLAIM) -> Result:
    ends = ("--good", RELEASES[-1], "--bad", RELEASES[0])
    chosen = ("--metric", "claim", "--claim", claim)
    command = ["bisect", variant, *ends, *chosen, *options]
    return CliRunner().invoke(app, command, env={"COLUMNS": "200"})


def test_the_release_that_mended_the_claim_is_named() -> None:
    found = bisect("test_small:loop/slow")
    assert found.exit_code == 1
    assert "jax 0.5.0 changed it, 1 → 0: claim temp-bytes-at-most of test_small:" in found.stdout


def test_a_claim_that_always_holds_is_no_change() -> None:
    found = bisect("test_small:loop/fast")
    assert found.exit_code == 0
    assert "is 0 at both ends" in found.stdout


def test_a_known_defect_is_a_failure_all_the_same() -> None:
    points = json.loads(bisect("test_small:loop/slow", "--scan", "--json").stdout)["points"]
    assert [each["number"] for each in points] == [1.0, 0.0, 0.0]


def test_a_claim_that_cannot_be_judged_has_no_number(fake: FakeReleases) -> None:
    fake.gives = {**AS_LISTED, ("slow", "0.6.0"): {"drops_placement": True}}
    found = bisect("test_small:loop/slow")
    assert found.exit_code == 2
    words = " ".join(found.stdout.split())
    assert "0.6.0 gives no number: unsupported: " in words


def test_a_fault_of_assay_is_no_failure_of_the_claim(fake: FakeReleases) -> None:
    fake.gives = {**AS_LISTED, ("slow", "0.6.0"): {"memory": None}}
    assert isinstance(bisect("test_small:loop/slow").exception, RerunError)


def test_a_program_that_does_not_compile_fails_the_claim(fake: FakeReleases) -> None:
    failure = Failure(kind=FailureKind.COMPILER, message="INTERNAL")
    fake.gives = {("fast", "0.4.0"): {"failure": failure, "memory": None}}
    assert "jax 0.5.0 changed it, 1 → 0" in bisect("test_small:loop/fast").stdout


@pytest.mark.parametrize(
    ("variant", "claim", "words"),
    [
        ("test_small:loop/slow", "speed", f"wanted one on loop/slow on cpu: {CLAIM}"),
        ("test_small:loop/slow", "runs", f"wanted one that a compiled program answers: {CLAIM}"),
        ("test_small:loop/nothing", CLAIM, "there is none"),
        (f"{Path(__file__).parents[1]}/toolchains/subjects.py:in_place", CLAIM, "a suite's MODULE"),
    ],
)
def test_a_claim_that_cannot_be_asked_for_says_which_can(
    variant: str, claim: str, words: str
) -> None:
    found = bisect(variant, claim=claim)
    assert isinstance(found.exception, WrongValue)
    assert words in str(found.exception)


def test_the_metric_needs_the_name_of_a_claim() -> None:
    found = bisect("test_small:loop/slow", claim="")
    assert isinstance(found.exception, WrongValue)
    assert "--claim NAME" in str(found.exception)
