"""Items: a check becomes one pytest item for each trial, and the item ends with its verdict."""

import linecache
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.claims import TimeAgainst
from assay.frameworks.installed import KNOWN
from assay.model.claim import (
    Check,
    Formula,
    RerunClaim,
    TimingClaim,
    Trial,
    record_of,
    trials_of,
)
from assay.model.defect import Upstream, UpstreamIssue
from assay.model.suggestion import suggestion, wanted_one_of
from assay.model.units import format_quantity
from assay.model.verdict import Finding, Outcome, Record
from assay.model.workload import Workload, matches_any
from assay.plugin import NODE, PAYLOAD, benchmarks
from assay.plugin.progress import printable
from assay.plugin.session import Session

_ENABLE = "leave the option out, or add --benchmark-enable"
VERDICTS: pytest.StashKey[list[Record]] = pytest.StashKey()
"""The records of an item that are not yet attached to a report."""


class ClaimFailed(Exception):
    """A verdict that fails the run; carries the record."""

    def __init__(self, record: Record) -> None:
        super().__init__(record.reason)
        self.record = record


class VerdictItem(pytest.Item):
    """An item that ends with a verdict."""

    line = 0

    @abstractmethod
    def judge(self) -> list[Record]:
        """The records of the item. The first that fails ends the test, otherwise the first."""

    def runtest(self) -> None:
        """Store the records, and end the test."""
        self.stash[VERDICTS] = records = self.judge()
        conclude(next((each for each in records if each.verdict.fails), records[0]))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The file of the item, its line from 0, and its name as the heading of a failure."""
        return self.path, self.line, self.name

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Explain a failing verdict without a traceback."""
        if isinstance(excinfo.value, ClaimFailed):
            return printable(
                f"{_explanation(excinfo.value.record)}\n  at: {self.path.name}:{self.line + 1}"
            )
        return super().repr_failure(excinfo, style)


def conclude(record: Record) -> None:
    """End the test as the verdict asks."""
    if record.verdict.fails:
        raise ClaimFailed(record)
    if record.verdict is Outcome.KNOWN_DEFECT:
        pytest.xfail(f"{record.reason} ({record.upstream})")
    if not record.verdict.judged:
        pytest.skip(f"{record.verdict.value}: {record.reason}")


class TrialItem(VerdictItem):
    """One claim put to one variant on one target.

    ``controls`` are the negative controls that this item judges because they have no item of their
    own in this run.
    """

    def __init__(self, *, trial: Trial, line: int, **rest: Any) -> None:
        super().__init__(**rest)
        self.trial, self.line = trial, line
        self.controls: tuple[Trial, ...] = ()
        # ``-k`` selects by the claim and the suite too.
        self.extra_keyword_matches |= {trial.claim_name, trial.workload.suite}
        # By this name pytest-benchmark selects under --benchmark-only and --benchmark-skip.
        is_benchmark = trial.is_timing and benchmarks.session_of(self.config) is not None
        self.fixturenames = ("benchmark",) if is_benchmark else ()

    def judge(self) -> list[Record]:
        """The verdicts on the trial and its controls."""
        session = self.config.stash[Session.KEY]
        untimed = None
        if session.group:
            untimed = ("over several processes", "run it without --assay-distributed")
        elif benchmarks.is_disabled(self.config):
            untimed = ("under --benchmark-disable", _ENABLE)
        if self.trial.is_timing and untimed:
            where, advice = untimed
            finding = Finding(
                outcome=Outcome.INCONCLUSIVE, reason=f"nothing is timed {where}", advice=advice
            )
            record, measured = record_of(session.name, self.trial, finding, seconds=0.0), None
        else:
            record, measured = session.judge_timed(self.trial)
        if self.trial.is_timing and measured is not None:
            benchmarks.report(self, self.trial, measured, session.directory)
        return [record, *(session.judge_timed(each)[0] for each in self.controls)]


def _explanation(record: Record) -> str:
    program = f"{record.workload}/{record.variant}"
    lines = [
        f"{record.verdict.value}: {record.claim} of {program} on {record.target}",
        f"  {record.reason}",
    ]
    for word, number in (("measured", record.measured), ("limit", record.limit)):
        if number is not None:
            lines.append(f"  {word}: {format_quantity(number, record.unit)} ({number:,})")
    hints = (("do", record.advice), ("see", record.upstream))
    lines += [f"  {word}: {text}" for word, text in hints if text]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What a report carries from an xdist worker to the controller.

    ``framework`` is the framework of a check's program; it is empty for reports whose verdicts are
    not counted as coverage. ``timed`` says that the verdicts are on times, ``uncontrolled`` that
    their check has no negative control. ``upstreams`` are the reports that the records name.
    """

    records: tuple[Record, ...] = ()
    framework: str = ""
    timed: bool = False
    uncontrolled: bool = False
    upstream_issue: UpstreamIssue | None = None
    upstreams: tuple[Upstream, ...] = ()


def attach_verdicts(item: pytest.Item, report: pytest.TestReport) -> None:
    """Move the item's verdicts to its report, as text that an xdist worker can send."""
    file, line, _ = item.location
    test = f"{file}:{(line or 0) + 1}"
    node = getattr(item.config, "workerinput", {}).get(NODE, "")
    records = [replace(record, test=test, node=node) for record in item.stash.get(VERDICTS, [])]
    item.stash[VERDICTS] = []
    verdicts = Verdicts(records=tuple(records))
    if isinstance(item, TrialItem):
        workload = item.trial.workload
        links = {record.upstream for record in records if record.upstream}
        upstreams = dict.fromkeys(entry.upstream for entry in workload.known_defects)
        # Reruns depend on an option and are not part of the expected coverage.
        is_rerun = isinstance(item.trial.check.claim, RerunClaim)
        verdicts = replace(
            verdicts,
            framework="" if is_rerun else workload.framework,
            timed=item.trial.is_timing,
            uncontrolled=bool(records) and not (item.trial.check.negative_controls or is_rerun),
            upstream_issue=workload.upstream_issue if records else None,
            upstreams=tuple(each for each in upstreams if each.link in links),
        )
    setattr(report, PAYLOAD, msgspec.json.encode(verdicts).decode())


def verdicts_of(report: pytest.TestReport) -> Verdicts:
    """The verdicts that ``attach_verdicts`` put on a report."""
    payload: str = getattr(report, PAYLOAD, "{}")
    return msgspec.json.decode(payload, type=Verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedCheck(Check):
    """A check that Assay adds for a timing claim under ``--assay-against``."""


def check_items(
    collector: pytest.Module | pytest.Class, name: str, check: Check
) -> list[pytest.Item]:
    """The items of a check, and under ``--assay-against`` the reruns of its timings.

    A check without the name of a test has none.

    Raises:
        CollectError: the check cannot be run, or would never run.
    """
    if not _names_test(collector, name):
        _refuse(_problems_of_name(collector, name, check), name)
        return []
    session = collector.config.stash[Session.KEY]
    _refuse(_problems_of_check(check, [each for _, each in session.checks]), name)
    session.checks.append((collector.path, check))
    line = _line_of(name, collector.path)
    items: list[pytest.Item] = []
    for item_name, each in _with_reruns(name, check, session.settings.against):
        trials = list(trials_of(each, session.settings.targets, session.settings.level))
        _refuse((problem for trial in trials for problem in _problems_of_trial(trial)), name)
        for trial in trials:
            full_name = f"{item_name}[{trial}]"
            # Given as a string, which pytest parses as it does for ``--lf``.
            nodeid = f"{collector.nodeid}::{full_name}"
            items.append(
                TrialItem.from_parent(
                    collector, name=full_name, nodeid=nodeid, trial=trial, line=line
                )
            )
    return items


def _names_test(collector: pytest.Module | pytest.Class, name: str) -> bool:
    """Whether the name is a test's: starts with ``test``, or matches ``python_functions``."""
    return name.startswith("test") or collector.funcnamefilter(name)


def _problems_of_name(
    collector: pytest.Module | pytest.Class, name: str, check: Check
) -> Iterator[str]:
    """The problem of a check that was meant to run, but whose name is not a test's.

    Not meant to run under this name: a check that no call in this file makes, a private one (a part
    of others), and one that also has a test's name.
    """
    runs = any(
        value is check and _names_test(collector, other)
        for other, value in vars(collector.obj).items()
    )
    indent = "" if isinstance(collector, pytest.Module) else r"\s+"
    made = re.compile(rf"{indent}{re.escape(name)}\s*(:[^=]+)?=\s*[\w.]+\(")
    lines = linecache.getlines(str(collector.path))
    if not (runs or name.startswith("_")) and any(map(made.match, lines)):
        yield (
            f"got Check {name}, wanted a name that starts with test_; do this: rename it, or "
            f"_{name} if it is not to run"
        )


def _line_of(name: str, file: Path) -> int:
    """The line, from 0, that gives a check its name; 0 if another file does."""
    assigned = re.compile(rf"\s*{re.escape(name)}\s*(:[^=]+)?=")
    lines = enumerate(linecache.getlines(str(file)))
    return next((number for number, line in lines if assigned.match(line)), 0)


def _with_reruns(name: str, check: Check, against: str) -> Iterator[tuple[str, Check]]:
    is_rerun = isinstance(check.claim, RerunClaim)
    if against or not is_rerun:
        yield name, check
    if against and isinstance(check.claim, TimingClaim) and not is_rerun:
        yield (
            f"{name}-against",
            AddedCheck(claim=TimeAgainst(), workloads=check.workloads, variants=check.variants),
        )


def _refuse(problems: Iterator[str], name: str) -> None:
    if problem := next(problems, ""):
        raise pytest.Collector.CollectError(f"{name}: {problem}")


def _problems_of_check(check: Check, earlier: Sequence[Check]) -> Iterator[str]:
    """What makes the check impossible to run: got …, wanted …."""
    if isinstance(check.claim, type):
        name = check.claim.__name__
        yield f"got the class {name} for a claim, wanted an object; do this: claim={name}(…)"
    for field in ("workloads", "variants"):
        if not getattr(check, field):
            yield f"got no {field}, wanted one or more"
    if isinstance(check.claim, RerunClaim) and check.negative_controls:
        yield (
            f"got negative control {check.negative_control!r}, wanted none: the first variant done "
            f"twice is the negative control of {check.claim.name!r}; leave it out"
        )
    yield from _problems_of_limits(check.claim)
    patterns: object = check.variants
    if isinstance(patterns, str):  # Each letter would be a pattern.
        yield f"got variants={patterns!r}, a string, wanted a tuple; do this: ({patterns!r},)"
    variants = {each.name for workload in check.workloads for each in workload.variants}
    for pattern in check.variants:
        if not any(matches_any(variant, (pattern,)) for variant in variants):
            yield f"got variants={pattern!r}, which match none, {_known(pattern, *check.workloads)}"
    # Of two workloads with one name, the measurements of one would judge the other.
    known = {(w.suite, w.name): w for each in (check, *earlier) for w in each.workloads}
    for workload in check.workloads:
        if known[workload.suite, workload.name] is not workload:
            yield (
                f"got two workloads named {workload.name!r} in suite {workload.suite!r}, wanted "
                "one; import the first, or rename one of them"
            )
        yield from _problems_of_workload(workload, check)


def _problems_of_limits(claim: Any) -> Iterator[str]:
    for field in fields(claim) if is_dataclass(claim) else ():
        # Under ``from __future__ import annotations`` a type is its name.
        wants_formula = getattr(field.type, "__name__", field.type) == Formula.__name__
        limit = getattr(claim, field.name)
        if wants_formula and not isinstance(limit, Formula):
            yield (
                f"got {field.name}={limit!r} for {type(claim).__name__}, wanted a Formula; do "
                f"this: {field.name}=Formula('what it says', lambda case: Quantity(…, Unit.…))"
            )


def _problems_of_workload(workload: Workload, check: Check) -> Iterator[str]:
    if workload.framework not in KNOWN:
        yield (
            f"got framework={workload.framework!r} of workload {workload.name!r}, "
            f"{wanted_one_of(workload.framework, KNOWN)}"
        )
    names = [variant.name for variant in workload.variants]
    for control in check.negative_controls if any(map(check.covers, names)) else ():
        if control not in names:
            yield f"got negative_control={control!r}, {_known(control, workload)}"


def _problems_of_trial(trial: Trial) -> Iterator[str]:
    workload, variant, claim = trial.workload, trial.variant, trial.check.claim
    # A negative control is compared with the baseline of its reference.
    baseline = (variant.reference,) if trial.must_fail and claim.uses_baseline else ()
    for needed in (*claim.needs(variant), *baseline):
        if not needed:
            yield (
                f"got {trial.claim_name} put to {workload.name}/{variant.name}, which is compared "
                f"with no variant; wanted one; do this: Variant(name={variant.name!r}, reference=…)"
            )
        elif needed not in {each.name for each in workload.variants}:
            yield f"got {trial.claim_name} compared with {needed!r}, {_known(needed, workload)}"


def _known(given: str, *workloads: Workload) -> str:
    known = "; ".join(
        f"{workload.name} has {', '.join(variant.name for variant in workload.variants)}"
        for workload in workloads
    )
    names = [variant.name for workload in workloads for variant in workload.variants]
    return f"wanted a variant: {known}{suggestion(given, names)}"


def reject_repeated(items: list[pytest.Item]) -> None:
    """Leave out added items whose verdict another item reaches.

    Raises:
        pytest.UsageError: two checks put one claim to one variant on one target.
    """
    seen: dict[tuple[str, ...], TrialItem] = {}
    trials = [item for item in items if isinstance(item, TrialItem)]
    for item in sorted(trials, key=lambda item: isinstance(item.trial.check, AddedCheck)):
        trial, other = item.trial, seen.setdefault(item.trial.key, item)
        if other is not item and not isinstance(trial.check, AddedCheck):
            raise pytest.UsageError(
                f"got two checks of {trial.claim_name!r} on {trial}: {other.nodeid} and "
                f"{item.nodeid}, wanted one; give one of the claims another name"
            )
        if other is not item:
            items.remove(item)


def assign_controls(items: Iterable[pytest.Item]) -> None:
    """Give each control whose own item was not selected to the first item that relies on it."""
    trials = [item for item in items if isinstance(item, TrialItem)]
    assigned = {item.trial.key for item in trials if item.trial.must_fail}
    for item in trials:
        item.controls = tuple(each for each in item.trial.controls if each.key not in assigned)
        assigned.update(control.key for control in item.controls)


def is_timing(item: pytest.Item) -> bool:
    """Whether the item is timed and needs the machine for itself."""
    return isinstance(item, TrialItem) and item.trial.is_timing


def order(items: list[pytest.Item], *, by_program: bool) -> None:
    """Put timings last, because a timing waits for all other workers.

    ``by_program`` groups the items of a program, so that xdist workers seldom wait for one another.
    """
    first: dict[str, int] = {}
    for item in items if by_program else ():
        first.setdefault(_program_of(item), len(first))
    items.sort(key=lambda item: (is_timing(item), first.get(_program_of(item), 0)))


def _program_of(item: pytest.Item) -> str:
    return item.trial.program if isinstance(item, TrialItem) else item.nodeid
