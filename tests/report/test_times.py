"""What was timed stands under the verdicts, each program beside the one it took turns with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from assay.model.evidence import Toolchain
from assay.model.timing import DeviceTimes, Ending, Times, VariantTimes, format_seconds, pooled
from assay.model.verdict import Record
from assay.report.document import time_rows
from assay.report.summary import summary
from assay.report.terminal import print_run

RecordOf = Callable[..., Record]

TAKEN = Times(
    suite="dus_remat",
    workload="stack",
    target="cpu",
    question="at most 1",
    toolchain=Toolchain(versions={}),
    reference=VariantTimes(variant="plain", compile=0.5, first=0.02, samples=(0.01, 0.5, 0.012)),
    judged=VariantTimes(variant="squeeze", compile=1.5, first=0.03, samples=(0.02, 0.022, 0.5)),
    ended=Ending.ENOUGH,
)


def printed(records: list[Record], *times: Times, width: int = 100, verbose: bool = False) -> str:
    stream = StringIO()
    print_run(Console(file=stream, width=width), records, times, verbose=verbose)
    return stream.getvalue()


def test_compile_first_and_steady_times_are_told_apart() -> None:
    plain, squeeze = time_rows([TAKEN])
    assert plain == ("stack/plain@cpu", "squeeze", "12 ms", "20 ms", "500 ms", "–", "3")
    assert squeeze == ("stack/squeeze@cpu", "plain", "22 ms", "30 ms", "1.5 s", "–", "3")


def test_the_table_has_no_column_without_a_number(record_of: RecordOf) -> None:
    page = printed([record_of()], TAKEN)
    assert "steady run" in page
    assert "device" not in page.split("program")[1]
    judged = replace(TAKEN.judged, on_device=DeviceTimes(busy=0.015))
    assert "15 ms" in printed([record_of()], replace(TAKEN, judged=judged))


def test_many_times_are_one_line_unless_asked_for(record_of: RecordOf) -> None:
    many = [replace(TAKEN, workload=f"stack-{number}") for number in range(7)]
    assert "Times\n14 timings; for the times, use -v or" in printed([record_of()], *many)
    assert printed([record_of()], *many, verbose=True).count("/squeeze@cpu") == 7
    assert printed([record_of()], *many[:6]).count("/squeeze@cpu") == 6
    assert summary([record_of()], many).count("/squeeze@cpu") == 7


def test_a_narrow_terminal_gets_a_paragraph_for_each_time(record_of: RecordOf) -> None:
    page = printed([record_of()], TAKEN, width=60)
    line = "stack/squeeze@cpu: timed with plain, steady run 22 ms,"
    assert f"\n{line}\n  first run 30 ms, compiled in 1.5 s, samples 3\n" in page
    assert "stack/squeeze@cpu  plain      " in printed([record_of()], TAKEN, width=80)


def test_an_interrupted_pair_is_told_as_one(record_of: RecordOf) -> None:
    assert "unfinished" in printed([record_of()], replace(TAKEN, ended=Ending.UNFINISHED))
    assert "unfinished" not in printed([record_of()], TAKEN)


def test_a_run_that_timed_nothing_shows_no_times(record_of: RecordOf) -> None:
    never = replace(
        TAKEN, reference=VariantTimes(variant="plain"), judged=VariantTimes(variant="squeeze")
    )
    for page in (printed([record_of()]), printed([record_of()], never)):
        assert "steady" not in page
    assert "## Times" not in summary([record_of()], [never])


def test_the_summary_shows_them_as_a_table(record_of: RecordOf) -> None:
    page = summary([record_of()], [TAKEN])
    assert "## Times" in page
    assert "| stack/squeeze@cpu | plain | 22 ms | 30 ms | 1.5 s | 3 |" in page


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1500.0, "1,500 s"),
        (90.0, "90 s"),
        (1.0, "1 s"),
        (0.9996, "1 s"),
        (0.5, "500 ms"),
        (3.3e-4, "330 µs"),
        (5e-8, "50 ns"),
    ],
)
def test_seconds_are_told_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_a_variant_alone_is_one_line() -> None:
    alone = replace(TAKEN, reference=VariantTimes(variant=""), question="alone")
    (line,) = time_rows([pooled([alone, alone])])
    assert line[:3] == ("stack/squeeze@cpu", "alone", "22 ms")
    assert line[-1] == "6"
