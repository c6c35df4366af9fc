"""One process's share of a run: its folder and child processes; and how the CLI starts pytest."""

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from assay.claims import TimeAgainst
from assay.frameworks.installed import keeps_state
from assay.isolate import NotPortable, Observer, Processes
from assay.judge.case import at_fault
from assay.measure import BASELINE, Measurements
from assay.model.claim import Check, RerunClaim, TimingClaim, Trial, record_of
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

_ADDED = "-against"
"""Suffix of a test's name in the ids of the items that are added for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added(Check):
    """A check that Assay adds for a timing claim under ``--assay-against``."""


def checks_against(name: str, check: Check, *, against: str) -> Iterator[tuple[str, Check]]:
    """A module's check under its name, and what ``--assay-against`` adds; without it no reruns.

    Raises:
        CollectError: a check of a rerun names a negative control.
    """
    if isinstance(check.claim, RerunClaim):
        if check.negative_controls:
            raise pytest.Collector.CollectError(
                f"got {name} with negative control {check.negative_control!r}, wanted none: the "
                f"first variant done twice is the negative control of {check.claim.name!r}; leave "
                "it out"
            )
        if against:
            yield name, check
        return
    yield name, check
    if against and isinstance(check.claim, TimingClaim):
        yield (
            name + _ADDED,
            Added(claim=TimeAgainst(), workloads=check.workloads, variants=check.variants),
        )


def check_toolchains(root: Path) -> None:
    """Read every toolchain that ``--assay-against baseline`` may install, before it installs any.

    Raises:
        SettingsError: one names anything else than released versions of known packages.
    """
    for path, stored in baselines.load_all(root):
        for key, numbers in stored.baselines.items():
            for number in numbers:
                try:
                    recipe(number.toolchain)
                except UnreadableToolchain as error:
                    raise SettingsError(
                        f"--assay-against baseline: {path}, {'/'.join(key)}: {error}"
                    ) from None


def rerun_as_set(
    settings: Settings, request: RerunRequest, keep: KeepRerun, environments: Environments
) -> Rerun:
    """The rerun, within the seconds of the settings."""
    against = Against(
        baseline=request.baseline,
        most_seconds=settings.against_seconds,
        timeout_seconds=settings.compile_timeout_seconds,
        environments=environments,
    )
    return rerun(
        request.workload,
        request.variant,
        request.target,
        against,
        sensitivity=request.sought,
        keep=keep,
        negative_control=request.negative_control,
    )


_LIVE = ("gpu", "tpu")


class Session:
    """Judges trials for one pytest process; observers start when they are first needed."""

    KEY: pytest.StashKey["Session"] = pytest.StashKey()

    def __init__(self, settings: Settings, name: str) -> None:
        """Join the run of that name, or begin it.

        Raises:
            BaselineError: a baseline file is damaged.
            SettingsError: ``--assay-against baseline``, and one names what may not be installed.
        """
        baselines.load_all(settings.baselines)
        baselines.load_coverage(settings.baselines)
        if settings.against == BASELINE:
            check_toolchains(settings.baselines)
        self.settings = settings
        self.name = name
        self._observers: dict[tuple[str, str], Observer] = {}
        self._processes = Processes(cached=settings.cached)
        self._environments = Environments()

    @property
    def directory(self) -> Path:
        """The run's folder, which is not there before anything is written into it."""
        return self.settings.results / self.name

    @cached_property
    def run(self) -> Run:
        """The run that this process works for; its folder is there from now on."""
        self.directory.mkdir(parents=True, exist_ok=True)
        measurements = Measurements(
            directory=self.directory,
            baselines=self.settings.baselines,
            observe=self._observe,
            time=self._time,
            time_growth=self._time_growth,
            rerun=self._rerun,
            most_seconds=self.settings.timing_seconds,
            against=self.settings.against,
        )
        return Run(
            name=self.name,
            directory=self.directory,
            baselines=self.settings.baselines,
            update=self.settings.update,
            measurements=measurements,
        )

    def judge(self, trial: Trial) -> Record:
        """The verdict on one trial. A fault of Assay becomes an ``error`` record."""
        return self.judge_timed(trial)[0]

    def judge_timed(self, trial: Trial) -> tuple[Record, Measured | None]:
        """As ``judge``, with the times that decided the verdict, or None."""
        start = time.perf_counter()
        try:
            return self.run.judge_timed(trial)
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
            # pytest shows it below the verdict.
            traceback.print_exc()
            finding = at_fault(fault, trial.claim_name)
        seconds = time.perf_counter() - start
        return record_of(self.name, trial, finding, seconds=seconds), None

    def observe_alone(self, workload: Workload, variant: Variant, target: str) -> Evidence:
        """The evidence of a program, from a process that has the target's devices as its own."""
        now: list[Evidence] = []

        def observe() -> Evidence:
            observer = self._processes.of(target, self.settings.compile_timeout_seconds)
            now.append(observer.observe(workload, variant, target))
            return now[0]

        key = (workload.suite, workload.name, variant.name, target)
        stored = evidence.once(self.run.directory, key, observe)
        # What is stored keeps its HLO elsewhere.
        return now[0] if now else stored

    def close(self) -> None:
        """End all observers."""
        self._processes.close()
        for observer in self._observers.values():
            observer.close()
        self._observers.clear()

    def _observe(self, workload: Workload, variant: Variant, target: str) -> Evidence:
        return self._observer(workload, target).observe(workload, variant, target)

    def _time(self, pair: TimedPair, keep: Keep) -> Times:
        if pair.reference is None:
            return self._time_alone(pair, keep)
        return self._observer(pair.workload, pair.target).time(pair, keep)

    def _time_growth(
        self, workload: Workload, variant: Variant, target: str, most_seconds: float
    ) -> Evidence:
        return self._observer(workload, target).time_growth(workload, variant, target, most_seconds)

    def _time_alone(self, pair: TimedPair, keep: Keep) -> Times:
        """Times of a variant, each in a new process that is used for nothing else."""
        name = TargetName.parse(pair.target)
        if name.model in _LIVE:  # The observer holds its memory. It starts again when needed.
            self.close()
        taken: list[Times] = []
        for _ in range(PROCESSES_ALONE):
            with Observer([name], self.settings.compile_timeout_seconds) as observer:
                taken.append(observer.time(pair, lambda times: keep(pooled([*taken, times]))))
            if taken[-1].failure is not None or taken[-1].unavailable is not None:
                break
        return pooled(taken)

    def _rerun(self, request: RerunRequest, keep: KeepRerun) -> Rerun:
        if TargetName.parse(request.target).model in _LIVE:
            # Two processes are to share the accelerator that an observer holds.
            self.close()
        return rerun_as_set(self.settings, request, keep, self._environments)

    def _observer(self, workload: Workload, target: str) -> Observer:
        # A live accelerator needs a process whose jax was started for it.
        name = TargetName.parse(target)
        forks_for = workload.framework if keeps_state(workload.framework) else ""
        place = (name.model if name.model in _LIVE else "compile-only", forks_for)
        if place not in self._observers:
            names = [TargetName.parse(text) for text in self.settings.targets]
            served = [name, *(other for other in names if other.model not in _LIVE)]
            self._observers[place] = Observer(
                served,
                timeout_seconds=self.settings.compile_timeout_seconds,
                forks_for=forks_for,
                cached=self.settings.cached,
            )
        return self._observers[place]


# The command line has imported what pytest would rewrite; a strict project makes that an error.
_ALREADY_IMPORTED = (
    "-W",
    "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """How pytest ended; ``directory`` is None if it ended before it reached a verdict."""

    exit_code: int
    directory: Path | None


class _Witness:
    """Notes the run's folder once pytest is configured."""

    def __init__(self) -> None:
        self.session: Session | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep the session that the plugin made."""
        self.session = config.stash.get(Session.KEY, None)


def launch(arguments: Sequence[str]) -> Launched:
    """Run pytest with these arguments; its misuse (4) is ours (2)."""
    witness = _Witness()
    code = int(pytest.main([*_ALREADY_IMPORTED, *arguments], plugins=[witness]))
    if code == pytest.ExitCode.USAGE_ERROR:
        code = ExitCode.MISUSE.value
    session = witness.session
    directory = session.settings.results / session.name if session else None
    return Launched(
        exit_code=code, directory=directory if directory and directory.is_dir() else None
    )
