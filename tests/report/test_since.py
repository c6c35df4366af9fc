"""A reader sees when a claim held last, with which number, and what changed since then."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from assay.model.history import Sample, SeriesName, Trend
from assay.model.units import Unit
from assay.model.verdict import USUAL, Outcome, Record
from assay.report.causes import explain
from assay.report.since import Background

RecordOf = Callable[..., Record]

GOOD, BAD = Outcome.PASSED, Outcome.FAILED
START = datetime(2026, 11, 25, 8, 10, tzinfo=UTC)
OLD = {"jax": "0.12.0", "jaxlib": "0.12.0"}
NEW = {"jax": "0.12.0", "jaxlib": "0.12.1"}
LAST = "last good run: r1 (2026-11-25 09:10 UTC"


@pytest.fixture
def failed(record_of: RecordOf) -> Record:
    """What fails in the third run, on ``OLD``."""
    return record_of(run="r2", verdict=Outcome.FAILED, measured=0)


def known(
    failed: Record,
    *verdicts: Outcome,
    commits: tuple[str, ...] = ("", "", "", ""),
    toolchains: tuple[dict[str, str], ...] = (OLD,) * 4,
) -> Background:
    """The history of the claim, an hour from run to run."""
    samples = tuple(
        Sample(
            f"r{at}",
            START + timedelta(hours=at),
            verdict,
            7.0,
            7.0,
            "",
            toolchains[at],
            commits[at],
        )
        for at, verdict in enumerate(verdicts)
    )
    name = SeriesName.of(failed)
    trends = {name: Trend(name=name, unit=Unit.BYTES, samples=samples)}
    return Background([failed], USUAL.command, commits[2], trends)


def test_the_last_good_run_is_named_with_its_number(failed: Record) -> None:
    background = known(failed, GOOD, GOOD, BAD)
    told = f"this run; {LAST}); same toolchain, so the program changed"
    assert background.since(failed) == told
    assert background.was(failed) == ", was 7 B"


def test_a_run_that_is_in_no_database_has_a_last_good_run(failed: Record) -> None:
    assert known(failed, GOOD, GOOD).since(failed).startswith(f"this run; {LAST})")


def test_the_first_run_that_failed_is_named_and_later_ones_ignored(failed: Record) -> None:
    told = known(failed, GOOD, BAD, BAD, GOOD).since(failed)
    assert told.startswith("run r1; last good run: r0 (")


def test_without_a_good_run_the_history_says_so(failed: Record) -> None:
    assert known(failed, BAD, BAD, BAD).since(failed) == (
        "it failed in all 2 earlier runs, from r0 on"
    )
    assert known(failed, Outcome.INCONCLUSIVE, BAD, BAD, BAD).since(failed) == (
        "it passed in none of 2 earlier runs, from r0 on"
    )
    elsewhere = failed.__class__(**{**_fields(failed), "variant": "new"})
    assert known(failed, GOOD).since(elsewhere) == "the history holds no earlier run of it"
    assert Background().since(failed) == "no earlier run is known; add --assay-history=default"


def _fields(record: Record) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__slots__}


@pytest.mark.parametrize(
    ("commits", "new", "words"),
    [
        (("", ""), OLD, "same toolchain, so the program changed"),
        (("a", "b"), OLD, "same toolchain, so the program changed"),
        (("a", "a-dirty"), OLD, "same toolchain, so the program changed"),
        (("a", "a"), OLD, "same commit and toolchain: the measurement varies"),
        (("a", "a"), NEW, "the toolchain changed: jaxlib 0.12.0 → 0.12.1; same commit"),
        (
            ("a", "b"),
            NEW,
            "the toolchain changed: jaxlib 0.12.0 → 0.12.1; the program changed too",
        ),
        (
            ("a", ""),
            NEW,
            "the toolchain changed: jaxlib 0.12.0 → 0.12.1; whether the program did is not known",
        ),
        (("a", "b"), {}, "its toolchain is unknown"),
    ],
)
def test_program_and_toolchain_are_told_apart(
    record_of: RecordOf, commits: tuple[str, str], new: dict[str, str], words: str
) -> None:
    record = record_of(run="r2", verdict=Outcome.FAILED, toolchain=new)
    background = known(record, GOOD, GOOD, commits=("", *commits, ""))
    assert background.since(record).endswith(f"; {words}")


def test_a_time_may_change_with_the_machine(record_of: RecordOf) -> None:
    record = record_of(run="r2", verdict=Outcome.FAILED, claim="time-growth")
    assert known(record, GOOD, GOOD).since(record).endswith("so the program or the machine changed")


@pytest.mark.parametrize(
    ("commits", "command"),
    [
        (("a" * 40, "b" * 40), f"git diff {'a' * 12} {'b' * 12}"),
        (("a" * 40, "a" * 40 + "-dirty"), f"git diff {'a' * 12}"),
        (("a", "a"), ""),
        (("a", ""), ""),
    ],
)
def test_a_command_shows_what_changed_in_the_sources(
    failed: Record, commits: tuple[str, str], command: str
) -> None:
    background = known(failed, GOOD, GOOD, BAD, commits=("", *commits, ""))
    assert background.diff(failed) == command


@pytest.mark.parametrize(
    ("commits", "toolchain", "claim", "blamed"),
    [
        (("a", "b"), OLD, "host-bytes", True),
        (("a", "a"), OLD, "host-bytes", False),
        (("a", "b"), NEW, "host-bytes", False),
        (("a", "b"), {}, "host-bytes", False),
        (("a", "b"), OLD, "time-growth", False),
    ],
)
def test_the_program_is_blamed_if_nothing_else_changed(
    record_of: RecordOf,
    commits: tuple[str, str],
    toolchain: dict[str, str],
    claim: str,
    *,
    blamed: bool,
) -> None:
    record = record_of(
        run="r2", verdict=Outcome.FAILED, toolchain=toolchain, claim=claim, advice=""
    )
    background = known(record, GOOD, GOOD, commits=("", *commits, ""))
    assert background.blames_program(record) is blamed
    (advice,) = (
        each.text for each in explain([record], background).details if each.label == "next"
    )
    assert advice.startswith("the sources changed") is blamed
