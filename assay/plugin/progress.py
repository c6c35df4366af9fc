"""Progress on a long run: which program is being observed for what, and how many remain."""

import re
from collections.abc import Iterable

import pytest

_PROGRAM = re.compile(r"\[([^\[/@]+/[^/@]+@[^/@\]]+)(/must-fail)?\]$")


def program_of(nodeid: str) -> str:
    """``workload/arm@target`` out of an item's id, or the empty string for any other test."""
    found = _PROGRAM.search(nodeid)
    return found[1] if found else ""


class Progress:
    """Writes a line when the first item of a program begins."""

    def __init__(self) -> None:
        self._expected: set[str] = set()
        self._begun: set[str] = set()

    def expect(self, nodeids: Iterable[str]) -> None:
        """Learn which programs the run will observe."""
        self._expected |= {program for nodeid in nodeids if (program := program_of(nodeid))}

    def begin(self, nodeid: str, reporter: pytest.TerminalReporter) -> None:
        """Say which program is begun, the first time it is."""
        program = program_of(nodeid)
        if not program or program in self._begun:
            return
        self._begun.add(program)
        self._expected.add(program)
        what, _, target = program.rpartition("@")
        total = len(self._expected)
        reporter.ensure_newline()
        # xdist's dots belong to no file, so the reporter does not see them.
        writer = reporter.config.get_terminal_writer()
        if writer.width_of_current_line:
            writer.line()
        reporter.write_line(
            f"  [{len(self._begun):>{len(str(total))}}/{total}] {what} for {target}"
        )
