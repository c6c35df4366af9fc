"""The terminal report fits one screen and its width, reads without colour, and hides no failure."""

import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from assay.model.defect import RemedyEffect, Upstream, UpstreamIssue
from assay.model.verdict import USUAL, Ending, Invocation, Outcome, Record
from assay.report.terminal import print_run

RecordOf = Callable[..., Record]

HEADS = {
    "cpu:8": "cpu:8",
    "gpu": "gpu",
    "gpu-a100:8": "a100",
    "gpu-b200:8": "b200",
    "gpu-h100:8": "h100",
    "gpu-h200:8": "h200",
    "gpu-l4": "l4",
    "tpu-v4:2x2x2": "v4",
    "tpu-v5e:2x4": "v5e",
    "tpu-v5p:2x2x2": "v5p",
    "tpu-v6e:2x4": "v6e",
    "tpu7x:2x2x1": "tpu7x",
}


ISSUE = UpstreamIssue(
    problem="Offloading a block's output is ignored",
    upstream=Upstream(link="https://github.com/openxla/xla/issues/17541"),
    variants=("defect",),
    claims=("host-bytes",),
    remedy="Name the value at the block's input",
    effects=(
        RemedyEffect(
            quantity="host memory",
            workload="w1",
            claim="host-bytes",
            without="defect",
            remedied="remedy",
        ),
    ),
)


def printed(
    records: list[Record],
    width: int,
    *,
    colour: bool = False,
    verbose: bool = False,
    invocation: Invocation = USUAL,
) -> str:
    stream = StringIO()
    console = Console(file=stream, width=width, force_terminal=colour)
    print_run(console, records, invocation=invocation, verbose=verbose)
    return stream.getvalue()


def table(records: list[Record], width: int) -> list[list[str]]:
    return [line.split() for line in printed(records, width, verbose=True).splitlines()]


@pytest.fixture
def everywhere(record_of: RecordOf) -> list[Record]:
    return [
        record_of(target=target, variant=variant)
        for variant in ("nothing", "offload-residual-output")
        for target in reversed(HEADS)
    ]


def test_twelve_targets_stand_side_by_side_in_120_columns(everywhere: list[Record]) -> None:
    lines = table(everywhere, 120)
    assert ["variant", *HEADS.values()] in lines
    assert ["nothing"] + ["passed"] * 12 in lines


def test_every_cell_begins_under_its_head(record_of: RecordOf, everywhere: list[Record]) -> None:
    broken = record_of(variant="nothing", target="gpu-l4", verdict=Outcome.FAILED)
    lines = printed([broken, *everywhere], 120, verbose=True).splitlines()
    head, *rows = (line for line in lines if "tpu7x" in line or line.count("pass") > 10)
    starts = [match.start() for match in re.finditer(r"\S+", head)]
    assert len(rows) == 2
    for row in rows:
        assert [match.start() for match in re.finditer(r"\S+", row)][1:] == starts[1:]


def test_a_narrow_terminal_gets_the_table_in_even_parts(everywhere: list[Record]) -> None:
    lines = table(everywhere, 80)
    heads = list(HEADS.values())
    assert ["variant", *heads] not in lines
    assert ["variant", *heads[:6]] in lines
    assert ["variant", *heads[6:]] in lines
    assert lines.count(["nothing"] + ["passed"] * 6) == 2


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal_but_what_is_to_be_copied(
    record_of: RecordOf, everywhere: list[Record], width: int
) -> None:
    failing = [record_of(verdict=outcome, reason="long " * 60) for outcome in Outcome]
    for line in printed([*everywhere, *failing], width, verbose=True).splitlines():
        assert line == line.rstrip()
        assert cell_len(line) <= width or line.split()[0] in ("rerun", "upstream")


def test_every_verdict_has_its_word_without_colour(record_of: RecordOf) -> None:
    records = [record_of(verdict=outcome, variant=outcome.value) for outcome in Outcome]
    output = printed(records, 100, verbose=True)
    assert "\x1b" not in output
    lines = output.splitlines()
    for outcome, label in {
        Outcome.PASSED: "passed",
        Outcome.FAILED: "FAILED",
        Outcome.KNOWN_DEFECT: "known-defect",
        Outcome.FIXED_UPSTREAM: "FIXED-UPSTREAM",
        Outcome.IMPROVED: "improved",
        Outcome.UNSUPPORTED: "unsupported",
        Outcome.INCONCLUSIVE: "inconclusive",
        Outcome.ERROR: "ERROR",
    }.items():
        assert [outcome.value, label] in [line.split() for line in lines]


@pytest.fixture
def main_job(record_of: RecordOf) -> list[Record]:
    """Five suites of many variants on all targets, of which some have known defects."""
    outcomes = {"defect": Outcome.KNOWN_DEFECT, "absent": Outcome.UNSUPPORTED}
    return [
        record_of(
            suite=f"suite_{suite}",
            workload=f"w{workload}",
            variant=variant,
            target=target,
            verdict=outcomes.get(variant, Outcome.PASSED),
            upstream=ISSUE.upstream.link if variant in outcomes else "",
            reason="a long reason, with numbers " * 20,
            toolchain={f"nvidia-package-{number}": "13.5.37" for number in range(8)},
        )
        for suite in range(5)
        for workload in range(8)
        for variant in ("control", "defect", "remedy", "absent")
        for target in HEADS
    ]


@pytest.mark.parametrize("issues", [(), (ISSUE,)], ids=["generic", "described"])
def test_an_all_green_main_job_fits_one_screen(
    main_job: list[Record], issues: tuple[UpstreamIssue, ...]
) -> None:
    coverage = "1,920 of 1,920 expected verdicts judged on 12 targets; " + "not run: " * 10
    invocation = Invocation(
        ending=Ending(coverage=coverage),
        upstream_issues={f"suite_{suite}": issues for suite in range(5)},
    )
    lines = printed(main_job, 100, invocation=invocation).splitlines()
    assert len(lines) <= 40
    assert lines[0] == "Nothing regressed; no action is needed."
    assert lines[-1].startswith("Nothing regressed (exit 0): 480 known defects, 960 passed")


def test_the_grid_and_known_defects_are_shown_on_request(main_job: list[Record]) -> None:
    short, long = (printed(main_job, 100, verbose=verbose) for verbose in (False, True))
    assert "use -v or read summary.md" in short
    for shown in (
        "suite_4 / w7",
        "defect",
        "known-defect  suite_4/{w0, w1",
        "claims    host-bytes",
    ):
        assert (shown in short, shown in long) == (shown == "defect", True)


def test_failures_come_first_and_in_full(record_of: RecordOf, main_job: list[Record]) -> None:
    urgent = [Outcome.ERROR, Outcome.FAILED, Outcome.FIXED_UPSTREAM, Outcome.IMPROVED]
    failing = [record_of(verdict=outcome, reason=f"why {outcome.value}") for outcome in urgent]
    output = printed([*main_job, *failing], 100)
    opening = "Assay itself failed: 1 failed in Assay, 1 failed, 1 fixed upstream, 1 improved."
    places = [output.index(text) for text in (opening, *(f"why {each.value}" for each in urgent))]
    assert places == sorted(places)
    assert places[-1] < output.index("suite_0  ")
    assert output.count("  rerun ") == len(urgent)


def test_a_run_that_fails_without_a_failing_verdict_says_why(record_of: RecordOf) -> None:
    output = printed([record_of(verdict=Outcome.UNSUPPORTED, reason="no device")], 100)
    assert "finding   no device" in output


def test_colour_is_written_to_a_terminal(record_of: RecordOf) -> None:
    assert "\x1b[" in printed([record_of(verdict=Outcome.FAILED)], 100, colour=True)


def test_no_reason_or_name_is_taken_for_markup(record_of: RecordOf) -> None:
    reason = "KeyError: [bold]x[/] \x1b[31m"
    output = printed([record_of(suite="[red]s[/]", verdict=Outcome.ERROR, reason=reason)], 100)
    assert "[bold]x[/]" in output
    assert "\n[red]s[/]  1 verdict: 1 failed in Assay\n" in output
    assert "\x1b" not in output


def test_no_text_of_an_issue_steers_the_terminal(record_of: RecordOf) -> None:
    issue = replace(
        ISSUE, problem="\x1b[31m[bold]x[/]", remedy="\x1b", upstream=Upstream(link="\x1b")
    )
    invocation = Invocation(upstream_issues={"scan_offload": (issue,)})
    record = record_of(verdict=Outcome.UNSUPPORTED, reason="\x1b")
    output = printed([record], 100, verbose=True, invocation=invocation)
    assert "\x1b" not in output
    assert "[bold]x[/]" in output


def test_the_last_line_is_the_verdict_of_the_run(record_of: RecordOf) -> None:
    last = printed([record_of(), record_of(verdict=Outcome.FAILED)], 100).splitlines()[-1]
    assert last == "The run fails (exit 1): 1 failed, 1 passed."


def test_what_passed_but_was_not_wholly_measured_says_so(record_of: RecordOf) -> None:
    records = [record_of(), record_of(), record_of(verdict=Outcome.INCONCLUSIVE)]
    assert ["offload-hidden", "2/3"] in table(records, 100)
    assert ["offload-hidden", "passed"] in table(records[:2], 100)


def test_a_run_without_records_prints_and_does_not_pass() -> None:
    assert "The run judged nothing" in printed([], 100)
