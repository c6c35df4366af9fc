"""What was timed on two toolchains stands under the verdicts, a line a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO

from rich.console import Console

from assay.model.evidence import Toolchain
from assay.model.rerun import Pair, Rerun
from assay.model.timing import Change, Ending, ProcessTimes, Ratio
from assay.model.verdict import Record
from assay.report.document import RERUNS_HEAD, rerun_lines
from assay.report.summary import escape, summary
from assay.report.terminal import print_run

RecordOf = Callable[..., Record]


def side(*samples: float) -> ProcessTimes:
    return ProcessTimes(trace=None, compile=None, first=1.0, runs_per_sample=1, samples=samples)


MADE = Rerun(
    suite="dus_remat",
    workload="stack",
    variant="plain",
    target="cpu",
    ended=Ending.ENOUGH,
    old=Toolchain(versions={"jax": "0.10.2", "host-isa": "x"}),
    new=Toolchain(versions={"jax": "0.12.0", "host-isa": "x"}),
    pairs=(Pair(old=side(0.01, 0.01), new=side(0.02, 0.02)),) * 4,
    ratio=Ratio(ratio=2.0, low=1.9, high=2.1, units=4, change=Change.SLOWER),
)
LINE = (
    "dus_remat: stack/plain@cpu: a run on jax 0.12.0 takes 2 times what it takes on jax 0.10.2 "
    "(1.9 to 2.1 by 4 pairs of processes: 20 ms against 10 ms): slower"
)


def test_a_line_names_both_toolchains_the_interval_and_the_pairs() -> None:
    assert list(rerun_lines([MADE])) == [LINE]


def test_a_control_is_told_as_one() -> None:
    (line,) = rerun_lines([replace(MADE, negative_control=True, new=MADE.old)])
    assert (
        "cpu: a run done twice takes 2 times what one takes, both on host-isa x, jax 0.10.2 (1.9"
    ) in line


def test_controls_come_last() -> None:
    _, line = rerun_lines([replace(MADE, negative_control=True), MADE])
    assert "done twice" in line


def test_one_that_was_interrupted_says_so() -> None:
    (line,) = rerun_lines([replace(MADE, ended=Ending.UNFINISHED)])
    assert line == f"{LINE}; it was interrupted"
    (line,) = rerun_lines([replace(MADE, ended=Ending.SECONDS, pairs=MADE.pairs[:1], ratio=None)])
    assert line.endswith("1 pair of processes, too few to be judged; the time limit")


def test_one_that_measured_nothing_has_no_line() -> None:
    assert list(rerun_lines([replace(MADE, pairs=(), ratio=None)])) == []


def test_it_stands_in_the_summary_and_on_the_terminal(record_of: RecordOf) -> None:
    page = summary([record_of()], (), [MADE])
    assert page.endswith(f"## {RERUNS_HEAD}\n\n{escape(LINE)}\n")
    stream = StringIO()
    print_run(Console(file=stream, width=400), [record_of()], (), [MADE])
    assert f"{RERUNS_HEAD}\n{LINE}\n" in stream.getvalue()


def test_without_a_rerun_there_is_no_heading(record_of: RecordOf) -> None:
    assert RERUNS_HEAD not in summary([record_of()])
