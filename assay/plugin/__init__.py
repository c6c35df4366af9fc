"""The pytest door: options, one item a workload × arm × target × claim, records, exit code."""

from collections.abc import Generator
from typing import Any

import pytest

from assay.model.claim import Check
from assay.model.target import TargetError
from assay.model.verdict import ExitCode
from assay.plugin import against, misuse
from assay.plugin.alone import ALONE, Alone
from assay.plugin.controller import Controller
from assay.plugin.fixture import assay
from assay.plugin.items import (
    ClaimFailed,
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
from assay.plugin.orphans import FOUND, Found, orphan_items
from assay.plugin.session import Session
from assay.plugin.settings import BASELINES, Settings, SettingsError
from assay.store.baselines import BaselineError

__all__ = ["assay"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add Assay's options; their names are *fixed*."""
    group = parser.getgroup("assay", "XLA regression checks")
    group.addoption(
        "--target",
        action="append",
        default=[],
        help="judge on this target (repeatable, commas); default: every available one",
    )
    group.addoption("--level", default="quick", help="quick, full, device or soak")
    group.addoption(
        "--update-baselines",
        default="nothing",
        metavar="{new,all}",
        help="accept measured numbers that have no baseline (new), or all of them (all)",
    )
    group.addoption("--results-dir", default="results", help="where runs are written")
    group.addoption("--baselines-dir", default=BASELINES, help="where accepted numbers are kept")
    group.addoption(
        "--timing-seconds",
        default="30",
        metavar="SECONDS",
        help="time two programs in turns, or a loop over lengths, for at most this long",
    )
    group.addoption(
        "--against",
        metavar="VERSION",
        help="time programs beside the same on this version of jax (0.10.2, or versions: "
        "jax==0.10.2,jaxlib==0.10.2), or on the toolchain of accepted numbers (baseline)",
    )
    group.addoption(
        "--against-seconds",
        metavar="SECONDS",
        help="compare two toolchains on one program for at most this long; default: 300",
    )
    group.addoption(
        "--require-framework",
        action="append",
        default=[],
        metavar="NAME",
        help="fail where this framework is not installed (torch_xla), instead of leaving it out",
    )
    group.addoption(
        "--compile-timeout",
        default="900",
        metavar="SECONDS",
        help="give up on one program after this long",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check options and baseline files before anything is collected."""
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    try:
        if not worker:
            _refuse_a_root_by_mistake(config)
        settings = Settings.parse(config.rootpath, vars(config.option))
        session = Session(settings, name=worker.get(Controller.RUN_NAME, ""))
    except (SettingsError, TargetError, BaselineError) as error:
        raise pytest.exit.Exception(f"assay: {error}", ExitCode.MISUSE.value) from None
    config.stash[Session.KEY] = session
    if not worker:
        config.pluginmanager.register(Controller(config, session), "assay-controller")


def _refuse_a_root_by_mistake(config: pytest.Config) -> None:
    """Pytest looks for its root, with its settings, around each folder that is a word of its own.

    It does so before it knows a plugin's options, and baselines would be looked for there too.
    """
    here = config.invocation_params.dir
    for option in ("--results-dir", "--baselines-dir"):
        folder = here / config.getoption(option)
        elsewhere = folder.is_dir() and not folder.resolve().is_relative_to(here.resolve())
        if option in config.invocation_params.args and elsewhere and not config.option.rootdir:
            raise SettingsError(
                f"got {option} and {folder} as two words, of which pytest takes the second for a "
                f"place of its own settings; wanted one; do this: {option}={folder}"
            )


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the observers, also after Ctrl-C."""
    if Session.KEY in config.stash:
        config.stash[Session.KEY].close()


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """Turn a module's ``test_… = Check(…)`` into its items."""
    if not isinstance(obj, Check) or not name.startswith("test"):
        return None
    found = collector.config.stash.setdefault(FOUND, [])
    misuse.reject_namesakes(name, obj, [each.check for each in found])
    found.append(Found(path=collector.path, check=obj))
    session = collector.config.stash[Session.KEY]
    checks = against.checks(name, obj, against=session.settings.against)
    return [item for each in checks for item in check_items(collector, *each, session)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Fail early where two items would write the same verdict; add one item an orphan."""
    drop_repeated(items)
    reject_repeated(items)
    if hasattr(session.config, "workerinput"):
        keep_programs_together(items)
    try:
        items.extend(orphan_items(session))
    except BaselineError as error:
        raise pytest.exit.Exception(f"assay: {error}", ExitCode.MISUSE.value) from None
    put_timing_last(items)
    session.config.stash[ALONE] = Alone.among(items, session.config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """After all selections: let every negative control be judged, whatever was left out."""
    answer_for_controls(session.items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let no item of any kind be at work in another worker while programs are timed in this one."""
    with item.config.stash[ALONE].beside(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the verdicts to the report, which comes back from a worker, and word the failure."""
    report = yield
    attach_verdicts(item, report)
    failure = call.excinfo
    if report.failed and failure and isinstance(failure.value, ClaimFailed):
        report.longrepr = f"{explain(failure.value.record)}\n  at: {where_required(item, failure)}"
    return report
