"""What a run of whole suites must reach: the expected verdicts, and a use of every baseline."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from assay.frameworks.installed import KNOWN, why_missing
from assay.model.blame import suite_of
from assay.model.claim import Trial
from assay.model.target import LIVE_MODELS
from assay.model.units import Unit
from assay.model.verdict import (
    RECORD_SCHEMA,
    Count,
    Coverage,
    Missing,
    Outcome,
    Reached,
    Record,
    Slot,
    gaps,
)
from assay.model.workload import Role
from assay.plugin.items import VerdictItem, Verdicts
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
"""pytest's options that select a part of a folder."""
UNUSED = ".unused"
"""Suffix of the claim's name on the record of an unused baseline."""


def _whole_folders(config: pytest.Config) -> tuple[Path, ...]:
    """The folders that the run tests completely; empty if an option selects a part of them."""
    if any(vars(config.option).get(name) for name in _PARTIAL):
        return ()
    named = (config.invocation_params.dir / text for text in config.args)
    return tuple(path.resolve() for path in named if path.is_dir())


def _is_whole(config: pytest.Config, path: str | Path) -> bool:
    """Whether the run tests the path, relative to its root, completely."""
    whole = (config.rootpath / path).resolve()
    return any(whole.is_relative_to(folder) for folder in _whole_folders(config))


class _Seen(NamedTuple):
    """One verdict of a check; ``why_not`` says why it does not count as judged, None if it does."""

    file: str
    slot: Slot
    why_not: str | None = None
    is_noisy: bool = False


class Tally:
    """Counts the verdicts of a run's checks, in the controller process."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._seen: list[_Seen] = []

    def expect(self, nodeid: str, trial: Trial) -> None:
        """Count the verdict of an item that is collected and not run."""
        workload = trial.workload
        slot = Slot(workload.framework, workload.suite, trial.target, trial.claim_name)
        self._seen.append(_Seen(nodeid.partition("::")[0], slot))

    def add(self, nodeid: str, verdicts: Verdicts) -> None:
        """Count the verdicts on an item's report."""
        for record in verdicts.records if verdicts.framework else ():
            slot = Slot(verdicts.framework, record.suite, record.target, record.claim)
            # A noisy machine loses no coverage: the next run may be less noisy.
            is_noisy = verdicts.timed and record.verdict is Outcome.INCONCLUSIVE
            # An error fails the run by itself.
            counts = record.verdict.judged or record.verdict is Outcome.ERROR or is_noisy
            why = "; ".join(filter(None, (record.reason, record.advice)))
            file = nodeid.partition("::")[0]
            self._seen.append(_Seen(file, slot, None if counts else why, is_noisy))

    def judge(
        self, records: Collection[Record], *, checked: bool
    ) -> tuple[str, tuple[Missing, ...]]:
        """A line on the coverage, and what is missing; ``checked``: some check was collected."""
        stored = self._updated() or baselines.load_coverage(self._settings.baselines)
        line, missing = "", tuple[Missing, ...]()
        if stored is not None and _whole_folders(self._config):
            line, missing = self._compare(stored)
        elif stored is not None and self._seen:
            line = f"a part of the suites was selected, {len(self._seen):,} of their verdicts"
        explained = {each.target for each in missing}
        for target in self._settings.targets if self._settings.named else ():
            mine = [record for record in records if record.target == target]
            judged = any(each.verdict.judged and not each.must_fail for each in mine)
            expected = mine or (checked and _whole_folders(self._config))
            if expected and not judged and target not in explained:
                missing += (nothing_judged(target, [each.reason for each in mine]),)
        return line, missing

    def save(self) -> tuple[Path, ...]:
        """Store what the run reached as expected, if the options say so. Returns the files."""
        root, updated = self._settings.baselines, self._updated()
        return () if updated is None else (baselines.save_coverage(root, updated),)

    def _updated(self) -> Coverage | None:
        """The expected coverage with what this run reached; None if it is not to be stored."""
        settings = self._settings
        if settings.update is BaselineUpdate.NOTHING or not _whole_folders(self._config):
            return None
        before = baselines.load_coverage(settings.baselines)
        reached = self._reached(before or Coverage())
        if before is None and not reached.counts:
            return None
        replaces = settings.update is BaselineUpdate.ALL
        return (before or Coverage()).recording(reached, level=settings.level, replaces=replaces)

    def _compare(self, stored: Coverage) -> tuple[str, tuple[Missing, ...]]:
        reached, surveyed = self._reached(stored), list(survey())
        names = (target.name for target, _ in surveyed)
        # Without --assay-target, verdicts are expected on all targets that are tried by default.
        tried: Collection[str] = self._settings.targets
        if not self._settings.named:
            tried = {str(name) for name in names if name.model not in LIVE_MODELS or name.topology}
        known = {
            slot: count
            for slot, count in stored.at(self._settings.level).items()
            if slot.suite in reached.suites
        }
        expected = {slot: count for slot, count in known.items() if slot.target in tried}
        if not expected and not reached.counts:
            return "", ()
        not_run = self._missing_frameworks
        due = {slot: count for slot, count in expected.items() if slot.framework not in not_run}
        unavailable = {
            str(target.name): f"{why.reason}; {why.remedy}" for target, why in surveyed if why
        }
        line = coverage_line(expected, reached, not_run, {slot.target for slot in known})
        return line, missing_of(gaps(due, reached), unavailable)

    @cached_property
    def _missing_frameworks(self) -> Mapping[str, str]:
        """The missing frameworks that no option requires, each with the reason."""
        optional = (name for name in sorted(KNOWN) if name not in self._settings.required)
        return {name: reason for name in optional if (reason := why_missing(name))}

    def _reached(self, stored: Coverage) -> Reached:
        files: dict[str, set[str]] = {}
        for each in self._seen:
            files.setdefault(each.slot.suite, set()).add(str(Path(each.file).parent))
        folders = {suite: Path(os.path.commonpath(own)).as_posix() for suite, own in files.items()}
        suites = {
            suite
            for suite, folder in {**stored.folders, **folders}.items()
            if _is_whole(self._config, folder)
        }
        not_run = KNOWN if self._config.option.collectonly else self._missing_frameworks
        reasons = {each.slot: each.why_not for each in self._seen if each.why_not is not None}
        unjudged = Counter(each.slot for each in self._seen if each.why_not is not None)
        counts = Counter(each.slot for each in self._seen if each.slot.suite in suites)
        return Reached(
            counts={
                slot: Count(n, n - (0 if slot.framework in not_run else unjudged[slot]))
                for slot, n in counts.items()
            },
            noisy=sum(each.is_noisy for each in self._seen),
            not_run=not_run,
            reasons=reasons,
            suites=suites,
            targets=self._settings.targets,
            folders={suite: folder for suite, folder in folders.items() if suite in suites},
        )


class UnusedBaselineItem(VerdictItem):
    """Fails for one unused entry; ``--assay-update-baselines=all`` removes it instead."""

    def __init__(self, *, record: Record, **rest: Any) -> None:
        super().__init__(**rest)
        self._verdict = record

    def judge(self) -> list[Record]:
        """The record that the number is unused, or is removed."""
        return [self._verdict]


def unused_baseline_items(session: pytest.Session) -> list[UnusedBaselineItem]:
    """An item for each number that no check measures, of the suites collected completely."""
    own = session.config.stash[Session.KEY]
    root, items = own.settings.baselines, []
    for suite, used in _measured_by_checks(session).items():
        for target in own.settings.targets:
            path = baselines.path_of(root, suite, target)
            for record in _unused(own, suite, target, used):
                key = (record.workload, record.variant, record.claim.removesuffix(UNUSED))
                name = f"baselines[{'/'.join((suite, *key))}@{target}]"
                nodeid = f"{path.relative_to(root.parent).as_posix()}::{name}"
                items.append(
                    UnusedBaselineItem.from_parent(
                        session, name=name, nodeid=nodeid, path=path, record=record
                    )
                )
    return items


def unused_records(
    config: pytest.Config, passed: Iterable[str], records: Sequence[Record]
) -> list[Record]:
    """A record for each number that no plain test compared with; it passes if the run removes it.

    ``passed`` are the files whose tests all passed: part of a file does not show what is unused.
    """
    own = config.stash[Session.KEY]
    unused: list[Record] = []
    for suite in {suite_of(file) for file in passed if _is_whole(config, file)}:
        mine = [each for each in records if each.suite == suite]
        for target in sorted({*own.settings.targets, *(each.target for each in mine)}):
            used = {(r.workload, r.variant, r.claim) for r in mine if r.target == target}
            unused += _unused(own, suite, target, used)
    return unused


def remove_unused_baselines(root: Path, records: Iterable[Record]) -> None:
    """Remove the entries that the records say are removed."""
    for record in records:
        if record.claim.endswith(UNUSED) and record.verdict is Outcome.PASSED:
            key = (record.workload, record.variant, record.claim.removesuffix(UNUSED))
            stored = baselines.load(root, record.suite, record.target)
            baselines.save(root, stored.without(key))


def _measured_by_checks(session: pytest.Session) -> dict[str, set[baselines.Key]]:
    """The numbers that checks measure at any level, of each suite collected completely.

    A removed suite measures none.
    """
    config, own = session.config, session.config.stash[Session.KEY]
    if session.testsfailed or not _whole_folders(config):
        return {}
    known = baselines.load_coverage(own.settings.baselines) or Coverage()
    measured: dict[str, set[baselines.Key]] = {
        suite: set() for suite, folder in known.folders.items() if _is_whole(config, folder)
    }
    incomplete = set()
    for path, check in own.checks:
        is_whole = _is_whole(config, path)
        for workload in check.workloads:
            measured.setdefault(workload.suite, set()).update(
                (workload.name, variant.name, check.claim.name)
                for variant in workload.variants
                if check.claim.uses_baseline
                and check.covers(variant.name)
                and variant.role is not Role.NEGATIVE_CONTROL
            )
            if not is_whole:
                incomplete.add(workload.suite)
    return {suite: keys for suite, keys in measured.items() if suite not in incomplete}


def _unused(
    session: Session, suite: str, target: str, used: Collection[baselines.Key]
) -> Iterator[Record]:
    """The records of the entries of a baseline file that are not used."""
    removed = session.settings.update is BaselineUpdate.ALL
    reason = "a baseline is stored for it, but no check measures it"
    root = session.settings.baselines
    file = baselines.path_of(root, suite, target).relative_to(root.parent).as_posix()
    stored = baselines.load(root, suite, target).baselines
    unused = [key for key in stored if key not in used]
    for key in unused:
        workload, variant, claim = key
        # The summary shows one advice for all numbers of a program.
        entries = ", ".join("/".join(each) for each in unused if each[:2] == key[:2])
        advice = (
            f"bring the check back, or remove {entries} from {file}; "
            "--assay-update-baselines=all removes it too, and accepts every other number of the run"
        )
        yield Record(
            schema=RECORD_SCHEMA,
            run=session.name,
            suite=suite,
            workload=workload,
            variant=variant,
            claim=claim + UNUSED,
            target=target,
            toolchain={},
            verdict=Outcome.PASSED if removed else Outcome.FAILED,
            measured=0 if removed else 1,
            limit=0,
            unit=Unit.COUNT,
            baseline=None,
            reason="removed now: no check measures it" if removed else reason,
            advice="" if removed else advice,
            upstream="",
            seconds=0.0,
            test=f"{file}:1",
        )
