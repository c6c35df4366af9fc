"""What a run of whole suites must reach: verdicts that are missing, baselines that are unused."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from assay.frameworks.installed import KNOWN, why_missing
from assay.model.blame import suite_of
from assay.model.claim import Check, Trial
from assay.model.invocation import Count, Coverage, Missing, Reached, Slot, gaps
from assay.model.target import LIVE_MODELS
from assay.model.units import Unit
from assay.model.verdict import RECORD_SCHEMA, Outcome, Record
from assay.model.workload import Role
from assay.plugin.items import VERDICTS, conclude
from assay.plugin.session import Session
from assay.plugin.settings import Settings
from assay.report.labels import coverage_line, missing_of, nothing_judged
from assay.run import BaselineUpdate
from assay.store import baselines
from assay.targets import survey

_PARTIAL = (
    *("lf", "stepwise", "keyword", "markexpr", "deselect", "ignore", "ignore_glob"),
    *("benchmark_only", "benchmark_skip"),
)
"""pytest's options under which not everything in a folder is selected."""


def whole_folders(config: pytest.Config) -> tuple[Path, ...]:
    """The folders that the run was pointed at; empty where an option selects a part of them."""
    if any(vars(config.option).get(name) for name in _PARTIAL):
        return ()
    named = (config.invocation_params.dir / text for text in config.args)
    return tuple(path for path in named if path.is_dir())


def is_whole(path: Path, folders: Iterable[Path]) -> bool:
    """Whether all that lies at the path was collected."""
    return any(path.resolve().is_relative_to(folder.resolve()) for folder in folders)


def slot_of(trial: Trial) -> Slot:
    """Where a trial's verdict is counted."""
    workload = trial.workload
    return Slot(workload.framework, workload.suite, trial.target, trial.claim_name)


class Tally:
    """Counts the verdicts of a run's checks, in the controller process."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._counts: Counter[Slot] = Counter()
        self._unjudged: Counter[Slot] = Counter()
        self._noisy = 0
        self._reasons: dict[Slot, str] = {}
        self._files: dict[str, set[str]] = {}

    def expect(self, nodeid: str, slot: Slot) -> None:
        """Count an item that is collected and not run."""
        self._counts[slot] += 1
        self._files.setdefault(slot.suite, set()).add(nodeid.partition("::")[0])

    def add(self, nodeid: str, framework: str, record: Record, *, timed: bool) -> None:
        """Count a verdict of a check's item; ``timed`` says whether it is on times."""
        slot = Slot(framework, record.suite, record.target, record.claim)
        self.expect(nodeid, slot)
        # An error fails the run by itself.
        if record.verdict.judged or record.verdict is Outcome.ERROR:
            return
        # The machine's noise is not lost coverage, and the next run may be less noisy.
        if timed and record.verdict is Outcome.INCONCLUSIVE:
            self._noisy += 1
            return
        self._unjudged[slot] += 1
        self._reasons[slot] = "; ".join(filter(None, (record.reason, record.advice)))

    def judge(
        self, records: Collection[Record], *, checked: bool
    ) -> tuple[str, tuple[Missing, ...]]:
        """The line on coverage and the gaps; ``checked`` says whether any check was collected."""
        stored = self._updated() or baselines.load_coverage(self._settings.baselines)
        folders = whole_folders(self._config)
        line = ""
        missing: tuple[Missing, ...] = ()
        if stored is not None and self._counts and not folders:
            line = f"a part of the suites was selected, {self._counts.total():,} of their verdicts"
        if stored is not None and folders:
            line, missing = self._held_to(stored, self._reached(stored))
        told = {each.target for each in missing}
        return line, (
            *missing,
            *self._named_in_vain(records, told, every=checked and bool(folders)),
        )

    def record(self) -> Path | None:
        """Write what the run reached as expected, if it was asked to; the file that it wrote."""
        after = self._updated()
        return None if after is None else baselines.save_coverage(self._settings.baselines, after)

    def _updated(self) -> Coverage | None:
        """What is expected from now on, None where nothing is to be stored."""
        settings = self._settings
        if settings.update is BaselineUpdate.NOTHING or not whole_folders(self._config):
            return None
        before = baselines.load_coverage(settings.baselines)
        reached = self._reached(before or Coverage())
        if before is None and not reached.counts:
            return None
        return (before or Coverage()).recording(
            reached, level=settings.level, replaces=settings.update is BaselineUpdate.ALL
        )

    def _held_to(self, stored: Coverage, reached: Reached) -> tuple[str, tuple[Missing, ...]]:
        tried = self._tried()
        expected = {
            slot: count
            for slot, count in stored.at(self._settings.level).items()
            if slot.suite in reached.suites and slot.target in tried
        }
        if not expected and not reached.counts:
            return "", ()
        not_run = self._missing_frameworks()
        due = {slot: count for slot, count in expected.items() if slot.framework not in not_run}
        unavailable = {
            str(target.name): f"{here.reason}; {here.remedy}"
            for target, here in survey()
            if not here.usable
        }
        return coverage_line(expected, reached, not_run), missing_of(
            gaps(due, reached), unavailable
        )

    def _tried(self) -> Collection[str]:
        """The targets on which coverage is due: those named, else all that are tried by default."""
        if self._settings.named:
            return self._settings.targets
        known = (target.name for target, _ in survey())
        return {str(name) for name in known if name.model not in LIVE_MODELS or name.topology}

    def _missing_frameworks(self) -> Mapping[str, str]:
        """Why each framework that is missing, and may be, is missing."""
        optional = (name for name in sorted(KNOWN) if name not in self._settings.required)
        return {name: reason for name in optional if (reason := why_missing(name))}

    def _named_in_vain(
        self, records: Collection[Record], told: Collection[str], *, every: bool
    ) -> Iterable[Missing]:
        """Targets that were named and judged nothing; ``every`` if all of them must be tried."""
        for target in self._settings.targets if self._settings.named else ():
            mine = [record for record in records if record.target == target]
            judged = any(each.verdict.judged and not each.must_fail for each in mine)
            if not judged and target not in told and (mine or every):
                yield nothing_judged(target, [each.reason for each in mine])

    def _reached(self, stored: Coverage) -> Reached:
        root, folders = self._config.rootpath, whole_folders(self._config)
        lie_in: Mapping[str, str] = {
            suite: Path(
                os.path.commonpath([Path(file).parent.as_posix() or "." for file in files])
            ).as_posix()
            for suite, files in self._files.items()
        }
        suites = {
            suite
            for suite, folder in {**stored.folders, **lie_in}.items()
            if is_whole(root / folder, folders)
        }
        not_run = KNOWN if self._config.option.collectonly else self._missing_frameworks()
        return Reached(
            counts={
                slot: Count(n, n - (0 if slot.framework in not_run else self._unjudged[slot]))
                for slot, n in self._counts.items()
                if slot.suite in suites
            },
            noisy=self._noisy,
            not_run=not_run,
            reasons=self._reasons,
            suites=suites,
            targets=self._settings.targets,
            folders={suite: folder for suite, folder in lie_in.items() if suite in suites},
        )


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
    known = baselines.load_coverage(root)
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
