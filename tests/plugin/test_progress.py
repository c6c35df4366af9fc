"""A terminal shows one live line, which stands for pytest's dots and hides no result."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.plugin.project import PREAMBLE, Ended, Project

SUITE = (
    PREAMBLE
    + """
W = workload(variant("double", double), variant("wrong", mismatched))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)
PLAIN = "def test_plain():\n    pass\n"


def lines(ended: Ended) -> list[str]:
    """What was written over again, each time."""
    assert ended.exit_code == 1, ended.output
    return re.findall(r"\r\x1b\[2K([^\r\n\x1b]+)", ended.output)


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "worker"])
def test_a_terminal_shows_one_line_with_the_time_remaining(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    ended = Project(tmp_path, {"test_small.py": SUITE}).on_a_terminal(
        "-p", "no:cacheprovider", *workers
    )
    first, second = lines(ended)
    assert first == "  0 of 2 verdicts: small/double for cpu:8"
    assert re.fullmatch(r"  1 of 2 verdicts, about \d+ s left: small/wrong for cpu:8", second)
    progress = ended.output.partition("= FAILURES")[0]
    assert "test_small.py" not in progress
    assert "FAILED test_small.py::test_compiles[small/wrong@cpu:8]" in ended.output
    assert ended.outcomes == {"passed": 1, "failed": 1}


@pytest.mark.parametrize("arguments", [("-v",), ("-s",), ("test_plain.py", "test_small.py")])
def test_the_line_gives_way_to_other_output(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    project = Project(tmp_path, {"test_small.py": SUITE, "test_plain.py": PLAIN})
    ended = project.on_a_terminal("test_small.py", *arguments)
    assert lines(ended) == []
    assert "[1/2] small/double for cpu:8" in ended.output
