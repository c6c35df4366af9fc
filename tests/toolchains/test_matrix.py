"""A matrix: a program is compiled once on each release, and all its claims judge that."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

from assay.model.blame import WrongValue
from assay.model.evidence import Failure, FailureKind
from assay.model.matrix import Matrix, MatrixProgress
from assay.model.target import Unavailable
from assay.model.verdict import ExitCode, Outcome
from assay.plugin.collection import Collected, collect
from assay.toolchains.environments import CannotMake, Environment
from assay.toolchains.matrix import MatrixQuestion, Source, measure
from assay.toolchains.pairs import RerunError
from assay.toolchains.releases import Release
from tests.toolchains.index import OTHER, skip_without_index
from tests.toolchains.small_suite import (
    AS_LISTED,
    RELEASES,
    STACK_BYTES,
    FakeReleases,
    memory,
    write_suite,
)

TEMP, COMPILES = "temp-bytes-at-most", "compiles"


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Collected, ...]:
    """The checks of the small suite, as pytest collects them."""
    file = write_suite(tmp_path_factory.mktemp("project"))
    return collect([file], targets=["cpu"], level="quick")


def question(collected: Sequence[Collected], releases: Sequence[str] = RELEASES) -> MatrixQuestion:
    return MatrixQuestion(
        trials=[each.trial for each in collected],
        sources={
            (each.trial.workload.suite, each.trial.workload.name): Source(
                module=each.module, search_path=each.search_path
            )
            for each in collected
        },
        releases=releases,
    )


def measured(
    collected: Sequence[Collected],
    monkeypatch: pytest.MonkeyPatch,
    gives: Mapping[tuple[str, str], Any],
) -> tuple[Matrix, FakeReleases]:
    fake = FakeReleases(gives=gives)
    fake.install(monkeypatch)
    return measure(question(collected), lambda _: None), fake


def verdicts(matrix: Matrix, variant: str, claim: str = TEMP) -> list[Outcome]:
    return [
        cell.record.verdict
        for cell in matrix.cells
        if (cell.record.variant, cell.record.claim) == (variant, claim)
    ]


def test_each_program_is_compiled_once_on_each_release_and_judged_by_all_claims(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, fake = measured(collected, monkeypatch, AS_LISTED)
    # Not the control of the claim on values, for which nothing runs.
    expected = [(each, release) for release in RELEASES for each in ("copied", "fast", "slow")]
    assert sorted(fake.calls) == sorted(expected)
    assert fake.most_at_once <= 2
    assert verdicts(matrix, "fast") == [Outcome.PASSED] * 3
    assert verdicts(matrix, "fast", COMPILES) == [Outcome.PASSED] * 3
    assert verdicts(matrix, "copied", TEMP + ".negative-control") == [Outcome.PASSED] * 3
    assert matrix.not_shown == {"runs": 1}


def test_an_executor_compiles_the_programs_and_no_environment_is_made_here(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeReleases(gives=AS_LISTED)
    fake.install(monkeypatch)
    monkeypatch.setattr("assay.toolchains.matrix.made_for", pytest.fail)
    with ThreadPoolExecutor(3) as executor:
        asked = replace(question(collected), executor=executor, at_once=3)
        matrix = measure(asked, lambda _: None)
    assert matrix.cells


def test_a_ledger_that_is_right_fails_nothing(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, _ = measured(collected, monkeypatch, AS_LISTED)
    assert verdicts(matrix, "slow") == [Outcome.KNOWN_DEFECT, Outcome.PASSED, Outcome.PASSED]
    assert (matrix.notes, matrix.exit_code) == ((), ExitCode.PASSED)
    known = next(c.record for c in matrix.cells if c.record.verdict is Outcome.KNOWN_DEFECT)
    assert known.advice == "use variant 'fast'; closed upstream, still present"
    assert (known.upstream, known.toolchain["jaxlib"]) == ("https://example.org/1", "0.4.0")


def test_a_defect_outside_its_range_fails_and_the_range_is_named(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    gives = {("slow", "0.6.0"): {"memory": memory(0)}}
    matrix, _ = measured(collected, monkeypatch, gives)
    assert verdicts(matrix, "slow") == [Outcome.KNOWN_DEFECT, Outcome.FAILED, Outcome.PASSED]
    (note,) = matrix.notes
    assert (note.holds, note.ranges) == (("0.4.0", "0.5.0"), ("<0.6.0",))
    failed = next(cell.record for cell in matrix.cells if cell.record.verdict is Outcome.FAILED)
    assert "write toolchain={'jaxlib': '<0.6.0'}" in failed.advice
    assert matrix.exit_code is ExitCode.FAILED


def test_a_defect_that_is_gone_in_its_range_is_fixed_upstream(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    gives = {("slow", release): {"memory": memory(0)} for release in RELEASES}
    matrix, _ = measured(collected, monkeypatch, gives)
    assert verdicts(matrix, "slow")[0] is Outcome.FIXED_UPSTREAM
    assert "none of these releases shows it" in matrix.notes[0].sentence
    assert matrix.exit_code is ExitCode.FAILED


def test_a_control_that_passes_makes_its_claim_inconclusive_on_that_release(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    gives = {**AS_LISTED, ("copied", "0.6.0"): {"memory": memory(0)}}
    matrix, _ = measured(collected, monkeypatch, gives)
    assert verdicts(matrix, "fast") == [Outcome.PASSED, Outcome.PASSED, Outcome.INCONCLUSIVE]
    assert verdicts(matrix, "slow")[2] is Outcome.INCONCLUSIVE
    assert verdicts(matrix, "copied", TEMP + ".negative-control")[2] is Outcome.FAILED
    assert verdicts(matrix, "fast", COMPILES) == [Outcome.PASSED] * 3
    assert matrix.exit_code is ExitCode.FAILED


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"unavailable": Unavailable(reason="no attribute 'new'")}, "no attribute 'new'"),
        ({"drops_placement": True}, "which this release drops"),
    ],
)
def test_what_a_release_cannot_do_is_unsupported_with_its_reason(
    collected: tuple[Collected, ...],
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    words: str,
) -> None:
    matrix, _ = measured(collected, monkeypatch, {**AS_LISTED, ("fast", "0.4.0"): given})
    assert verdicts(matrix, "fast") == [Outcome.UNSUPPORTED, Outcome.PASSED, Outcome.PASSED]
    unsupported = [c.record for c in matrix.cells if c.record.verdict is Outcome.UNSUPPORTED]
    assert all(words in record.reason for record in unsupported)
    assert matrix.exit_code is ExitCode.PASSED


@pytest.mark.parametrize(
    ("slow", "control"),
    [({}, Outcome.FAILED), ({"unavailable": Unavailable(reason="no")}, Outcome.UNSUPPORTED)],
)
def test_a_control_that_is_not_judged_counts_for_the_variants_that_are_selected(
    collected: tuple[Collected, ...],
    monkeypatch: pytest.MonkeyPatch,
    slow: dict[str, Any],
    control: Outcome,
) -> None:
    unavailable = {"unavailable": Unavailable(reason="no such function")}
    gives = {**AS_LISTED, ("copied", "0.4.0"): unavailable, ("slow", "0.4.0"): slow}
    FakeReleases(gives=gives).install(monkeypatch)
    selected = [each for each in collected if each.trial.variant.name == "slow"]
    matrix = measure(question(selected), lambda _: None)
    assert verdicts(matrix, "copied", TEMP + ".negative-control")[0] is control


def test_a_release_that_cannot_be_installed_is_unsupported(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeReleases(gives=AS_LISTED).install(monkeypatch)

    def refuse(release: Release, _python: str) -> Environment:
        if release.version == "0.4.0":
            raise CannotMake("no wheel for this Python")
        return Environment(folder=Path(sys.prefix), versions={})

    monkeypatch.setattr(Release, "environment", refuse)
    matrix = measure(question(collected), lambda _: None)
    assert verdicts(matrix, "fast") == [Outcome.UNSUPPORTED, Outcome.PASSED, Outcome.PASSED]


def test_a_program_that_does_not_compile_fails_there(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Failure(kind=FailureKind.COMPILER, message="INTERNAL: no luck")
    given = {**AS_LISTED, ("fast", "0.5.0"): {"failure": failure, "memory": None}}
    matrix, _ = measured(collected, monkeypatch, given)
    assert verdicts(matrix, "fast", COMPILES)[1] is Outcome.FAILED


def test_a_fault_of_the_probe_is_no_verdict(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RerunError, match="the probe failed"):
        measured(collected, monkeypatch, {("slow", "0.5.0"): RerunError("the probe failed: x")})


@pytest.mark.parametrize(
    ("releases", "words"),
    [
        (("0.4.0", "0.5.1", "0.6.0"), "got jax '0.5.1', wanted one of 0.4.0, 0.5.0, 0.6.0"),
        (("latest",), "wanted released versions such as"),
        ((), "got no release"),
    ],
)
def test_an_unknown_release_is_misuse(
    collected: tuple[Collected, ...],
    monkeypatch: pytest.MonkeyPatch,
    releases: tuple[str, ...],
    words: str,
) -> None:
    FakeReleases().install(monkeypatch)
    with pytest.raises(WrongValue, match=words):
        measure(question(collected, releases), lambda _: None)


def test_checks_of_values_alone_are_misuse(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeReleases().install(monkeypatch)
    running = [each for each in collected if each.trial.check.claim.name == "runs"]
    assert running
    with pytest.raises(WrongValue, match="a compiled program alone"):
        measure(question(running), lambda _: None)


def test_progress_counts_the_programs(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeReleases(gives=AS_LISTED).install(monkeypatch)
    seen: list[MatrixProgress] = []
    measure(question(collected), seen.append)
    counted = [each for each in seen if each.total]
    assert [each.done for each in counted] == list(range(1, 10))
    assert {each.total for each in counted} == {9}
    assert any("installing" in each.doing for each in seen if not each.total)


def test_real_programs_of_a_suite_in_one_file_are_compiled_and_judged(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = Environment(folder=Path(sys.prefix), versions={})
    monkeypatch.setattr("assay.toolchains.matrix.versions", lambda *_: ("0.0.1",))
    monkeypatch.setattr(Release, "environment", lambda *_: here)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    matrix = measure(question(collected, ("0.0.1",)), lambda _: None)
    assert verdicts(matrix, "fast") == verdicts(matrix, "fast", COMPILES) == [Outcome.PASSED]
    # The entry is for jaxlib before 0.5.
    assert verdicts(matrix, "slow") == [Outcome.FAILED]
    (slow,) = [c.record for c in matrix.cells if c.record.variant == "slow"]
    assert slow.measured is not None
    assert slow.measured >= STACK_BYTES
    assert matrix.notes[0].holds == ("0.0.1",)
    again = measure(question(collected, ("0.0.1",)), lambda _: None)
    assert all(cell.record.cached for cell in again.cells)


@pytest.mark.exhaustive
def test_two_releases_agree_on_a_program_that_copies_on_both(
    collected: tuple[Collected, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    skip_without_index()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    releases = sorted((OTHER, jax.__version__))
    matrix = measure(question(collected, releases), lambda _: None)
    assert matrix.releases == tuple(releases)
    assert verdicts(matrix, "fast") == [Outcome.PASSED] * 2
    assert verdicts(matrix, "copied", TEMP + ".negative-control") == [Outcome.PASSED] * 2
    assert [cell.record.toolchain["jax"] for cell in matrix.cells[:1]] == releases[:1]
    # The entry is for jaxlib before 0.5.
    assert verdicts(matrix, "slow") == [Outcome.FAILED] * 2
    assert matrix.notes[0].holds == tuple(releases)
