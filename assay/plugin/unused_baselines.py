"""Unused baselines: stored numbers that no check measures, one failing item each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from assay.model.blame import suite_of
from assay.model.claim import Check
from assay.model.units import Unit
from assay.model.verdict import RECORD_SCHEMA, Outcome, Record
from assay.model.workload import Role
from assay.plugin.coverage import is_whole, whole_folders
from assay.plugin.items import VERDICTS, conclude
from assay.plugin.session import Session
from assay.run import BaselineUpdate
from assay.store import baselines, coverage

UNUSED = ".unused"
"""Suffix of a claim's name on the line of an entry that nothing measures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A check, and the file that it was collected from."""

    path: Path
    check: Check


FOUND: pytest.StashKey[list[Found]] = pytest.StashKey()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedBaseline:
    """An entry of a baseline file, ``path``, that no collected check covers, at any level."""

    suite: str
    target: str
    key: baselines.Key
    path: Path

    def __str__(self) -> str:
        return f"{'/'.join((self.suite, *self.key))}@{self.target}"


class UnusedBaselineItem(pytest.Item):
    """Fails for one unused entry; ``--assay-update-baselines=all`` removes it instead."""

    def __init__(self, *, unused: UnusedBaseline, **rest: Any) -> None:
        super().__init__(**rest)
        self.unused = unused

    def runtest(self) -> None:
        """Say that the number is unused, or that it will be removed."""
        session = self.config.stash[Session.KEY]
        record = _record(
            session.name, self.unused, removed=session.settings.update is BaselineUpdate.ALL
        )
        self.stash[VERDICTS] = [record]
        conclude(record)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The file that holds the entry."""
        return self.path, None, self.name


def unused_baseline_items(session: pytest.Session) -> list[UnusedBaselineItem]:
    """An item for every unused entry of the suites that were collected as a whole.

    Raises:
        BaselineError: a baseline file is damaged.
    """
    config = session.config
    root = config.stash[Session.KEY].settings.baselines
    return [
        UnusedBaselineItem.from_parent(
            session,
            name=f"baselines[{unused}]",
            nodeid=f"{unused.path.relative_to(root.parent).as_posix()}::baselines[{unused}]",
            path=unused.path,
            unused=unused,
        )
        for unused in _unused_baselines(_whole_suites(session), config.stash[Session.KEY])
    ]


def remove_unused_baselines(root: Path, records: Iterable[Record]) -> None:
    """Take out of the baseline files the entries that the records say are removed."""
    removed = [
        record
        for record in records
        if record.claim.endswith(UNUSED) and record.verdict is Outcome.PASSED
    ]
    removed.sort(key=_place)
    for place, entries in groupby(removed, key=_place):
        keys = [
            (entry.workload, entry.variant, entry.claim.removesuffix(UNUSED)) for entry in entries
        ]
        baselines.save(root, baselines.load(root, *place).without(keys))


def unused_records(
    config: pytest.Config, passed: Iterable[str], records: Sequence[Record]
) -> list[Record]:
    """A failing record for each stored number that no plain test compared with.

    ``passed`` are the files of which every test ran and passed; a part of a file tells nothing.
    """
    folders, session = whole_folders(config), config.stash[Session.KEY]
    root, settings = session.settings.baselines, session.settings
    found = []
    for suite in {suite_of(file) for file in passed if is_whole(config.rootpath / file, folders)}:
        asked = {
            (each.target, each.workload, each.variant, each.claim)
            for each in records
            if each.suite == suite
        }
        targets = {target for target, *_ in asked} | set(settings.targets)
        for target in sorted(targets):
            for key in baselines.load(root, suite, target).baselines:
                if (target, *key) not in asked:
                    path = baselines.path_of(root, suite, target)
                    unused = UnusedBaseline(suite=suite, target=target, key=key, path=path)
                    removed = settings.update is BaselineUpdate.ALL
                    found.append(_record(session.name, unused, removed=removed))
    return found


def _whole_suites(session: pytest.Session) -> dict[str, list[Check]]:
    """The checks of every suite that the run collected completely; none of a removed suite.

    One file, one item or the last failures alone do not tell what the others measure.
    """
    config = session.config
    folders = whole_folders(config)
    if session.testsfailed or not folders:
        return {}
    found: dict[str, list[Found]] = {}
    for one in config.stash.get(FOUND, []):
        for suite in {workload.suite for workload in one.check.workloads}:
            found.setdefault(suite, []).append(one)
    root = config.stash[Session.KEY].settings.baselines
    known = coverage.load(root)
    gone = known.folders if known else {}
    suites: dict[str, list[Check]] = {
        suite: []
        for suite, folder in gone.items()
        if suite not in found and is_whole(config.rootpath / folder, folders)
    }
    for suite, checks in found.items():
        if all(is_whole(one.path, folders) for one in checks):
            suites[suite] = [one.check for one in checks]
    return suites


def _unused_baselines(
    suites: Mapping[str, Sequence[Check]], session: Session
) -> Iterator[UnusedBaseline]:
    root = session.settings.baselines
    for suite, checks in suites.items():
        for target in session.settings.targets:
            path = baselines.path_of(root, suite, target)
            for key in baselines.load(root, suite, target).baselines:
                if not any(_measures(check, suite, key) for check in checks):
                    yield UnusedBaseline(suite=suite, target=target, key=key, path=path)


def _measures(check: Check, suite: str, key: baselines.Key) -> bool:
    workload_name, variant_name, claim_name = key
    return (
        check.claim.uses_baseline
        and check.claim.name == claim_name
        and check.covers(variant_name)
        and any(
            variant.name == variant_name and variant.role is not Role.NEGATIVE_CONTROL
            for workload in check.workloads
            if (workload.suite, workload.name) == (suite, workload_name)
            for variant in workload.variants
        )
    )


def _record(run: str, unused: UnusedBaseline, *, removed: bool) -> Record:
    workload, variant, claim = unused.key
    return Record(
        schema=RECORD_SCHEMA,
        run=run,
        suite=unused.suite,
        workload=workload,
        variant=variant,
        claim=claim + UNUSED,
        target=unused.target,
        toolchain={},
        verdict=Outcome.PASSED if removed else Outcome.FAILED,
        measured=0 if removed else 1,
        limit=0,
        unit=Unit.COUNT,
        baseline=None,
        reason="removed now: no check measures it"
        if removed
        else "a baseline is stored for it, but no check measures it",
        advice=""
        if removed
        else "bring the check back, or remove the number with --assay-update-baselines=all",
        upstream="",
        seconds=0.0,
    )


def _place(record: Record) -> tuple[str, str]:
    return record.suite, record.target
