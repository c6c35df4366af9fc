"""The controller process shows progress, and writes records, summary, baselines and exit code."""

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

from assay.frameworks.installed import host
from assay.model.blame import in_words
from assay.model.evidence import Evidence
from assay.model.history import HistoryError, Trend
from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.model.verdict import Ending, ExitCode, Invocation, Loss, Record
from assay.model.workload import Level
from assay.plugin import BASELINES, benchmarks, program_of
from assay.plugin.coverage import Tally, remove_unused_baselines, unused_records
from assay.plugin.history import add_run
from assay.plugin.items import TrialItem, Verdicts, verdicts_of
from assay.plugin.progress import Progress, printable, reporter_of
from assay.plugin.resume import Earlier, changed, claim, continued, digests
from assay.plugin.session import Session
from assay.plugin.settings import Settings
from assay.report.formats import junit
from assay.report.labels import coverage_lines, nothing_compared, plural
from assay.report.run_page import run_page
from assay.report.summary import summary
from assay.report.terminal import print_run
from assay.run import update_baselines
from assay.store import evidence, records
from assay.store.files import commit_of, write_whole
from assay.store.shipped import suites_of_wheel
from assay.targets import models_of

_COLUMNS_OF_A_FILE = 100
SUMMARY = "summary.md"
REPORT = "report.html"
_PYTEST_OWN = (
    pytest.ExitCode.INTERRUPTED,
    pytest.ExitCode.INTERNAL_ERROR,
    pytest.ExitCode.USAGE_ERROR,
)


class Controller:
    """The hooks of the process that has the terminal. Workers send it verdicts on reports."""

    def __init__(
        self, config: pytest.Config, session: Session, earlier: Earlier | None = None
    ) -> None:
        """Start a run, or continue an earlier one.

        Raises:
            SettingsError: the earlier run had other options.
        """
        self._config = config
        self._session = session
        self.progress = Progress(config)
        self._tally = Tally(config, session.settings)
        self._invocation = invocation_of(config, session.settings)
        self._records: list[Record] = []
        self._known: set[tuple[str, ...]] = set()
        self._earlier = earlier
        self._lock = earlier and earlier.lock
        self._is_noted = False
        if earlier:
            self._invocation = continued(earlier, self._invocation)
            self._records += earlier.records
            self._known.update(record.key for record in earlier.records)
        self._measured: tuple[tuple[Times, ...], tuple[Rerun, ...]] = ((), ())
        self._programs: tuple[Evidence, ...] = ()
        self._trends: tuple[Trend, ...] = ()
        self._damaged: tuple[ValueError, ...] = ()
        self._updated: tuple[Path, ...] = ()
        self._page = ""
        self._fault: Exception | None = None
        self._interrupted = False
        self._runs_items = False
        self._compares = False
        self._selected: set[str] = set()
        self._reached: set[str] = set()
        self._all_passed: dict[str, bool] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Iterable[str]) -> None:
        """Note which items a worker collected."""
        self._select(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which items were collected, in a run without workers."""
        self._select(item.nodeid for item in session.items)
        for item in session.items if self._config.option.collectonly else ():
            if isinstance(item, TrialItem):
                self._tally.expect(item.nodeid, item.trial)

    def note_loss(self, loss: Loss) -> None:
        """Note a worker that a fleet lost."""
        self._invocation = replace(self._invocation, losses=(*self._invocation.losses, loss))

    def _select(self, ids: Iterable[str]) -> None:
        selected = set(ids)
        self.progress.expect(selected)
        if not self._config.option.collectonly:
            self._selected.update(filter(program_of, selected))
            self._note_sources(selected)

    def _note_sources(self, ids: Iterable[str]) -> None:
        before, now = self._invocation.sources, digests(self._config.rootpath, ids)
        if self._earlier and (edited := changed(before, now)):
            pytest.exit(
                f"assay: got --assay-resume={self._earlier.directory}, and the files of "
                f"{', '.join(edited)} changed since; start a new run",
                ExitCode.MISUSE.value,
            )
        self._invocation = replace(self._invocation, sources=before | now)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Note whether the selected items are run: after a collection error they are not."""
        goes_on = self._config.option.continue_on_collection_errors
        self._runs_items = goes_on or not session.testsfailed

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Show which program starts."""
        self.progress.start(nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """Print no dots where the progress takes their place."""
        status = yield
        return (status[0], "", "") if self.progress.replaces_dots else status

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store each verdict immediately."""
        file = report.nodeid.partition("::")[0]
        self._all_passed[file] = self._all_passed.get(file, True) and report.passed
        verdicts = verdicts_of(report)
        self.progress.count(report, verdicts.records)
        # A skip mark leaves an item out on purpose.
        if verdicts.records or (report.when == "setup" and report.skipped):
            self._reached.add(report.nodeid)
        self._tally.add(report.nodeid, verdicts)
        self._compares |= verdicts.timed and not verdicts.framework
        if verdicts.uncontrolled:
            names = (*self._invocation.uncontrolled, report.nodeid.partition("[")[0])
            names = tuple(dict.fromkeys(names))
            self._invocation = replace(self._invocation, uncontrolled=names)
        for record in verdicts.records:
            try:
                self._store(record, verdicts)
            # The run continues, and ends with exit code 3.
            except Exception as fault:  # noqa: BLE001
                self._fault = self._fault or fault

    def _store(self, record: Record, verdicts: Verdicts) -> None:
        """Add a verdict to the run, unless the interrupted run reached it."""
        if record.key in self._known:
            return
        self._records.append(record)
        self._known.add(record.key)
        self._lock = self._lock or claim(self._session.run.directory)
        self._drop_errors()
        if not self._is_noted and (commit := commit_of(self._config.rootpath)):
            environment = {"commit": commit} | self._invocation.environment
            self._invocation = replace(self._invocation, environment=environment)
        before, issue = self._invocation, verdicts.upstream_issue
        known = before.upstream_issues.get(record.suite, ())
        new = (issue,) if issue and issue not in known else ()
        issues = {record.suite: known + new} if new else {}
        self._invocation = replace(
            before,
            upstream_issues=before.upstream_issues | issues,
            upstreams=before.upstreams | {each.link: each for each in verdicts.upstreams},
        )
        if self._invocation != before or not self._is_noted:
            self._is_noted = True
            self._note_unfinished()
        records.append(self._session.run.directory, record)

    def _note_unfinished(self) -> None:
        """Before the records change, write the ending that holds if the run is killed."""
        unfinished = replace(self._invocation, ending=Ending(cut_short=ExitCode.MISUSE))
        records.write_invocation(self._session.run.directory, unfinished)

    def _drop_errors(self) -> None:
        """Remove the errors of the interrupted run, once this one goes on."""
        if self._earlier and self._earlier.errors and not self._is_noted:
            self._note_unfinished()
            records.drop_errors(self._session.directory)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Add the toolchains to pytest-benchmark's files."""
        benchmarks.describe_toolchains(machine_info, self._session.settings.targets)

    def pytest_keyboard_interrupt(self) -> None:
        """Note Ctrl-C. Another plugin may change the exit status."""
        self._interrupted = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the run's files, and set the exit code."""
        self.progress.end()
        cut_short = ExitCode.CRASHED if exitstatus == pytest.ExitCode.INTERNAL_ERROR else None
        if self._interrupted or exitstatus == pytest.ExitCode.INTERRUPTED:
            cut_short = ExitCode.MISUSE
        if self._session.lost_process:
            cut_short = ExitCode.CRASHED
        ending = Ending(
            cut_short=cut_short,
            failed_elsewhere=exitstatus not in (pytest.ExitCode.OK, *_PYTEST_OWN),
            lost=tuple(sorted(self._selected - self._reached)) if self._runs_items else (),
            lost_process=self._session.lost_process,
        )
        is_whole = not cut_short and exitstatus not in _PYTEST_OWN
        judges = is_whole and not self._config.option.collectonly
        with _without_sigint():
            try:
                if judges:
                    ending = self._with_coverage(ending, exitstatus)
                self._write_results()
                if judges and not self._has_compared:
                    against = self._session.settings.against
                    why = nothing_compared(against, is_selected=self._compares)
                    ending = replace(ending, missing=(*ending.missing, why))
            # The files and the exit code must report every exception.
            except Exception as fault:  # noqa: BLE001
                self._fault = self._fault or fault
            self._write_ending(ending)
        ending = self._invocation.ending
        concerned = self._has_verdicts or ending.missing
        if ending.is_faulty or (concerned and exitstatus not in _PYTEST_OWN):
            session.exitstatus = ending.code(self._records).value

    @property
    def _has_verdicts(self) -> bool:
        """Whether a verdict was reached or lost."""
        return bool(self._records or self._invocation.ending.lost)

    @property
    def _has_compared(self) -> bool:
        """Whether ``--assay-against`` was timed, here or before a resumption; true without it."""
        timed = (each.pairs for each in self._measured[1] if not each.negative_control)
        return any(timed) or not self._session.settings.against

    def _with_coverage(self, ending: Ending, exitstatus: int) -> Ending:
        # A run that stopped early (-x) does not show what the remaining tests compare with.
        if exitstatus == pytest.ExitCode.OK:
            passed = [file for file, all_passed in self._all_passed.items() if all_passed]
            for record in unused_records(self._config, passed, self._records):
                self._store(record, Verdicts())
        checked = bool(self._selected or self._session.checks)
        coverage, missing = self._tally.judge(self._records, checked=checked)
        return replace(ending, coverage=coverage, missing=missing)

    def _write_results(self) -> None:
        """Write all files but those that say how the run ended."""
        directory = self._session.directory
        times, no_times = evidence.TIMES.load_all(directory)
        reruns, no_reruns = evidence.RERUNS.load_all(directory)
        self._programs, unread = evidence.load_programs(directory)
        self._measured, self._damaged = (times, reruns), (*no_times, *no_reruns, *unread)
        self._drop_errors()
        if self._records:
            run = self._session.run
            write_whole(directory / "junit.xml", junit(self._records))
            self._updated = update_baselines(run, self._records)
            evidence.drop_large(directory)
            remove_unused_baselines(run.baselines, self._records)
            records.point_latest(directory)
            if not self._fault:
                records.check(directory, self._records)
        if self._records or self._config.option.collectonly:
            self._updated += self._tally.save()
        # After the other files, because pytest-benchmark takes a while to describe the machine.
        benchmarks.write_file(directory, self._config, times)
        history = self._session.settings.history
        if history and self._records and not self._fault:
            self._trends = add_run(history, directory, self._records)

    def _write_ending(self, ending: Ending) -> None:
        """Write how the run ended. If that fails, the terminal and the exit code report it."""
        if isinstance(self._fault, OSError):
            advice = "free disk space or make the folder writable, and run again"
            ending = replace(ending, unwritten=f"{self._fault}; {advice}")
        elif isinstance(self._fault, HistoryError):
            ending = replace(ending, unwritten=str(self._fault))
        elif self._fault:
            ending = replace(ending, fault=in_words(self._fault))
        else:
            ending = replace(ending, verdicts=len(self._records))
        self._invocation = replace(self._invocation, ending=ending)
        if not self._has_verdicts:
            return
        try:
            self._page = self._rendered()
            directory, known = self._session.run.directory, (self._records, *self._measured)
            text = summary(*known, self._invocation, self._trends)
            write_whole(directory / SUMMARY, text.encode())
            records.write_invocation(directory, self._invocation)
            devices = models_of({record.target for record in self._records})
            page = run_page(*known, self._invocation, self._programs, self._trends, devices)
            write_whole(directory / REPORT, page.encode())
        except Exception as fault:  # noqa: BLE001 -- as above.
            if not self._fault:
                self._fault = fault
                self._write_ending(ending)

    def _rendered(self) -> str:
        """The terminal's summary. It is rendered early, so that the files report its failure."""
        reporter, text = reporter_of(self._config), StringIO()
        console = Console(
            file=text,
            width=shutil.get_terminal_size((_COLUMNS_OF_A_FILE, 0)).columns,
            force_terminal=reporter is not None and reporter.hasmarkup,
            highlight=False,
        )
        verbose = self._config.get_verbosity() > 0
        known = self._records, *self._measured, self._invocation, self._trends
        print_run(console, *known, verbose=verbose)
        return text.getvalue()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary."""
        ending, directory = self._invocation.ending, self._session.directory
        lines: list[str] = []
        if self._has_verdicts:
            terminalreporter.write_sep("=", "Assay")
            terminalreporter.write(printable(self._page))
            lines += [f"records: {directory}", *self._resumption()]
        elif ending.missing:
            lines += coverage_lines(ending)
        elif directory.exists():
            lines.append(f"no verdict was reached; measurements: {directory}")
        lines += [f"baseline updated, commit it: {path}" for path in self._updated]
        lines += [f"measurements: {damaged}" for damaged in self._damaged]
        exits = f"(exit {ExitCode.CRASHED.value})"
        if ending.unwritten:
            lines.append(f"assay: not everything could be written {exits}: {ending.unwritten}")
        if ending.fault:
            lines.append(
                f"assay: failed at the end of the run {exits}: {ending.fault}; this is a fault of "
                "Assay; report it"
            )
        for line in lines:
            terminalreporter.write_line(printable(line))

    def _resumption(self) -> Iterator[str]:
        """What the run took from an earlier one; how to continue this one if it was interrupted."""
        earlier = self._earlier
        if earlier:
            yield f"resumed: kept {plural(len(earlier.records), 'verdict')} of the interrupted run"
        if earlier and earlier.errors:
            yield f"resumed: {plural(earlier.errors, 'error')} of Assay judged nothing, tried again"
        if earlier and earlier.torn:
            yield "resumed: the last line of records.jsonl was incomplete, and was removed"
        ending = self._invocation.ending
        if ending.cut_short is ExitCode.MISUSE or ending.lost_process:
            yield f"continue: repeat the command with --assay-resume={self._session.directory}"


def invocation_of(config: pytest.Config, settings: Settings) -> Invocation:
    """How the run started: its paths, and the level, ``against`` and baselines unless default."""
    places = [place.partition("::")[0] for place in config.option.file_or_dir]
    shipped = suites_of_wheel(config.rootpath, places)
    start = ("pytest", *dict.fromkeys(places)) if shipped is None else ("assay", "run", *shipped)
    options = [] if shipped is None else ["--"]
    if settings.level is not Level.QUICK:
        options += ["--assay-level", settings.level.name.lower()]
    if settings.against:
        options += [f"--assay-against={settings.against}"]
    # As given: with --assay-distributed, settings.baselines may be a copy.
    folder = config.getoption("--assay-baselines-dir")
    if settings.root / folder != settings.root / BASELINES:
        options += [f"--assay-baselines-dir={folder}"]
    environment = host()
    if settings.process:
        environment |= {"processes": str(settings.process.count)}
    return Invocation(command=(*start, *options), environment=environment)


@contextmanager
def _without_sigint() -> Iterator[None]:
    """Ignore Ctrl-C, so that the run's files are written whole."""
    # Python delivers signals to the main thread, and only that thread may set handlers.
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)
