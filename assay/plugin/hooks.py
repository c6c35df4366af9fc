"""The hooks of a run that uses Assay: items, the order of timings, records and the exit code."""

from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.model.claim import Check
from assay.model.target import TargetError
from assay.model.verdict import ExitCode
from assay.plugin import run_name, validation
from assay.plugin.controller import Controller
from assay.plugin.coverage import FOUND, Found, unused_baseline_items
from assay.plugin.fixture import Assay, explain_comparison
from assay.plugin.items import (
    ClaimFailed,
    TimedItem,
    answer_for_controls,
    attach_verdicts,
    check_items,
    drop_repeated,
    explain,
    keep_programs_together,
    put_timing_last,
    reject_repeated,
    where_required,
)
from assay.plugin.session import Session, checks_against
from assay.plugin.settings import Settings, SettingsError
from assay.store import files
from assay.store.baselines import BaselineError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveTiming:
    """The lock that keeps other items from running during a timing. ``directory`` is the run's.

    It is None if nothing is timed or there are no other workers.
    """

    directory: Path | None = None

    @classmethod
    def among(cls, items: Iterable[pytest.Item], config: pytest.Config) -> "ExclusiveTiming":
        """Every worker collects the same items, so all of them come to the same."""
        timing = any(isinstance(item, TimedItem) for item in items)
        workers = hasattr(config, "workerinput")
        return cls(directory=config.stash[Session.KEY].directory if timing and workers else None)

    def lock(self, item: pytest.Item) -> AbstractContextManager[None]:
        """Held while the item runs, from the set-up of its fixtures on."""
        if self.directory is None:
            return nullcontext()
        is_timing = isinstance(item, TimedItem)
        return files.exclusive(self.directory) if is_timing else files.shared(self.directory)


EXCLUSIVE_TIMING: pytest.StashKey[ExclusiveTiming] = pytest.StashKey()


_CONTROLLER = "assay-controller"


def pytest_configure(config: pytest.Config) -> None:
    """Check options and baseline files before anything is judged."""
    worker = hasattr(config, "workerinput")
    try:
        if not worker:
            _refuse_a_root_by_mistake(config)
        settings = Settings.parse(config.rootpath, vars(config.option))
        session = Session(settings, name=run_name(config))
    except (SettingsError, TargetError, BaselineError) as error:
        raise pytest.exit.Exception(f"assay: {error}", ExitCode.MISUSE.value) from None
    config.stash[Session.KEY] = session
    if not worker:
        config.pluginmanager.register(Controller(config, session), _CONTROLLER)


def _refuse_a_root_by_mistake(config: pytest.Config) -> None:
    """Pytest searches for its root and settings around each folder that is a separate argument.

    It does so before it knows a plugin's options, and baselines would be looked for there too.
    """
    here = config.invocation_params.dir
    for option in ("--assay-results-dir", "--assay-baselines-dir"):
        folder = here / config.getoption(option)
        elsewhere = folder.is_dir() and not folder.resolve().is_relative_to(here.resolve())
        if option in config.invocation_params.args and elsewhere and not config.option.rootdir:
            raise SettingsError(
                f"write {option}={folder}; with a space, pytest reads {folder} as its rootdir"
            )


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the observers, also after Ctrl-C."""
    if Session.KEY in config.stash:
        config.stash[Session.KEY].close()


def controller_of(config: pytest.Config) -> Controller:
    """The controller of a process that is no xdist worker."""
    found = config.pluginmanager.get_plugin(_CONTROLLER)
    assert isinstance(found, Controller)
    return found


def items_of(collector: pytest.Module | pytest.Class, name: str, check: Check) -> list[pytest.Item]:
    """The items of a check that a module or class has under this name."""
    found = collector.config.stash.setdefault(FOUND, [])
    validation.reject_namesakes(name, check, [each.check for each in found])
    found.append(Found(path=collector.path, check=check))
    session = collector.config.stash[Session.KEY]
    checks = checks_against(name, check, against=session.settings.against)
    return [item for each in checks for item in check_items(collector, *each, session)]


def prepare(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Fail early if two items would write one verdict; add an item for each unused baseline."""
    drop_repeated(items)
    reject_repeated(items)
    if hasattr(session.config, "workerinput"):
        keep_programs_together(items)
    try:
        items.extend(unused_baseline_items(session))
    except BaselineError as error:
        raise pytest.exit.Exception(f"assay: {error}", ExitCode.MISUSE.value) from None
    put_timing_last(items)
    session.config.stash[EXCLUSIVE_TIMING] = ExclusiveTiming.among(items, session.config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """After all selections: judge every negative control, also one that was deselected."""
    answer_for_controls(session.items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run no item in another worker while this worker times programs."""
    with item.config.stash.get(EXCLUSIVE_TIMING, ExclusiveTiming()).lock(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the verdicts to the report, which comes back from a worker, and word the failure."""
    report = yield
    failure = call.excinfo
    fixture = item.stash.get(Assay.KEY, None)
    if fixture and (call.when == "call" or report.failed):
        fixture.conclude(report, failure.value if failure else None)
    attach_verdicts(item, report)
    if report.failed and failure and isinstance(failure.value, ClaimFailed):
        report.longrepr = f"{explain(failure.value.record)}\n  at: {where_required(item, failure)}"
    return report


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Explain a number that is larger than its baseline."""
    return explain_comparison(op, left, right)


def targets_of(config: pytest.Config) -> tuple[str, ...]:
    """The targets of this run."""
    return config.stash[Session.KEY].settings.targets
