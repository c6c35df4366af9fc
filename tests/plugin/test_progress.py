"""A terminal shows one live line, a log one line a minute; both show each failure at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.plugin.project import PREAMBLE, Ended, Project

SUITE = (
    PREAMBLE
    + """
W = workload(variant("double", double), variant("wrong", mismatched))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)
PLAIN = "def test_plain():\n    pass\n"
SHORT_MINUTES = """
import assay.plugin.progress
assay.plugin.progress._MINUTE = 1e-9
"""
FAILED = "  FAILED  compiles · mine/small/wrong on cpu:8: it does not trace: "
WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "worker"])


def live(ended: Ended) -> list[str]:
    """What was written over again, each time."""
    assert ended.exit_code == 1, ended.output
    return re.findall(r"\r\x1b\[2K([^\r\n\x1b]+)", ended.output)


def before_the_summary(ended: Ended) -> list[str]:
    """The lines between collection and pytest's own report of the failures."""
    assert ended.exit_code == 1, ended.output
    shown = re.split(r"collected .*|workers? \[.*", ended.output)[1].partition("= FAILURES")[0]
    return [line for line in shown.splitlines() if line.strip(" =")]


@WORKERS
def test_a_terminal_shows_one_line_with_the_time_remaining(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    project = Project(tmp_path, {"test_small.py": SUITE})
    ended = project.on_a_terminal("-p", "no:cacheprovider", *workers)
    first, second, failure, third = live(ended)
    assert first == "  0 of 2 verdicts: small/double for cpu:8"
    assert re.fullmatch(r"  1 of 2 verdicts, about \d+ s left: small/wrong for cpu:8", second)
    assert failure.startswith(FAILED)
    assert third.startswith("  1 of 2 verdicts, 1 failed, about ")
    progress = ended.output.partition("= FAILURES")[0]
    assert "test_small.py " not in progress
    assert "FAILED test_small.py::test_compiles[small/wrong@cpu:8]" in ended.output
    assert ended.outcomes == {"passed": 1, "failed": 1}


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_line_is_narrower_than_the_terminal(tmp_path: Path, columns: int) -> None:
    suite = SUITE.replace('"double", double', '"double" + "-as-written" * 12, double')
    project = Project(tmp_path, {"test_small.py": suite}, COLUMNS=str(columns))
    first, second, _, _ = live(project.on_a_terminal())
    assert cell_len(first) == min(columns - 1, 173)
    assert cell_len(second) < columns


@WORKERS
def test_a_log_has_no_line_for_a_program_and_one_for_a_failure(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    ended = Project(tmp_path, {"test_small.py": SUITE}).pytest(*workers)
    (failure,) = before_the_summary(ended)
    assert failure.startswith(FAILED)
    assert ended.outcomes == {"passed": 1, "failed": 1}


@WORKERS
def test_a_log_has_a_line_for_each_minute(tmp_path: Path, workers: tuple[str, ...]) -> None:
    files = {"test_small.py": SUITE, "conftest.py": SHORT_MINUTES}
    first, second, failure, _ = before_the_summary(Project(tmp_path, files).pytest(*workers))
    assert re.fullmatch(r"  \d+ min: 0 of 2 verdicts; running: small/double for cpu:8", first)
    wrong = r"  \d+ min: 1 of 2 verdicts, about \d+ min left; running: small/wrong for cpu:8"
    assert re.fullmatch(wrong, second)
    assert failure.startswith(FAILED)


def test_a_log_has_a_line_while_a_worker_is_busy(tmp_path: Path) -> None:
    slow = SUITE.replace(
        "\nW =", "\ndef slow(devices):\n    time.sleep(4)\n    return double(devices)\n\nW ="
    )
    slow = slow.replace('"double", double', '"double", slow')
    minutes = "import assay.plugin.progress as p\np._MINUTE, p._TICK_SECONDS = 1, 0.1\n"
    files = {"test_small.py": slow, "conftest.py": minutes}
    shown = before_the_summary(Project(tmp_path, files).pytest("-n", "1"))
    busy = [line for line in shown if line.endswith("running: small/double for cpu:8")]
    assert busy[0] == "  1 min: 0 of 2 verdicts; running: small/double for cpu:8"
    assert busy[1] == "  2 min: 0 of 2 verdicts; running: small/double for cpu:8"


def test_other_tests_keep_their_dots(tmp_path: Path) -> None:
    files = {"test_small.py": SUITE, "test_plain.py": PLAIN}
    shown = before_the_summary(Project(tmp_path, files).pytest())
    assert shown[0].startswith("test_plain.py .")
    assert sum(line.startswith(FAILED) for line in shown) == 1


@pytest.mark.parametrize("arguments", [("-v",), ("-s",), ("-q",)])
def test_the_line_gives_way_to_other_output(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    project = Project(tmp_path, {"test_small.py": SUITE, "conftest.py": SHORT_MINUTES})
    ended = project.on_a_terminal("test_small.py", *arguments)
    assert live(ended) == []
    assert "verdicts; running" not in ended.output
    assert FAILED not in ended.output


def test_a_terminal_that_cannot_erase_gets_lines(tmp_path: Path) -> None:
    files = {"test_small.py": SUITE, "conftest.py": SHORT_MINUTES}
    ended = Project(tmp_path, files, TERM="dumb").on_a_terminal()
    assert "\x1b" not in ended.output
    assert "0 of 2 verdicts; running: small/double for cpu:8" in ended.output


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
    ids=["piped", "forced", "refused"],
)
def test_colour_is_for_who_asks(
    tmp_path: Path, variables: dict[str, str], *, coloured: bool
) -> None:
    ended = Project(tmp_path, {"test_small.py": SUITE}, **variables).pytest()
    summary = ended.output.rpartition("short test summary")[0].rpartition("The run fails")[0]
    failure = next(line for line in ended.output.splitlines() if FAILED.strip() in line)
    assert ("\x1b[31m" in failure, "\x1b[1;31m" in summary[-20:]) == (coloured, coloured)


def test_a_stream_that_cannot_encode_gets_similar_characters(tmp_path: Path) -> None:
    project = Project(tmp_path, {"test_small.py": SUITE}, PYTHONIOENCODING="ascii")
    ended = project.pytest(path=tmp_path)
    assert ended.output.isascii()
    assert FAILED.replace("·", "-") in ended.output
    summary = ended.output.rpartition("FAILURES")[2]
    assert "\nFAILED  compiles - mine/small/wrong on cpu:8\n  measured  " in summary
    assert "\\n" not in ended.output
    assert "\\u" not in ended.output
    report = subprocess.run(
        [sys.executable, "-m", "assay.cli", "report", "results/latest"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert b"FAILED  compiles - mine/small/wrong on cpu:8\n" in report.stdout
