"""``assay fleet``: the driver's pytest collects, and the machines of a fleet run the items."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from assay.fleet.cluster import Cluster
from assay.fleet.ledger import Group, Ledger
from assay.fleet.messages import Ended, Job, Lost, Message, Place, Refused
from assay.model.claim import record_of
from assay.model.target import TargetName
from assay.model.verdict import ExitCode, Finding, Loss, Outcome
from assay.plugin import CONTROLLER, TARGET, start
from assay.plugin.controller import Controller
from assay.plugin.coverage import UnusedBaselineItem
from assay.plugin.items import VERDICTS, TrialItem, attach_verdicts, is_timing
from assay.plugin.session import Session
from assay.run import BaselineUpdate
from assay.store.files import write_whole
from assay.targets import resolve

CRASHED: Any = "???"
"""The stage of an item whose worker was lost, as in the reports of pytest-xdist."""
_LIVE: Final = ("gpu", "tpu")
_COMPILERS: Final = {
    "cpu": (),
    "cuda": (
        *("jax-cuda13-plugin<={}", "jax-cuda13-pjrt<={}"),
        *("nvidia-cuda-nvcc", "nvidia-nvvm"),
    ),
    "tpu": ("jax[tpu]=={}",),
}
"""The packages that compile for a target without its hardware (extra ``compilers``)."""


class Driver:
    """A plugin that gives items to the workers of a cluster, and takes their reports.

    The controller then writes the same files as a run on one machine.
    """

    def __init__(self, cluster: Cluster, job: Job) -> None:
        self._cluster, self._job = cluster, job
        self._items: dict[str, pytest.Item] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Start Assay."""
        start(config)
        self._own = config.stash[Session.KEY]
        controller = config.pluginmanager.get_plugin(CONTROLLER)
        assert isinstance(controller, Controller)
        self._controller = controller

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the items on the fleet, apart from those that need no measurement."""
        config = session.config
        broken = session.testsfailed and not config.option.continue_on_collection_errors
        if broken or config.option.collectonly:
            return None  # pytest's own loop ends the run.
        here = [item for item in session.items if self._is_known(item)]
        for item, following in zip(here, [*here[1:], None], strict=False):
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            _stop_if_asked(session)
        known = set(here)
        self._items = {item.nodeid: item for item in session.items if item not in known}
        self._session = session
        if self._items:
            self._cluster.start(self._whole_job())
            ledger = Ledger(report=self._report, lose=self._lose, give_up=self._give_up)
            try:
                ledger.run(groups_of(self._items.values()), self._cluster)
            finally:
                self._cluster.close()
        return True

    def _is_known(self, item: pytest.Item) -> bool:
        """Whether the verdict is known without a measurement."""
        is_recorded = isinstance(item, TrialItem) and self._own.has_recorded(item.trial)
        return is_recorded or isinstance(item, UnusedBaselineItem)

    def _whole_job(self) -> Job:
        settings, job = self._own.settings, self._job
        targets = ",".join(settings.targets)
        compilers = compilers_of(job.toolchain, settings.targets) if job.toolchain else ()
        return replace(
            job,
            run=self._own.name,
            # Another machine may have other targets.
            arguments=(*job.arguments, *(["--assay-target", targets] if targets else [])),
            selected=tuple(self._items),
            also=(*job.also, *compilers),
            keeps_programs=settings.update is not BaselineUpdate.NOTHING,
        )

    def _report(self, message: Message, place: Place | None, following: str) -> None:
        """Pass the reports of an item to pytest, and show what runs where."""
        if isinstance(message, Refused):
            raise pytest.exit.Exception(f"assay: {message.reason}", ExitCode.MISUSE.value)
        assert place is not None
        if isinstance(message, Ended):
            self._take(message, place)
        if following:
            self._controller.progress.start(following, place.name)
        _stop_if_asked(self._session)

    def _take(self, ended: Ended, place: Place) -> None:
        for name, data in ended.files.items():
            write_whole(self._own.run.directory / name, data)
        # Advice names files of the run, whose folder is another one there.
        there = os.fsencode(Path(place.folder) / self._own.name)
        here = os.fsencode(self._own.directory)
        for data in msgspec.json.decode(ended.reports.replace(there, here)):
            if isinstance(data.get("longrepr"), list):  # JSON has no tuples.
                data["longrepr"] = tuple(data["longrepr"])
            hook = self._session.config.hook
            report = hook.pytest_report_from_serializable(config=self._session.config, data=data)
            hook.pytest_runtest_logreport(report=report)

    def _lose(self, lost: Lost, again: Sequence[str]) -> None:
        """Note that items run elsewhere."""
        self._controller.note_loss(Loss(node=lost.node, why=lost.why, items=len(again)))

    def _give_up(self, nodeid: str, losses: Sequence[Lost]) -> None:
        """The item failed: it lost each of its workers."""
        places = dict.fromkeys(f"{each.node or 'a machine'}: {each.why}" for each in losses)
        reason = f"its worker was lost {len(losses)} times ({'; '.join(places)})"
        item = self._items[nodeid]
        report: Any = pytest.TestReport(
            nodeid=nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"inconclusive: {reason}",
            when=CRASHED,
        )
        if isinstance(item, TrialItem):
            finding = Finding(
                outcome=Outcome.INCONCLUSIVE,
                reason=reason,
                advice="run the item alone on such a machine, and look for what ends its process",
            )
            item.stash[VERDICTS] = [
                record_of(self._own.name, each, finding, seconds=0.0)
                for each in (item.trial, *item.controls)
            ]
            attach_verdicts(item, report)
        self._session.config.hook.pytest_runtest_logreport(report=report)


def compilers_of(toolchain: str, targets: Iterable[str]) -> tuple[str, ...]:
    """The packages that compile for the targets with that release of jax.

    None for a toolchain named by versions (with ``=``), which is complete.
    """
    kinds = {resolve(target).platform for target in targets if "=" not in toolchain}
    return tuple(each.format(toolchain) for kind in sorted(kinds) for each in _COMPILERS[kind])


def groups_of(items: Iterable[pytest.Item]) -> list[Group]:
    """The items of a workload on a target together, large groups first, timings last.

    Each program is then compiled once, with its negative controls and what it is compared with.
    Plain tests are grouped by file and target.
    """
    found: dict[tuple[bool, str, str], list[pytest.Item]] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        if isinstance(item, TrialItem):
            workload, target = item.trial.workload, item.trial.target
            what = f"{workload.suite}/{workload.name}"
        else:
            parameters = getattr(getattr(item, "callspec", None), "params", {})
            target, what = str(parameters.get(TARGET, "")), file
        found.setdefault((is_timing(item), target, what), []).append(item)
    largest_first = sorted(found.items(), key=lambda each: (each[0][0], -len(each[1])))
    return [
        Group(items=tuple(item.nodeid for item in group), device=_device(target))
        for (_, target, _), group in largest_first
    ]


def _device(target: str) -> str:
    model = TargetName.parse(target).model if target else ""
    return model if model in _LIVE else ""


def _stop_if_asked(session: pytest.Session) -> None:
    """Stop as pytest's own loop does, after ``-x`` or a plugin's request."""
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
