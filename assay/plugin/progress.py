"""Progress on a long run: which program is being observed for what, and how many remain."""

from collections.abc import Iterable

import pytest


def program_of(nodeid: str) -> str:
    """``workload/arm@target`` out of an item's id, or the empty string for any other test."""
    _, bracket, inner = nodeid.partition("[")
    program = inner.removesuffix("]").removesuffix("/must-fail")
    return program if bracket and "@" in program else ""


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
        reporter.write_line(
            f"  [{len(self._begun):>{len(str(total))}}/{total}] {what} for {target}"
        )
