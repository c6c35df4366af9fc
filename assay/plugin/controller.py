"""The one process that writes: records as they are reached, then summary, baselines, exit code."""

import shutil
from collections.abc import Iterable
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from assay.model.rerun import Rerun
from assay.model.timing import Times
from assay.model.verdict import ExitCode, Record, exit_code
from assay.plugin import benchmarks
from assay.plugin.items import verdicts_of
from assay.plugin.orphans import remove_orphans
from assay.plugin.progress import Progress
from assay.plugin.session import Session
from assay.report.junit import junit
from assay.report.summary import summary
from assay.report.terminal import print_run
from assay.run import accept_numbers
from assay.store import records, reruns, results, times

_WIDTH_OF_A_FILE = 100
_PYTEST_OWN = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)


class Controller:
    """Hooks of the process that has the terminal; workers send it their verdicts on reports."""

    RUN_NAME = "assay_run"

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self._config = config
        self._session = session
        self._progress = Progress()
        self._records: list[Record] = []
        self._times: tuple[Times, ...] = ()
        self._reruns: tuple[Rerun, ...] = ()
        self._damaged: tuple[ValueError, ...] = ()
        self._interrupted = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell an xdist worker which run it works for (``node`` is xdist's WorkerController)."""
        node.workerinput[self.RUN_NAME] = self._session.name

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Iterable[str]) -> None:
        """Learn from a worker what will be observed."""
        self._progress.expect(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Learn what will be observed, in a run without workers."""
        self._progress.expect(item.nodeid for item in session.items)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say which program is begun."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            self._progress.begin(nodeid, reporter)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep each verdict as soon as it is reached."""
        for record in verdicts_of(report):
            records.append(self._session.run.directory, record)
            self._records.append(record)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Tell pytest-benchmark's files what programs were compiled with."""
        benchmarks.describe_toolchains(machine_info, self._session.settings.targets)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write what a run leaves behind, and end with Assay's exit code."""
        self._times, no_times = times.KEPT.load_all(self._session.directory)
        self._reruns, no_reruns = reruns.KEPT.load_all(self._session.directory)
        self._damaged = (*no_times, *no_reruns)
        self._interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
        benchmarks.write_file(self._session.directory, self._config, self._times)
        if not self._records:
            return
        run = self._session.run
        page = summary(self._records, self._times, self._reruns, interrupted=self._interrupted)
        results.write(run.directory, "summary.md", page.encode())
        results.write(run.directory, "junit.xml", junit(self._records))
        results.point_latest(run.directory)
        accept_numbers(run, self._records)
        remove_orphans(run.baselines, self._records)
        code = exit_code([record.verdict for record in self._records])
        if exitstatus not in _PYTEST_OWN and code is not ExitCode.KEPT:
            session.exitstatus = code.value

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary that a person reads."""
        if self._records:
            terminalreporter.ensure_newline()
            terminalreporter.write(self._rendered(colour=terminalreporter.hasmarkup))
            terminalreporter.write_line(f"records: {self._session.directory}")
        elif self._session.directory.exists():
            taken = self._session.directory
            terminalreporter.write_line(f"no verdict was reached; what was taken: {taken}")
        for damaged in self._damaged:
            terminalreporter.write_line(f"times: {damaged}")

    def _rendered(self, *, colour: bool) -> str:
        text = StringIO()
        width = shutil.get_terminal_size((_WIDTH_OF_A_FILE, 0)).columns
        console = Console(file=text, width=width, force_terminal=colour, highlight=False)
        print_run(console, self._records, self._times, self._reruns, interrupted=self._interrupted)
        return text.getvalue()
