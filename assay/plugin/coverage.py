"""What a run must cover: the suites that it holds as a whole, and what of them is missing."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pytest

from assay.frameworks.installed import KNOWN, why_missing
from assay.model.claim import Trial
from assay.model.invocation import Count, Coverage, Missing, Reached, Slot, gaps
from assay.model.target import LIVE_MODELS
from assay.model.verdict import Outcome, Record
from assay.plugin.settings import Settings
from assay.report.suite_status import coverage_line, missing_of, nothing_judged
from assay.run import BaselineUpdate
from assay.store import coverage as store
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
        stored = self._updated() or store.load(self._settings.baselines)
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
        return None if after is None else store.save(self._settings.baselines, after)

    def _updated(self) -> Coverage | None:
        """What is expected from now on, None where nothing is to be stored."""
        settings = self._settings
        if settings.update is BaselineUpdate.NOTHING or not whole_folders(self._config):
            return None
        before = store.load(settings.baselines)
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
