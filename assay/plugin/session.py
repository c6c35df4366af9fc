"""One pytest process's share of a run: its folder and child processes; and a run for the CLI."""

import time
import traceback
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import pytest

from assay.frameworks.installed import keeps_state
from assay.isolate import (
    Group,
    GroupObserver,
    NotPortable,
    Observer,
    Processes,
    ProcessLost,
)
from assay.judge.case import at_fault
from assay.measure import BASELINE, Measurements
from assay.model.claim import Check, Trial, record_of
from assay.model.evidence import Evidence
from assay.model.rerun import KeepRerun, Rerun, RerunRequest
from assay.model.target import TargetName
from assay.model.timing import PROCESSES_ALONE, Keep, TimedPair, Times, pooled
from assay.model.verdict import ExitCode, Finding, Outcome, Record
from assay.model.workload import Variant, Workload
from assay.plugin.settings import Settings, SettingsError
from assay.run import Measured, Run
from assay.store import baselines, evidence
from assay.store.evidence import MeasurementCacheError
from assay.toolchains.environments import Environments
from assay.toolchains.recipe import UnreadableToolchain, recipe
from assay.toolchains.side_by_side import Against, rerun

_ACCELERATORS = ("gpu", "tpu")
"""Models of live targets whose memory one process holds."""


class Session:
    """Judges trials for one pytest process. Observers start when they are first needed.

    ``checks`` are those that the process collected, each with its file. ``excludes`` says whether
    the workers of the run exclude one another during a timing. ``lost_process`` says which process
    of the group is lost, and why.
    """

    KEY: pytest.StashKey["Session"] = pytest.StashKey()

    def __init__(
        self,
        settings: Settings,
        name: str,
        recorded: Sequence[Record] = (),
        group: Group | None = None,
    ) -> None:
        """Join the run of that name, start it, or continue it after the recorded verdicts.

        With ``group``, every program runs together with the other processes.

        Raises:
            BaselineError: a baseline file is damaged.
            SettingsError: ``--assay-against baseline`` would install something other than released
                versions of known packages.
        """
        _check_baselines(settings)
        self.settings = settings
        self.name = name
        self.checks: list[tuple[Path, Check]] = []
        self.excludes = False
        self.group = group
        self.lost_process = ""
        self._recorded = {record.key: record for record in recorded}
        self._observers: dict[tuple[str, str], Observer] = {}
        self._processes = Processes(cached=settings.cached, memory_limit=settings.memory_limit)
        self._environments = Environments()

    @property
    def directory(self) -> Path:
        """The run's folder. It may not exist yet."""
        return self.settings.results / self.name

    @cached_property
    def run(self) -> Run:
        """The run that this process works for. Creates its folder."""
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = self.settings
        measurements = Measurements(
            directory=self.directory,
            baselines=settings.baselines,
            observe=self._observe,
            time=self._time,
            rerun=self._rerun,
            most_seconds=settings.timing_seconds,
            against=settings.against,
        )
        return Run(
            name=self.name,
            directory=self.directory,
            baselines=settings.baselines,
            update=settings.update,
            measurements=measurements,
        )

    def has_recorded(self, trial: Trial) -> bool:
        """Whether the interrupted run reached the verdict on the trial."""
        return trial.key in self._recorded

    def judge_timed(self, trial: Trial) -> tuple[Record, Measured | None]:
        """The verdict on one trial, and the times that decided it, or None.

        A verdict of the interrupted run is not reached again. A fault of Assay becomes an
        ``error`` record, a workload that cannot be pickled a ``failed`` one.

        Raises:
            pytest.exit.Exception: another process of the group is lost.
        """
        if recorded := self._recorded.get(trial.key):
            return recorded, None
        start = time.perf_counter()
        try:
            return self.run.judge_timed(trial)
        except ProcessLost as lost:
            self.lost_process = str(lost)
            # pytest writes no summary with exit code 3; it is set after the summary.
            raise pytest.exit.Exception(f"assay: {lost}") from None
        except NotPortable as misuse:
            finding = Finding(
                outcome=Outcome.FAILED,
                reason=f"nothing to measure: {misuse}",
                advice="remove locks, open files and arrays from the workload",
            )
        except MeasurementCacheError as damaged:
            finding = Finding(outcome=Outcome.ERROR, reason=str(damaged), advice="delete the file")
        # Any other exception is a fault of Assay. The run continues and ends with exit code 3.
        except Exception as fault:  # noqa: BLE001
            traceback.print_exc()  # pytest shows it below the verdict.
            finding = at_fault(fault, trial.claim_name)
        seconds = time.perf_counter() - start
        return record_of(self.name, trial, finding, seconds=seconds), None

    def observe_alone(self, workload: Workload, variant: Variant, target: str) -> Evidence:
        """The evidence of a program, from a process whose only devices are the target's."""
        fresh: list[Evidence] = []

        def observe() -> Evidence:
            observer = self._processes.of(target, self.settings.compile_timeout_seconds)
            fresh.append(observer.observe(workload, variant, target))
            return fresh[0]

        stored = evidence.once(self.run.directory, workload.key(variant.name, target), observe)
        return fresh[0] if fresh else stored  # Stored evidence is without HLO.

    def close(self) -> None:
        """End all observers."""
        self._processes.close()
        while self._observers:
            self._observers.popitem()[1].close()

    def _observe(
        self, workload: Workload, variant: Variant, target: str, growth_seconds: float | None
    ) -> Evidence:
        return self._observer(workload, target).observe(workload, variant, target, growth_seconds)

    def _time(self, pair: TimedPair, keep: Keep) -> Times:
        if pair.reference is not None:
            return self._observer(pair.workload, pair.target).time(pair, keep)
        # A variant that is timed alone is timed in several new processes.
        self._free(pair.target)
        taken: list[Times] = []
        for _ in range(PROCESSES_ALONE):
            name = TargetName.parse(pair.target)
            seconds, limit = self.settings.compile_timeout_seconds, self.settings.memory_limit
            with Observer([name], seconds, memory_limit=limit) as observer:
                taken.append(observer.time(pair, lambda times: keep(pooled([*taken, times]))))
            if taken[-1].failure is not None or taken[-1].unavailable is not None:
                break
        return pooled(taken)

    def _rerun(self, request: RerunRequest, keep: KeepRerun) -> Rerun:
        self._free(request.target)
        against = Against(
            baseline=request.baseline,
            most_seconds=self.settings.against_seconds,
            timeout_seconds=self.settings.compile_timeout_seconds,
            memory_limit=self.settings.memory_limit,
            environments=self._environments,
        )
        return rerun(
            request.workload,
            request.variant,
            request.target,
            against,
            sensitivity=request.sensitivity,
            keep=keep,
            negative_control=request.negative_control,
        )

    def _free(self, target: str) -> None:
        """End the observers, which hold the memory of a live accelerator, for other processes."""
        if TargetName.parse(target).model in _ACCELERATORS:
            self.close()

    def _observer(self, workload: Workload, target: str) -> Observer:
        """One observer for each live accelerator, for which jax is started, and one for the rest.

        A framework that keeps state has observers of its own, which fork for each program.
        """
        name = TargetName.parse(target)
        forks_for = workload.framework if keeps_state(workload.framework) else ""
        key = (name.model if name.model in _ACCELERATORS else "compile-only", forks_for)
        if key not in self._observers:
            names = [TargetName.parse(text) for text in self.settings.targets]
            targets = [name, *(other for other in names if other.model not in _ACCELERATORS)]
            seconds = self.settings.compile_timeout_seconds
            if self.group:
                # A program that one process compiles and another one loads may hang a compiler.
                self._observers[key] = GroupObserver(
                    targets,
                    seconds,
                    group=self.group,
                    cached=False,
                    memory_limit=self.settings.memory_limit,
                )
            else:
                self._observers[key] = Observer(
                    targets,
                    seconds,
                    forks_for=forks_for,
                    cached=self.settings.cached,
                    memory_limit=self.settings.memory_limit,
                )
        return self._observers[key]


def _check_baselines(settings: Settings) -> None:
    """Read every stored file, and every toolchain that ``--assay-against baseline`` may install."""
    baselines.load_coverage(settings.baselines)
    for path, stored in baselines.load_all(settings.baselines):
        for key, numbers in stored.baselines.items() if settings.against == BASELINE else ():
            try:
                for number in numbers:
                    recipe(number.toolchain)
            except UnreadableToolchain as error:
                place = f"{path}, {'/'.join(key)}"
                raise SettingsError(f"--assay-against baseline: {place}: {error}") from None


# The command line has imported modules that pytest would rewrite. Strict projects raise warnings.
ALREADY_IMPORTED = (
    "-W",
    "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning",
)


_OWN_CODES = {
    pytest.ExitCode.USAGE_ERROR.value: ExitCode.MISUSE.value,
    pytest.ExitCode.NO_TESTS_COLLECTED.value: ExitCode.FAILED.value,
}
"""Assay's exit codes for those that only pytest has."""


class _RunFolder:
    """A pytest plugin that adds another one under its name, and notes the folder of the run.

    A run without a test says so: the command line does not let it pass.
    """

    path: Path | None = None

    def __init__(self, plugin: tuple[str, object] | None) -> None:
        self._plugin = plugin

    def pytest_addoption(self, pluginmanager: pytest.PytestPluginManager) -> None:
        """Add the plugin, which gets all later hooks."""
        if self._plugin:
            name, plugin = self._plugin
            pluginmanager.register(plugin, name)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Note the folder of the session that the plugin made."""
        session = config.stash.get(Session.KEY, None)
        self.path = session.directory if session else None

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        """Say that nothing was tested, and what to do."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            terminalreporter.write_line(
                f"assay: got no test (exit {ExitCode.FAILED.value}), wanted one or more; name a "
                "file that has a test_…, or select others"
            )


class FailedImports:
    """A pytest plugin that notes whether a test file could not be imported."""

    any = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note it by pytest's words, which a worker sends too."""
        self.any |= report.failed and "ImportError while importing" in report.longreprtext


def launch(
    arguments: Sequence[str], plugin: tuple[str, object] | None = None
) -> tuple[int, Path | None]:
    """Run pytest, with a plugin under its name if one is given.

    Returns Assay's exit code, and the run's folder if it exists: it may hold no verdict yet.
    """
    folder = _RunFolder(plugin)
    code = int(pytest.main([*ALREADY_IMPORTED, *arguments], plugins=[folder]))
    return _OWN_CODES.get(code, code), folder.path if folder.path and folder.path.is_dir() else None
