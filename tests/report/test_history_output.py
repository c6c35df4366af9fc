"""A reader of a history sees when a number or a verdict changed, by how much, and with what."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from assay.model.history import Added, Sample, SeriesName, Trend
from assay.model.units import Unit
from assay.model.verdict import Ending, ExitCode, Outcome
from assay.report.history_output import (
    added_line,
    bars,
    history_json,
    history_section,
    print_history,
)
from assay.report.run_page import run_page
from assay.stats.trends import with_changes

GIB = 2**30
START = datetime(2026, 11, 1, 2, 15, tzinfo=UTC)


def trend(
    *numbers: float | None,
    variant: str = "reshape",
    fails_above: float = 2 * GIB,
    unit: Unit = Unit.BYTES,
) -> Trend:
    """A run a day; from the third on another jaxlib."""
    samples = []
    for day, number in enumerate(numbers):
        fails = number is not None and number > fails_above
        samples.append(
            Sample(
                run=f"run-{day}",
                at=START + timedelta(days=day),
                verdict=Outcome.FAILED if fails else Outcome.PASSED,
                measured=number,
                limit=2 * GIB,
                reason="the limit is 2 GiB <b>" if fails else "",
                toolchain={"jax": "0.12.0", "jaxlib": "0.12.0" if day < 2 else "0.12.1"},
            )
        )
    name = SeriesName("dus_remat", "stack", variant, "temp-bytes", "gpu-h100:8")
    return with_changes([Trend(name=name, unit=unit, samples=tuple(samples))])[0]


def printed(*trends: Trend, verbose: bool = False, width: int = 100) -> str:
    text = StringIO()
    print_history(Console(file=text, width=width), trends, verbose=verbose)
    return text.getvalue()


def test_the_terminal_names_the_change_its_size_and_its_toolchain() -> None:
    lines = printed(trend(GIB, GIB, 3 * GIB, 3 * GIB), width=120).splitlines()
    change = "1.0 GiB → 3.0 GiB (+200 %), passed → FAILED; jaxlib 0.12.0 → 0.12.1; run run-2"
    assert lines == [
        "dus_remat/stack/reshape/temp-bytes on gpu-h100:8",
        "  ▁▁██  3.0 GiB, FAILED; 4 runs from 2026-11-01 to 2026-11-04",
        f"  2026-11-03  {change}",
        "              the limit is 2 GiB <b>",
        "1 series of 4 runs: 1 with changes",
    ]


def test_no_line_is_wider_than_the_terminal() -> None:
    text = printed(trend(*[GIB] * 40, *[3 * GIB] * 40), width=60)
    assert max(map(len, text.splitlines())) <= 60


def test_a_series_without_numbers_shows_its_verdicts() -> None:
    text = printed(trend(None, None))
    assert "\n  passed; 2 runs from 2026-11-01 to 2026-11-02\n" in text


def test_a_change_without_another_toolchain_says_so() -> None:
    assert "+100 %); same toolchain; run run-4" in printed(trend(1, 1, 1, 1, 2))


def test_an_unknown_toolchain_is_not_called_a_change() -> None:
    found = trend(1, 1, 2)
    unknown = found.samples[1]._replace(toolchain={})
    samples = (found.samples[0], unknown, found.samples[2])
    text = printed(*with_changes([Trend(name=found.name, unit=found.unit, samples=samples)]))
    assert "toolchain unknown; run run-2" in text


def test_many_series_without_changes_are_counted_and_shown_on_request() -> None:
    same = [trend(1, 1, variant=f"same-{number}") for number in range(21)]
    text = printed(trend(1, 2), *same)
    assert "same-1" not in text
    assert "22 series of 2 runs: 1 with changes; -v shows the 21 without changes" in text
    assert "same-1" in printed(trend(1, 2), *same, verbose=True)
    assert "same-1" in printed(trend(1, 2), *same[:20])


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([], ""),
        ([5.0], "▁"),
        ([1, 8], "▁█"),
        ([3, 3, 3], "▁▁▁"),
        ([*[1.0] * 200, *[2.0] * 200], "▁" * 20 + "█" * 20),
    ],
)
def test_bars_rise_with_the_numbers(numbers: list[float], shown: str) -> None:
    assert bars(numbers) == shown


def test_json_holds_every_sample_and_each_toolchain_once() -> None:
    found = json.loads(history_json([trend(GIB, GIB, 3 * GIB)]))
    (series,) = found["series"]
    assert found["toolchains"] == [
        {"jax": "0.12.0", "jaxlib": "0.12.0"},
        {"jax": "0.12.0", "jaxlib": "0.12.1"},
    ]
    names = [series[name] for name in ("suite", "target", "unit")]
    assert names == ["dus_remat", "gpu-h100:8", "bytes"]
    assert [each["toolchain"] for each in series["samples"]] == [0, 0, 1]
    assert series["samples"][2] == {
        "run": "run-2",
        "at": "2026-11-03T02:15:00Z",
        "verdict": "failed",
        "measured": 3 * GIB,
        "limit": 2 * GIB,
        "reason": "the limit is 2 GiB <b>",
        "toolchain": 1,
        "commit": "",
    }
    assert series["changes"] == [
        {"before": 1, "after": 2, "levels": [GIB, 3 * GIB], "verdicts": ["passed", "failed"]}
    ]


def test_the_page_shows_series_that_changed_the_latest_first() -> None:
    late, early = trend(1, 1, 1, 2, variant="late"), trend(1, 2, 2, 2, variant="early")
    section = history_section([early, trend(1, 1, variant="same"), late])
    assert section is not None
    assert [row.title.split("/")[2] for row in section.rows] == ["late", "early"]
    assert section.counted == "3 series of 4 runs: 2 with changes"
    assert section.rows[0].marks == [240.0]
    assert section.rows[0].line == "0.0,30.0 80.0,30.0 160.0,30.0 240.0,2.0"


def test_a_page_of_many_changes_shows_the_last_of_them() -> None:
    section = history_section([trend(1, 2, variant=f"v{number}") for number in range(30)])
    assert section is not None
    assert len(section.rows) == 20
    assert section.counted.endswith("those that changed last, 10 are not")


def test_the_page_shows_all_series_that_fail_first() -> None:
    changed = [trend(1, 2, variant=f"v{number}") for number in range(30)]
    failed = [trend(1, 3 * GIB, variant=f"f{number}") for number in range(22)]
    section = history_section([*changed, *failed])
    assert section is not None
    assert [row.tone for row in section.rows] == ["bad"] * 22
    some = history_section([*changed, *failed[:3]])
    assert some is not None
    assert [row.tone for row in some.rows] == ["bad"] * 3 + ["good"] * 17


def test_runs_of_one_day_are_told_by_their_hours() -> None:
    first, last = trend(1, 1).samples
    same = replace(trend(1), samples=(first, last._replace(at=START + timedelta(hours=1))))
    assert "2 runs on 2026-11-01, 02:15 to 03:15 UTC" in printed(same)


def test_a_run_in_a_database_has_its_history_on_its_page_and_escaped() -> None:
    page = run_page([], history=[trend(GIB, GIB, 3 * GIB, variant="<i>")])
    assert '<h2 id="history">History</h2>' in page
    assert "dus_remat/stack/&lt;i&gt;/temp-bytes on gpu-h100:8" in page
    assert "<i>" not in page
    assert "1.0 GiB → 3.0 GiB (+200 %), passed → FAILED; jaxlib 0.12.0 → 0.12.1" in page
    assert 'id="history"' not in run_page([])


@pytest.mark.parametrize(
    ("added", "ending", "line"),
    [
        (Added("r", 3, 3, 0), Ending(), "r: 3 verdicts added"),
        (Added("r", 0, 3, 0), Ending(), "r: nothing to add, 3 verdicts were added before"),
        (
            Added("r", 1, 1, 40),
            Ending(cut_short=ExitCode.MISUSE),
            (
                "r: 1 verdict added; its last line was not finished and is left out (40 bytes); "
                "the run has not ended, or was cut short: add it again if it goes on"
            ),
        ),
    ],
)
def test_a_line_says_what_was_added(added: Added, ending: Ending, line: str) -> None:
    assert added_line(added, ending) == line
