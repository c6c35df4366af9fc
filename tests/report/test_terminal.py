"""The terminal report fits its width, reads without colour, and hides nothing."""

import re
from collections.abc import Callable
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from assay.model.verdict import Outcome, Record
from assay.report.grid import grid
from assay.report.terminal import print_grid, print_run

RecordOf = Callable[..., Record]

HEADS = {
    "cpu:8": "cpu:8",
    "gpu": "gpu",
    "gpu-a100:8": "a100",
    "gpu-b200:8": "b200",
    "gpu-h100:8": "h100",
    "gpu-h200:8": "h200",
    "gpu-l4": "l4",
    "tpu-v4:2x2x1": "v4",
    "tpu-v5e:2x4": "v5e",
    "tpu-v5p:2x2x2": "v5p",
    "tpu-v6e:2x4": "v6e",
    "tpu7x:2x2x1": "tpu7x",
}


def printed(records: list[Record], width: int, *, colour: bool = False) -> str:
    stream = StringIO()
    print_run(Console(file=stream, width=width, force_terminal=colour), records)
    return stream.getvalue()


def table(records: list[Record], width: int) -> list[list[str]]:
    stream = StringIO()
    print_grid(Console(file=stream, width=width), grid(records))
    return [line.split() for line in stream.getvalue().splitlines()]


@pytest.fixture
def everywhere(record_of: RecordOf) -> list[Record]:
    return [
        record_of(target=target, arm=arm)
        for arm in ("nothing", "offload-residual-output")
        for target in reversed(HEADS)
    ]


def test_twelve_targets_stand_side_by_side_in_100_columns(everywhere: list[Record]) -> None:
    lines = table(everywhere, 100)
    assert list(HEADS.values()) in lines
    assert ["nothing"] + ["kept"] * 12 in lines


def test_every_cell_begins_under_its_head(record_of: RecordOf, everywhere: list[Record]) -> None:
    broken = record_of(arm="nothing", target="gpu-l4", verdict=Outcome.BROKEN)
    stream = StringIO()
    print_grid(Console(file=stream, width=100), grid([broken, *everywhere]))
    lines = stream.getvalue().splitlines()
    head, *rows = (line for line in lines if "tpu7x" in line or line.count("kept") > 10)
    starts = [match.start() for match in re.finditer(r"\S+", head)]
    assert len(rows) == 2
    for row in rows:
        assert [match.start() for match in re.finditer(r"\S+", row)][1:] == starts


def test_a_narrow_terminal_gets_the_table_in_even_parts(everywhere: list[Record]) -> None:
    lines = table(everywhere, 60)
    heads = list(HEADS.values())
    assert heads not in lines
    assert heads[:6] in lines
    assert heads[6:] in lines
    assert lines.count(["nothing"] + ["kept"] * 6) == 2


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal_but_what_is_to_be_copied(
    record_of: RecordOf, everywhere: list[Record], width: int
) -> None:
    failing = [record_of(verdict=outcome, reason="long " * 60) for outcome in Outcome]
    for line in printed([*everywhere, *failing], width).splitlines():
        assert line == line.rstrip()
        assert cell_len(line) <= width or line.split()[0] in ("rerun", "upstream")


def test_every_verdict_has_its_word_without_colour(record_of: RecordOf) -> None:
    records = [record_of(verdict=outcome, arm=outcome.value) for outcome in Outcome]
    output = printed(records, 100)
    assert "\x1b" not in output
    lines = output.splitlines()
    for outcome, word in {
        Outcome.KEPT: "kept",
        Outcome.BROKEN: "BROKEN",
        Outcome.KNOWN_DEFECT: "known",
        Outcome.FIXED_UPSTREAM: "fixed!",
        Outcome.IMPROVED: "better",
        Outcome.CANNOT_RUN: "\N{EN DASH}",
        Outcome.NOT_MEASURED: "?",
        Outcome.ERROR: "ERROR",
    }.items():
        assert [outcome.value, word] in [line.split() for line in lines]


def test_colour_is_written_to_a_terminal(record_of: RecordOf) -> None:
    assert "\x1b[" in printed([record_of(verdict=Outcome.BROKEN)], 100, colour=True)


def test_a_reason_is_never_taken_for_markup(record_of: RecordOf) -> None:
    reason = "KeyError: [bold]x[/] \x1b[31m"
    output = printed([record_of(verdict=Outcome.ERROR, reason=reason)], 100)
    assert "[bold]x[/]" in output
    assert "\x1b" not in output


def test_the_last_line_is_the_verdict_of_the_run(record_of: RecordOf) -> None:
    last = printed([record_of(), record_of(verdict=Outcome.BROKEN)], 100).splitlines()[-1]
    assert last == "The run fails (exit 1): 1 failed, 1 passed."


def test_what_is_kept_but_not_wholly_measured_says_so(record_of: RecordOf) -> None:
    records = [record_of(), record_of(), record_of(verdict=Outcome.NOT_MEASURED)]
    assert ["offload-hidden", "2/3"] in table(records, 100)
    assert ["offload-hidden", "kept"] in table(records[:2], 100)


def test_a_run_without_records_prints_and_does_not_pass() -> None:
    assert "The run judged nothing" in printed([], 100)
