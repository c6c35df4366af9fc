"""``--assay-distributed``: several pytest processes judge the same items, and process 0 writes.

Every process judges by itself, with the same measurements, which cover all processes
(`assay.isolate.together`). The others write into a temporary folder and print one line; pytest's
own output comes first if they end otherwise than process 0.
"""

import io
import shutil
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from assay.isolate import Group, ProcessLost
from assay.model.blame import WrongValue
from assay.model.process import Process
from assay.model.verdict import ExitCode
from assay.plugin.session import Session
from assay.plugin.settings import Settings, SettingsError

_LONGEST_WAIT = 300.0
"""Seconds for all processes to connect; the default of ``jax.distributed.initialize``."""
_REPORTER = "terminalreporter"


class Distributed:
    """The hooks of one process; ``settings`` are the run's, with the folders of this process."""

    def __init__(self, config: pytest.Config, settings: Settings, process: Process) -> None:
        """Wait for the other processes.

        Raises:
            SettingsError: the processes cannot work together.
        """
        if getattr(config.option, "numprocesses", None) or getattr(config.option, "tx", None):
            raise SettingsError(
                "got --assay-distributed with workers of pytest-xdist, wanted one of the two; give "
                "-n0, and start pytest once for each process"
            )
        try:
            wait = min(_LONGEST_WAIT, settings.compile_timeout_seconds)
            self.group = Group(process, wait, settings.compile_timeout_seconds)
        except (WrongValue, ProcessLost) as error:
            raise SettingsError(f"--assay-distributed: {error}") from None
        self._folder = TemporaryDirectory(prefix="assay-process-", ignore_cleanup_errors=True)
        self._output = io.StringIO()
        self._kept: pytest.TerminalReporter | None = None
        self._codes: list[int] = []
        self._lost = ""
        self._config = config
        self.settings = settings
        if process.index:
            self.settings = _elsewhere(settings, Path(self._folder.name))
            config.option.xmlpath = None

    def pytest_plugin_registered(self, plugin: object, manager: pytest.PytestPluginManager) -> None:
        """Keep what pytest prints, except in process 0."""
        is_kept = self._kept or not self.group.process.index
        if isinstance(plugin, pytest.TerminalReporter) and not is_kept:
            manager.unregister(plugin)
            self._kept = pytest.TerminalReporter(self._config, self._output)
            manager.register(self._kept, _REPORTER)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Go on only if all processes have selected the same items."""
        ids = [item.nodeid for item in session.items]
        words = self._exchange("items", msgspec.json.encode(ids))
        selected = [msgspec.json.decode(word.content, type=list[str]) for word in words]
        for index, items in enumerate(selected):
            if items != selected[0]:
                pytest.exit(
                    f"assay: process {index} of {len(selected)} {_difference(items, selected[0])}; "
                    "start all processes with the same command, files and packages",
                    ExitCode.MISUSE.value,
                )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """End with the worst exit code of all processes."""
        result = yield
        try:
            words = self._exchange("exit", str(int(session.exitstatus)).encode())
            self._codes = [int(word.content) for word in words]
            session.exitstatus = max(self._codes)
        except pytest.exit.Exception as lost:
            is_own = session.exitstatus == pytest.ExitCode.INTERRUPTED
            if not is_own or self._config.stash[Session.KEY].lost_process:
                session.exitstatus = ExitCode.CRASHED.value
            self._lost = str(lost)
        return result

    def pytest_unconfigure(self) -> None:
        """Leave the group, and say how this process and the others ended."""
        process, codes = self.group.process, self._codes
        own = codes[process.index] if codes else None
        if self._lost:
            sys.stdout.write(f"{self._lost}\n")
        own_session = self._config.stash.get(Session.KEY, None)
        is_other = own is None or own != codes[0] or own > ExitCode.FAILED.value
        if process.index and is_other and not (own_session and own_session.lost_process):
            sys.stdout.write(self._output.getvalue())
        if process.index:
            end = "ends without the others" if own is None else f"exit {own}"
            sys.stdout.write(f"assay: {process}: {end}; process 0 writes the results\n")
        for index, code in enumerate(codes):
            if code != codes[0] and not process.index:
                sys.stdout.write(f"assay: process {index} of {process.count}: exit {code}\n")
        sys.stdout.flush()
        self.group.close()
        self._folder.cleanup()

    def _exchange(self, step: str, content: bytes) -> list[Any]:
        try:
            return self.group.exchange(step, content)
        except ProcessLost as lost:
            raise pytest.exit.Exception(f"assay: {lost}", ExitCode.CRASHED.value) from None


def _elsewhere(settings: Settings, folder: Path) -> Settings:
    """The settings of a process that writes nothing into the folders of the run."""
    baselines = folder / settings.baselines.name
    if settings.baselines.is_dir():
        shutil.copytree(settings.baselines, baselines)
    results = folder / settings.results.name
    resume = settings.resume and results / settings.resume.name
    if resume and settings.resume and settings.resume.is_dir():
        shutil.copytree(settings.resume, resume)
    return replace(settings, results=results, baselines=baselines, resume=resume, history="")


def _difference(items: list[str], wanted: list[str]) -> str:
    """How the selection of a process differs from that of process 0."""
    more, fewer = set(items) - set(wanted), set(wanted) - set(items)
    if more:
        return f"selected {len(more)} items that process 0 did not, such as {min(more)}"
    if fewer:
        return f"did not select {len(fewer)} items that process 0 did, such as {min(fewer)}"
    return "selected the same items as process 0 in another order"
