"""Progress of a long run: one live line on a terminal, a line for each program elsewhere."""

import os
import re
import time
from collections.abc import Iterable

import pytest

_PROGRAM = re.compile(r"\[([^\[/@]+/[^/@]+@[^/@\]]+)(/negative-control)?\]$")
_ERASE = "\r\x1b[2K"
_MINUTE = 60
_TELLING = 0.05
"""Of all verdicts, before what they took tells how long the rest takes: observers start first."""


def program_of(nodeid: str) -> str:
    """``workload/variant@target`` out of an item's id, or the empty string for any other test."""
    found = _PROGRAM.search(nodeid)
    return found[1] if found else ""


class Progress:
    """Tells which program is at work, how many remain and, on a terminal, for how long."""

    def __init__(self) -> None:
        self._items: set[str] = set()
        self._expected: set[str] = set()
        self._begun: set[str] = set()
        self._done: set[str] = set()
        self._failed: set[str] = set()
        self._start = 0.0
        self._terminal: pytest.TerminalReporter | None = None

    @property
    def is_live(self) -> bool:
        """Whether the line stands for pytest's own dots and names of files."""
        return self._terminal is not None

    def expect(self, nodeids: Iterable[str], reporter: pytest.TerminalReporter | None) -> None:
        """Learn which items the run will judge."""
        self._items |= set(nodeids)
        self._expected |= {program for each in self._items if (program := program_of(each))}
        # Where other tests run too, pytest tells of them in its own way.
        alone = bool(self._items) and all(map(program_of, self._items))
        self._terminal = (
            reporter if alone and reporter and _can_full_buffer_write(reporter) else None
        )
        if self._terminal:
            self._terminal.showfspath = False
        self._start = time.monotonic()

    def begin(self, nodeid: str, reporter: pytest.TerminalReporter) -> None:
        """Tell which program is begun."""
        program = program_of(nodeid)
        if not program:
            return
        new = program not in self._begun
        self._begun.add(program)
        self._expected.add(program)
        if self._terminal:
            self._full_buffer_write(self._terminal, program)
        elif new:
            self._write_line(reporter, program)

    def reported(self, report: pytest.TestReport) -> None:
        """Count an item that has ended, or failed."""
        if report.failed:
            self._failed.add(report.nodeid)
        if report.when == "teardown":
            self._done.add(report.nodeid)

    def end(self) -> None:
        """Leave the terminal to pytest."""
        if self._terminal:
            self._terminal.config.get_terminal_writer().write_raw(_ERASE, flush=True)
        self._terminal = None

    def _write_line(self, reporter: pytest.TerminalReporter, program: str) -> None:
        total = len(self._expected)
        reporter.ensure_newline()
        # xdist's dots belong to no file, so the reporter does not see them.
        writer = reporter.config.get_terminal_writer()
        if writer.width_of_current_line:
            writer.line()
        number = f"{len(self._begun):>{len(str(total))}}/{total}"
        reporter.write_line(f"  [{number}] {_in_words(program)}")

    def _full_buffer_write(self, reporter: pytest.TerminalReporter, program: str) -> None:
        parts = [f"{len(self._done):,} of {len(self._items):,} verdicts"]
        if self._failed:
            parts.append(f"{len(self._failed):,} failed")
        if len(self._done) >= _TELLING * len(self._items):
            spent = time.monotonic() - self._start
            left = spent * (len(self._items) - len(self._done)) / len(self._done)
            parts.append(f"about {_duration(left)} left")
        writer = reporter.config.get_terminal_writer()
        line = f"  {', '.join(parts)}: {_in_words(program)}"[: writer.fullwidth - 1]
        writer.write_raw(_ERASE + line, flush=True)


def _in_words(program: str) -> str:
    what, _, target = program.rpartition("@")
    return f"{what} for {target}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _MINUTE else f"{seconds / _MINUTE:.0f} min"


def _can_full_buffer_write(reporter: pytest.TerminalReporter) -> bool:
    """Whether lines can be erased, and neither ``-v``, ``-q`` nor ``-s`` asks for other output."""
    option = reporter.config.option
    usual = option.verbose == 0 and option.capture != "no"
    return usual and bool(reporter.isatty) and os.environ.get("TERM") != "dumb"
