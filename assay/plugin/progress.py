"""What is shown while the items run: how many verdicts are reached, and each failure at once."""

import os
import sys
import time
from collections.abc import Iterable, Sequence
from threading import Event, Lock, Thread

import pytest
from rich.cells import cell_len, set_cell_size

from assay.model.verdict import Record
from assay.plugin import FLEET, program_of
from assay.report.labels import SIMILAR, failure_line

_ERASE = "\r\x1b[2K"
_MINUTE = 60
_ESTIMATE_FROM = 0.05
"""Share of the verdicts after which the remaining time is estimated: observers start first."""
_PROGRAMS_SHOWN = 2
_TICK_SECONDS = 5


class Progress:
    """Shows the programs that run, how many verdicts remain, and every failure when it happens.

    On a terminal, one line is overwritten if all items are of checks. Otherwise, as in the log of a
    CI job, a line a minute is written: by a thread if workers of xdist or of a fleet run the items,
    else when an item starts or fails, because during an item pytest captures what is written. Under
    ``-v``, ``-q`` and ``-s`` pytest's own output is enough.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.replaces_dots = False
        self._config = config
        self._shows = self._is_live = False
        self._items: set[str] = set()
        self._running: dict[str, str] = {}
        self._done: set[str] = set()
        self._failed: set[str] = set()
        self._start = self._due = 0.0
        self._ended, self._lock = Event(), Lock()
        self._ticker: Thread | None = None

    def expect(self, nodeids: Iterable[str]) -> None:
        """Add items that the run will judge."""
        self._items.update(nodeids)
        self._start = time.monotonic()
        self._due = self._start + _MINUTE
        programs, option = set(map(program_of, self._items)), self._config.option
        reporter = reporter_of(self._config)
        usual = option.verbose == 0 and option.capture != "no"
        self._shows = reporter is not None and usual and bool(programs - {""})
        # Other tests are shown in pytest's own way.
        self.replaces_dots = self._shows and "" not in programs
        if reporter and self.replaces_dots:
            reporter.showfspath = False
            self._is_live = bool(reporter.isatty) and os.environ.get("TERM") != "dumb"
        has_workers = any(map(self._config.pluginmanager.has_plugin, ("dsession", FLEET)))
        if has_workers and self._shows and not self._is_live and not self._ticker:
            self._ticker = Thread(target=self._tick, daemon=True)
            self._ticker.start()

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_SECONDS):
            with self._lock:
                self._show()

    def start(self, nodeid: str, node: str = "") -> None:
        """Note that an item runs, and on which machine of a fleet."""
        with self._lock:
            self._running[nodeid] = node
            self._show()

    def count(self, report: pytest.TestReport, records: Sequence[Record]) -> None:
        """Count an item that ended or failed, and show the records that fail the run."""
        with self._lock:
            self._count(report, records)

    def _count(self, report: pytest.TestReport, records: Sequence[Record]) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        # A worker that crashed reports another ``when``, and no teardown follows.
        if report.when not in ("setup", "call"):
            self._done.add(report.nodeid)
            self._running.pop(report.nodeid, None)
        failures = [failure_line(record) for record in records if record.verdict.fails]
        if report.failed and not failures and program_of(report.nodeid):
            failures = [f"FAILED {report.nodeid}"]
        if failures and self._shows:
            for line in failures:
                self._line(line, red=True)
            self._show()

    def end(self) -> None:
        """Erase the line, and write no other."""
        self._ended.set()
        if self._ticker:
            self._ticker.join()
        if self._is_live:
            self._config.get_terminal_writer().write_raw(_ERASE, flush=True)
        self._is_live = self.replaces_dots = False

    def _show(self) -> None:
        if self._is_live and self._running:
            writer = self._config.get_terminal_writer()
            line = f"  {self._counts()}: {_shown(*next(reversed(self._running.items())))}"
            width = min(cell_len(line), writer.fullwidth - 1)
            writer.write_raw(_ERASE + printable(set_cell_size(line, width)), flush=True)
        elif self._shows and not self._is_live and time.monotonic() >= self._due:
            self._due = time.monotonic() + _MINUTE
            minutes = (time.monotonic() - self._start) / _MINUTE
            running = list(dict.fromkeys(_shown(*each) for each in self._running.items()))
            names = ", ".join(running[:_PROGRAMS_SHOWN]) or "nothing"
            if (more := len(running) - _PROGRAMS_SHOWN) > 0:
                names += f" and {more} more"
            self._line(f"{minutes:.0f} min: {self._counts()}; running: {names}")

    def _line(self, text: str, **style: bool) -> None:
        reporter, writer = reporter_of(self._config), self._config.get_terminal_writer()
        assert reporter is not None
        if self._is_live:
            writer.write_raw(_ERASE)
        else:
            reporter.ensure_newline()
            if writer.width_of_current_line:  # xdist's dots, which the reporter does not count.
                writer.line()
        reporter.write_line(printable(f"  {text}"), **style)
        reporter.flush()

    def _counts(self) -> str:
        done, total = len(self._done), len(self._items)
        parts = [f"{done:,} of {total:,} verdicts"]
        if self._failed:
            parts.append(f"{len(self._failed):,} failed")
        if done >= _ESTIMATE_FROM * total:
            seconds = (time.monotonic() - self._start) * (total - done) / done
            left = f"{seconds:.0f} s" if seconds < _MINUTE else f"{seconds / _MINUTE:.0f} min"
            parts.append(f"about {left} left")
        return ", ".join(parts)


def reporter_of(config: pytest.Config) -> pytest.TerminalReporter | None:
    """The writer to the terminal, None under ``-p no:terminal``."""
    reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    return reporter


def printable(text: str) -> str:
    """The text in characters that standard output can encode."""
    encoding = getattr(sys.__stdout__, "encoding", None) or "utf-8"
    return text.encode(encoding, SIMILAR).decode(encoding)


def _shown(nodeid: str, node: str) -> str:
    what, _, target = program_of(nodeid).rpartition("@")
    return (f"{what} for {target}" if what else nodeid) + (f" on {node}" if node else "")
