"""The controller process writes the records, then the summary, baselines and exit code."""

import shutil
import signal
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from assay.model.blame import in_words
from assay.model.invocation import Ending, Invocation
from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.model.verdict import ExitCode, Record
from assay.model.workload import Level, UpstreamIssue
from assay.plugin import BASELINES, benchmarks
from assay.plugin.coverage import FOUND, Tally, remove_unused_baselines, slot_of, unused_records
from assay.plugin.items import (
    FRAMEWORK,
    TIMED,
    TimedItem,
    TrialItem,
    upstream_issue_of,
    verdicts_of,
)
from assay.plugin.progress import Progress, program_of
from assay.plugin.session import Session
from assay.plugin.settings import Settings
from assay.report.junit import junit
from assay.report.labels import coverage_lines
from assay.report.summary import summary
from assay.report.terminal import print_run
from assay.run import update_baselines
from assay.store import evidence, records

_WIDTH_OF_A_FILE = 100
SUMMARY = "summary.md"
_PYTEST_OWN = (
    pytest.ExitCode.INTERRUPTED,
    pytest.ExitCode.INTERNAL_ERROR,
    pytest.ExitCode.USAGE_ERROR,
)


class Controller:
    """Hooks of the process that has the terminal; workers send it their verdicts on reports."""

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self._config = config
        self._session = session
        self._progress = Progress()
        self._records: list[Record] = []
        self._times: tuple[Times, ...] = ()
        self._reruns: tuple[Rerun, ...] = ()
        self._damaged: tuple[ValueError, ...] = ()
        self._invocation = invocation_of(config, session.settings)
        self._interrupted = False
        self._updated: tuple[Path, ...] = ()
        self._tally = Tally(config, session.settings)
        self._page = ""
        self._fault: Exception | None = None
        self._selected: set[str] = set()
        self._reached: set[str] = set()
        self._begun = False
        self._passed: dict[str, bool] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Iterable[str]) -> None:
        """Learn from a worker what will be observed."""
        self._select(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Learn what will be observed, in a run without workers."""
        self._select(item.nodeid for item in session.items)
        if self._collects_only:
            for item in session.items:
                if isinstance(item, TrialItem | TimedItem):
                    self._tally.expect(item.nodeid, slot_of(item.trial))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Learn whether the selected items will be run: a refused collection loses none."""
        goes_on = self._config.option.continue_on_collection_errors
        self._begun = goes_on or not session.testsfailed

    @property
    def _collects_only(self) -> bool:
        return bool(self._config.option.collectonly)

    def _select(self, ids: Iterable[str]) -> None:
        selected = set(ids)
        self._progress.expect(selected, self._reporter)
        if not self._collects_only:
            self._selected |= {nodeid for nodeid in selected if program_of(nodeid)}

    @property
    def _reporter(self) -> pytest.TerminalReporter | None:
        reporter: pytest.TerminalReporter | None
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        return reporter

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say which program is begun."""
        if self._reporter is not None:
            self._progress.begin(nodeid, self._reporter)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """Let pytest count a test, and print nothing of it where one line tells of all."""
        status = yield
        return (status[0], "", "") if self._progress.is_live else status

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store each verdict immediately."""
        self._progress.reported(report)
        file = report.nodeid.partition("::")[0]
        self._passed[file] = self._passed.get(file, True) and report.passed
        found = verdicts_of(report)
        # What a mark skips is left out on purpose.
        if found or (report.when == "setup" and report.skipped):
            self._reached.add(report.nodeid)
        framework, timed = getattr(report, FRAMEWORK, ""), getattr(report, TIMED, False)
        for record in found:
            if framework:
                self._tally.add(report.nodeid, framework, record, timed=timed)
            self._records.append(record)
            try:
                self._keep(record, upstream_issue_of(report))
            # The verdicts that follow are still worth reaching; the run ends with 3.
            except Exception as fault:  # noqa: BLE001
                self._fault = self._fault or fault

    def _keep(self, record: Record, issue: UpstreamIssue | None) -> None:
        known = self._invocation.upstream_issues.get(record.suite, ())
        new = (issue,) if issue and issue not in known else ()
        if new:
            issues = {**self._invocation.upstream_issues, record.suite: known + new}
            self._invocation = replace(self._invocation, upstream_issues=issues)
        if new or record is self._records[0]:
            # Until it ends; a run that is killed stays what this says.
            begun = replace(self._invocation, ending=Ending(cut_short=ExitCode.MISUSE))
            records.write_invocation(self._session.run.directory, begun)
        records.append(self._session.run.directory, record)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Tell pytest-benchmark's files what programs were compiled with."""
        benchmarks.describe_toolchains(machine_info, self._session.settings.targets)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write what a run leaves behind, and end with the exit code that follows from it all."""
        self._progress.end()
        ending = self._ended(exitstatus)
        with _deaf_to_ctrl_c():
            try:
                self._write(self._covered(ending, exitstatus))
            # The files and the exit code must report every exception.
            except Exception as fault:  # noqa: BLE001
                self._conclude(_failed(ending, self._fault or fault))
        ending = self._invocation.ending
        concerned = self._has_ended or ending.missing
        if ending.is_faulty or (concerned and exitstatus not in _PYTEST_OWN):
            session.exitstatus = ending.code(self._records).value

    @property
    def _has_ended(self) -> bool:
        """Whether a verdict was reached, or should have been."""
        return bool(self._records or self._invocation.ending.lost)

    def _ended(self, exitstatus: int) -> Ending:
        cut_short = None
        if self._interrupted or exitstatus == pytest.ExitCode.INTERRUPTED:
            cut_short = ExitCode.MISUSE
        elif exitstatus == pytest.ExitCode.INTERNAL_ERROR:
            cut_short = ExitCode.CRASHED
        return Ending(
            cut_short=cut_short,
            failed_elsewhere=exitstatus not in (pytest.ExitCode.OK, *_PYTEST_OWN),
            lost=tuple(sorted(self._selected - self._reached)) if self._begun else (),
        )

    def _covered(self, ending: Ending, exitstatus: int) -> Ending:
        """The ending with what of the expected coverage is there, and what is missing."""
        if ending.cut_short or exitstatus in _PYTEST_OWN or self._collects_only:
            return ending
        # A run that ended early (-x) does not tell what the tests that it left out compare with.
        complete = exitstatus == pytest.ExitCode.OK
        passed = [file for file, all_passed in self._passed.items() if all_passed and complete]
        for record in unused_records(self._config, passed, self._records):
            self._records.append(record)
            self._keep(record, None)
        checked = bool(self._selected or self._config.stash.get(FOUND, []))
        coverage, missing = self._tally.judge(self._records, checked=checked)
        return replace(ending, coverage=coverage, missing=missing)

    def _write(self, ending: Ending) -> None:
        """Write all files, and last the two that say how the run ended."""
        self._times, no_times = evidence.TIMES.load_all(self._session.directory)
        self._reruns, no_reruns = evidence.RERUNS.load_all(self._session.directory)
        self._damaged = (*no_times, *no_reruns)
        if self._records:
            run = self._session.run
            records.write(run.directory, "junit.xml", junit(self._records))
            evidence.drop_hlo(run.directory)
            self._updated = update_baselines(run, self._records)
            remove_unused_baselines(run.baselines, self._records)
            records.point_latest(run.directory)
            if not self._fault:
                records.check(run.directory, self._records)
        covered = self._tally.record() if self._records or self._collects_only else None
        self._updated += (covered,) if covered else ()
        # It asks the machine of what kind it is, which takes a while.
        benchmarks.write_file(self._session.directory, self._config, self._times)
        self._conclude(_failed(ending, self._fault) if self._fault else ending)

    def _conclude(self, ending: Ending) -> None:
        """Say how the run ended, everywhere alike; what no disk takes, the terminal says."""
        self._invocation = replace(self._invocation, ending=ending)
        if not self._has_ended:
            return
        try:
            self._page = self._rendered()
            page = summary(self._records, self._times, self._reruns, self._invocation)
            records.write(self._session.run.directory, SUMMARY, page.encode())
            records.write_invocation(self._session.run.directory, self._invocation)
        except Exception as fault:  # noqa: BLE001 -- as above.
            if not ending.is_faulty:
                self._conclude(_failed(ending, fault))

    def pytest_keyboard_interrupt(self) -> None:
        """Know of it, also where another one hides it from pytest."""
        self._interrupted = True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary that a person reads."""
        if self._has_ended:
            terminalreporter.ensure_newline()
            terminalreporter.write(self._page)
            terminalreporter.write_line(f"records: {self._session.directory}")
        elif self._invocation.ending.missing:
            for line in coverage_lines(self._invocation.ending):
                terminalreporter.write_line(line)
        elif self._session.directory.exists():
            taken = self._session.directory
            terminalreporter.write_line(f"no verdict was reached; measurements: {taken}")
        for path in self._updated:
            terminalreporter.write_line(f"baseline updated, commit it: {path}")
        for damaged in self._damaged:
            terminalreporter.write_line(f"times: {damaged}")
        ending, code = self._invocation.ending, ExitCode.CRASHED.value
        if ending.unwritten:
            terminalreporter.write_line(
                f"assay: a file could not be written (exit {code}): {ending.unwritten}; "
                "free disk space or make the folder writable, and run again"
            )
        if ending.fault:
            terminalreporter.write_line(
                f"assay: failed at the end of the run (exit {code}): {ending.fault}; "
                "this is a fault of Assay; report it"
            )

    def _rendered(self) -> str:
        """What the terminal will say, before anything is said: it may fail too."""
        colour = self._reporter is not None and self._reporter.hasmarkup
        text = StringIO()
        width = shutil.get_terminal_size((_WIDTH_OF_A_FILE, 0)).columns
        console = Console(file=text, width=width, force_terminal=colour, highlight=False)
        print_run(
            console,
            self._records,
            self._times,
            self._reruns,
            self._invocation,
            verbose=self._config.get_verbosity() > 0,
        )
        return text.getvalue()


def invocation_of(config: pytest.Config, settings: Settings) -> Invocation:
    """The run's own words: what it was pointed at, and what of its options is not the usual."""
    places = [place.partition("::")[0] for place in config.option.file_or_dir]
    options = []
    if settings.level is not Level.QUICK:
        options += ["--assay-level", settings.level.name.lower()]
    if settings.against:
        options += [f"--assay-against={settings.against}"]
    if settings.baselines != settings.root / BASELINES:
        options += [f"--assay-baselines-dir={config.getoption('--assay-baselines-dir')}"]
    return Invocation(command=("pytest", *dict.fromkeys(places), *options))


def _failed(ending: Ending, fault: Exception) -> Ending:
    """How a run ends that Assay or the disk failed."""
    if isinstance(fault, OSError):
        return replace(ending, unwritten=str(fault))
    return replace(ending, fault=in_words(fault))


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """A second Ctrl-C, or one that comes late, does not lose what the run leaves behind."""
    if threading.current_thread() is not threading.main_thread():  # Which alone hears it.
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
