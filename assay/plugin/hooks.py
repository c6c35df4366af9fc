"""The hooks of a run that uses Assay, in its workers too: items, their order, and their reports."""

from collections.abc import Generator
from contextlib import nullcontext

import pytest

from assay.model.history import HistoryError
from assay.model.target import TargetError
from assay.model.verdict import ExitCode
from assay.plugin import CONTROLLER, run_name
from assay.plugin.controller import Controller
from assay.plugin.coverage import unused_baseline_items
from assay.plugin.distributed import Distributed
from assay.plugin.fixture import Assay, Baseline
from assay.plugin.history import check_database
from assay.plugin.items import (
    assign_controls,
    attach_verdicts,
    check_items,
    is_timing,
    order,
    reject_repeated,
)
from assay.plugin.resume import earlier_run
from assay.plugin.session import Session
from assay.plugin.settings import Settings, SettingsError
from assay.store import files
from assay.store.baselines import BaselineError

__all__ = ["check_items", "prepare", "targets_of"]


def pytest_configure(config: pytest.Config) -> None:
    """Check options and baseline files before anything is judged."""
    worker = hasattr(config, "workerinput")
    try:
        if not worker:
            _reject_rootdir_by_mistake(config)
        settings = Settings.parse(
            config.rootpath, config.invocation_params.dir, vars(config.option)
        )
        together = None
        if settings.process and not config.option.collectonly:
            together = Distributed(config, settings, settings.process)
            settings = together.settings
            config.pluginmanager.register(together)
        earlier = earlier_run(settings.resume, in_worker=worker) if settings.resume else None
        name = earlier.directory.name if earlier else run_name(config)
        group = together.group if together else None
        session = Session(settings, name, earlier.records if earlier else (), group)
        controller = None if worker else Controller(config, session, earlier)
        if settings.history and not worker:
            check_database(settings.history)
    except (SettingsError, TargetError, BaselineError, HistoryError) as error:
        raise pytest.exit.Exception(f"assay: {error}", ExitCode.MISUSE.value) from None
    config.stash[Session.KEY] = session
    if controller:
        config.pluginmanager.register(controller, CONTROLLER)


def _reject_rootdir_by_mistake(config: pytest.Config) -> None:
    """Refuse ``--option PATH``: pytest searches its rootdir from each argument that is a path.

    It does so before it knows the options of plugins, and baselines would be read from there.
    """
    here = config.invocation_params.dir
    for option in ("--assay-results-dir", "--assay-baselines-dir", "--assay-history"):
        folder = here / config.getoption(option)
        elsewhere = folder.exists() and not folder.resolve().is_relative_to(here.resolve())
        if option in config.invocation_params.args and elsewhere and not config.option.rootdir:
            raise SettingsError(
                f"write {option}={folder}; with a space, pytest reads {folder} as its rootdir"
            )


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the observers, also after Ctrl-C."""
    if Session.KEY in config.stash:
        config.stash[Session.KEY].close()


def targets_of(config: pytest.Config) -> tuple[str, ...]:
    """The targets of this run."""
    return config.stash[Session.KEY].settings.targets


def prepare(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Reject repeated verdicts, add an item for each unused baseline, and order the items."""
    config, worker = session.config, hasattr(session.config, "workerinput")
    reject_repeated(items)
    items += unused_baseline_items(session)
    order(items, by_program=worker)
    # All workers collect the same items, so all of them use the lock or none.
    config.stash[Session.KEY].excludes = worker and any(map(is_timing, items))


def pytest_collection_finish(session: pytest.Session) -> None:
    """After all selections: an item also judges its negative controls that were deselected."""
    assign_controls(session.items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Hold the timing lock: exclusively for a timing, shared with others for another item."""
    session = item.config.stash[Session.KEY]
    lock = files.exclusive if is_timing(item) else files.shared
    with lock(session.directory) if session.excludes else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the item's verdicts to its report, which a worker sends to the controller."""
    report = yield
    fixture = item.stash.get(Assay.KEY, None)
    if fixture and (call.when == "call" or report.failed):
        fixture.conclude(report, call.excinfo.value if call.excinfo else None)
    attach_verdicts(item, report)
    return report


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Explain ``measured <= assay.baseline(name)`` that failed."""
    if op != "<=" or not isinstance(right, Baseline) or right.record is None:
        return None
    return [f"{left} <= {right!r}", *filter(None, (right.record.reason, right.record.advice))]
