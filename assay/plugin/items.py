"""Items: one trial each. Their verdicts are attached to pytest's reports."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.model.claim import Check, RerunClaim, Trial, record_of
from assay.model.units import format_quantity
from assay.model.verdict import Finding, Outcome, Record
from assay.model.workload import UpstreamIssue, Workload
from assay.plugin import PAYLOAD, benchmarks, validation
from assay.plugin.session import Added, Session

FRAMEWORK = "assay_framework"
"""On the report of a check's item: its program's framework. A rerun is asked for by an option."""
TIMED = "assay_timed"
"""On the same report: whether its verdict is on times."""
UPSTREAM_ISSUE = "assay_upstream_issue"
"""On the report of a check's item that reached verdicts: its workload's issue, if it has one."""

VERDICTS: pytest.StashKey[list[Record]] = pytest.StashKey()


class ClaimFailed(Exception):
    """A verdict that fails the run; carries the record."""

    def __init__(self, record: Record) -> None:
        super().__init__(record.reason)
        self.record = record


class TrialItem(pytest.Item):
    """One claim put to one variant on one target."""

    def __init__(self, *, trial: Trial, **rest: Any) -> None:
        super().__init__(**rest)
        self.trial = trial
        self.controls: tuple[Trial, ...] = ()
        # So that ``-k`` finds a verdict by the words that the report prints of it.
        self.extra_keyword_matches |= {trial.claim_name, trial.workload.suite}

    def runtest(self) -> None:
        """Judge the trial, and end as pytest ends: passed, skipped, expected to fail, failed."""
        session = self.config.stash[Session.KEY]
        _end(self, session.judge(self.trial))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the check stands."""
        return self.path, None, self.name


class TimedItem(pytest.Function):
    """One claim on times, put to one variant on one target.

    Its samples are pytest-benchmark's too.
    """

    def __init__(self, *, trial: Trial, parent: pytest.Collector, **rest: Any) -> None:
        self.trial = trial
        self.controls: tuple[Trial, ...] = ()
        self._replay = benchmarks.Replay()

        def timed() -> None:
            self._judge()

        function = timed
        if benchmarks.available(parent.config):
            beside = " against" if isinstance(trial.check.claim, RerunClaim) else ""
            group = f"{trial.workload.suite}/{trial.workload.name}@{trial.target}{beside}"
            function = pytest.mark.benchmark(timer=self._replay, group=group)(function)
            function = pytest.mark.usefixtures(benchmarks.FIXTURE)(function)
        super().__init__(parent=parent, callobj=function, **rest)
        self.extra_keyword_matches |= {trial.claim_name, trial.workload.suite}

    @property
    def id(self) -> Any:
        """Pytest's own form of the id, parsed as it does when ``--lf`` reads it back."""
        return type(super().id).parse(self.nodeid)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the check stands."""
        return self.path, None, self.name

    def _judge(self) -> None:
        session = self.config.stash[Session.KEY]
        # Any fixture may be among them, hence Any.
        fixture: Any = self.funcargs.get(benchmarks.FIXTURE)
        if fixture is not None:
            benchmarks.excuse(fixture)
        if benchmarks.disabled(self.config):
            record, measured = _not_timed(session.name, self.trial), None
        else:
            record, measured = session.judge_timed(self.trial)
        if fixture is not None:
            benchmarks.feed(fixture, self._replay, measured, session.directory)
        _end(self, record)


def _end(item: TrialItem | TimedItem, record: Record) -> None:
    """Record the verdict, and the verdicts on controls that have no item in this run.

    A verdict that fails the run ends the test; otherwise the item's own does.
    """
    session = item.config.stash[Session.KEY]
    controls = [session.judge(control) for control in item.controls]
    item.stash.setdefault(VERDICTS, []).extend((record, *controls))
    failing = (each for each in (record, *controls) if each.verdict.fails)
    conclude(next(failing, record))


def _not_timed(run: str, trial: Trial) -> Record:
    finding = Finding(
        outcome=Outcome.INCONCLUSIVE,
        reason="nothing is timed under --benchmark-disable",
        advice="leave the option out, or add --benchmark-enable",
    )
    return record_of(run, trial, finding, seconds=0.0)


def conclude(record: Record) -> None:
    """End the test as the verdict asks."""
    if record.verdict.fails:
        raise ClaimFailed(record)
    if record.verdict is Outcome.KNOWN_DEFECT:
        pytest.xfail(f"{record.reason} ({record.upstream})")
    if not record.verdict.judged:
        pytest.skip(f"{record.verdict.value}: {record.reason}")


def where_required(item: pytest.Item, failure: pytest.ExceptionInfo[BaseException]) -> str:
    """The line of the test itself that asked for the verdict."""
    lines = [entry.lineno + 1 for entry in failure.traceback if entry.path == item.path]
    return f"{item.path.name}:{lines[-1]}" if lines else item.path.name


def explain(record: Record) -> str:
    """A failing verdict, with what was measured, what was wanted, and what to do."""
    program = f"{record.workload}/{record.variant}"
    lines = [
        f"{record.verdict.value}: {record.claim} of {program} on {record.target}",
        f"  {record.reason}",
    ]
    for word, number in (("measured", record.measured), ("limit", record.limit)):
        if number is not None:
            lines.append(f"  {word}: {format_quantity(number, record.unit)} ({number:,})")
    lines += [
        f"  {word}: {text}"
        for word, text in (("do", record.advice), ("see", record.upstream))
        if text
    ]
    return "\n".join(lines)


def check_items(
    collector: pytest.Collector, name: str, check: Check, session: Session
) -> list[pytest.Item]:
    """The items of one check at the session's targets and level.

    Raises:
        CollectError: no run can make sense of the check.
    """
    validation.reject_check(name, check)
    found = [
        trial
        for workload in check.workloads
        for target in session.settings.targets
        for trial in _trials(check, workload, target, session)
    ]
    for trial in found:
        validation.reject_trial(name, trial)
    return [_item(collector, f"{name}[{trial}]", trial) for trial in found]


def _item(collector: pytest.Collector, name: str, trial: Trial) -> pytest.Item:
    if trial.is_timing:
        return TimedItem.from_parent(collector, name=name, trial=trial)
    # Spelt out, so that pytest parses the bracket as it does when ``--lf`` reads it back.
    nodeid = f"{collector.nodeid}::{name}"
    return TrialItem.from_parent(collector, name=name, nodeid=nodeid, trial=trial)


def _trials(check: Check, workload: Workload, target: str, session: Session) -> Iterator[Trial]:
    variants = tuple(
        variant
        for variant in workload.variants
        if check.covers(variant.name) and workload.tries(variant, target, session.settings.level)
    )
    if not variants:
        return
    # A program that is rerun is its own negative control.
    names = (variants[0].name,) if isinstance(check.claim, RerunClaim) else check.negative_controls
    trial = partial(Trial, check=check, workload=workload, target=target)
    controls = tuple(
        trial(variant=workload.variant(name), must_fail=True, variants=variants) for name in names
    )
    yield from (trial(variant=variant, controls=controls) for variant in variants)
    yield from controls


def reject_repeated(items: list[pytest.Item]) -> None:
    """Fail where two items would write the same verdict.

    Raises:
        pytest.UsageError: two checks put one claim to one variant on one target.
    """
    seen: dict[tuple[str, str, str], str] = {}
    for item in items:
        if isinstance(item, TrialItem | TimedItem):
            trial, key = item.trial, item.trial.key
            if key in seen:
                raise pytest.UsageError(
                    f"got two checks of {trial.claim_name!r} on {trial}: {seen[key]} and "
                    f"{item.nodeid}, wanted one; give one of the claims another name"
                )
            seen[key] = item.nodeid


def drop_repeated(items: list[pytest.Item]) -> None:
    """Leave out what was added where a check asks for the same verdict, or it was added before."""
    timed = [item for item in items if isinstance(item, TimedItem)]
    asked = {item.trial.key for item in timed if not _is_added(item)}
    dropped = set()
    for item in filter(_is_added, timed):
        key = item.trial.key
        if key in asked:
            dropped.add(item)
        asked.add(key)
    items[:] = [item for item in items if item not in dropped]


def _is_added(item: TimedItem) -> bool:
    return isinstance(item.trial.check, Added)


def answer_for_controls(items: Iterable[pytest.Item]) -> None:
    """Give each control whose own item was not selected to the first item that relies on it."""
    trials = [item for item in items if isinstance(item, TrialItem | TimedItem)]
    answered = {item.trial.key for item in trials if item.trial.must_fail}
    for item in trials:
        item.controls = tuple(each for each in item.trial.controls if each.key not in answered)
        answered.update(control.key for control in item.controls)


def keep_programs_together(items: list[pytest.Item]) -> None:
    """Order items by program, so that workers that share them out seldom wait for each other."""
    first: dict[str, int] = {}
    for number, item in enumerate(items):
        first.setdefault(_program(item), number)
    items.sort(key=lambda item: first[_program(item)])


def _program(item: pytest.Item) -> str:
    return item.trial.program if isinstance(item, TrialItem | TimedItem) else item.nodeid


def put_timing_last(items: list[pytest.Item]) -> None:
    """Order timings last, because a timing waits for all other workers."""
    items.sort(key=lambda item: isinstance(item, TimedItem))


def attach_verdicts(item: pytest.Item, report: pytest.TestReport) -> None:
    """Move the item's verdicts onto its report, as text that an xdist worker can send."""
    records = item.stash.get(VERDICTS, [])
    item.stash[VERDICTS] = []
    setattr(report, PAYLOAD, [msgspec.json.encode(record).decode() for record in records])
    if not isinstance(item, TrialItem | TimedItem):
        return
    workload = item.trial.workload
    if records and workload.upstream_issue:
        setattr(report, UPSTREAM_ISSUE, msgspec.json.encode(workload.upstream_issue).decode())
    if not isinstance(item.trial.check.claim, RerunClaim):
        setattr(report, FRAMEWORK, workload.framework)
        setattr(report, TIMED, isinstance(item, TimedItem))


def upstream_issue_of(report: pytest.TestReport) -> UpstreamIssue | None:
    """The issue that ``attach_verdicts`` put on a report."""
    text: str = getattr(report, UPSTREAM_ISSUE, "")
    return msgspec.json.decode(text, type=UpstreamIssue) if text else None


def verdicts_of(report: pytest.TestReport) -> list[Record]:
    """The verdicts that ``attach_verdicts`` put on a report."""
    payload: list[str] = getattr(report, PAYLOAD, [])
    return [msgspec.json.decode(text, type=Record) for text in payload]
