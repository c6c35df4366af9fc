"""Verdicts and their records; how a run ended, its exit code, and the coverage that it reached."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Literal, NamedTuple

from assay.model.defect import Upstream, UpstreamIssue
from assay.model.evidence import Failure
from assay.model.units import Unit
from assay.model.workload import Level

RECORD_SCHEMA = 2


class Outcome(Enum):
    """The verdicts; *fixed*: other tools read these words."""

    PASSED = "passed"
    FAILED = "failed"
    KNOWN_DEFECT = "known-defect"
    FIXED_UPSTREAM = "fixed-upstream"
    IMPROVED = "improved"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"

    @property
    def fails(self) -> bool:
        """Whether this verdict fails the run."""
        return self in (Outcome.FAILED, Outcome.FIXED_UPSTREAM, Outcome.ERROR)

    @property
    def judged(self) -> bool:
        """Whether the claim was tested."""
        return self not in (Outcome.UNSUPPORTED, Outcome.INCONCLUSIVE, Outcome.ERROR)

    @property
    def holds(self) -> bool:
        """Whether the claim was tested and holds."""
        return self in (Outcome.PASSED, Outcome.IMPROVED, Outcome.FIXED_UPSTREAM)


class ExitCode(Enum):
    """The exit code of every command; *fixed*."""

    PASSED = 0
    FAILED = 1
    MISUSE = 2
    CRASHED = 3


Relation = Literal["=", "≤", "≥"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The verdict on one case, with numbers in the claim's unit, the reason and the next step.

    ``relation`` is how the measured number must compare with the limit. ``failure`` is the
    program's failure, if it decided the verdict.
    """

    outcome: Outcome
    measured: int | float | None = None
    limit: int | float | None = None
    relation: Relation = "≤"
    reason: str = ""
    advice: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineNumber:
    """A stored number, and the ``machine`` that it is valid on, "" for all.

    For a time ``machine`` is a machine's fingerprint, for other numbers a kind of live accelerator.
    """

    value: int | float
    toolchain: dict[str, str]
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of ``records.jsonl``; field names are *fixed*.

    ``cached``: the program, or one that it is compared with, was compiled before. ``test`` is
    the test's file in pytest's root folder, and its line, as ``tests/test_step.py:12``. ``retries``
    says how earlier attempts at its measurements ended, and is empty if there were none. ``node``
    is the machine of a fleet that reached the verdict. ``relation`` is how ``measured`` must
    compare with ``limit``; None if an older Assay wrote the record. ``remedy`` is the variant
    without the known defect.
    """

    schema: int
    run: str
    suite: str
    workload: str
    variant: str
    claim: str
    target: str
    toolchain: dict[str, str]
    verdict: Outcome
    measured: int | float | None
    limit: int | float | None
    unit: Unit
    baseline: BaselineNumber | None
    reason: str
    advice: str
    upstream: str
    seconds: float
    cached: bool = False
    test: str = ""
    retries: tuple[str, ...] = ()
    node: str = ""
    relation: Relation | None = None
    remedy: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Its identity in a run: suite, workload, variant, claim and target."""
        return (self.suite, self.workload, self.variant, self.claim, self.target)

    @property
    def must_fail(self) -> bool:
        """Whether this is a negative control's record: it passes if the claim failed."""
        return self.claim.endswith(MUST_FAIL)


MUST_FAIL = ".negative-control"
"""Suffix of a claim's name in the record of its negative control."""
ASSERTIONS = "assertions"
"""The claim's name in the record of a plain test, one for each program that it compiled."""


def judged_claims(records: Iterable[Record]) -> bool:
    """Whether any record judges a claim; a negative control judges only a detector."""
    return any(record.verdict.judged and not record.must_fail for record in records)


def exit_code(records: Iterable[Record]) -> ExitCode:
    """An error outranks a failed claim; a run that judged no claim fails. *Fixed*."""
    seen = tuple(records)
    if any(record.verdict is Outcome.ERROR for record in seen):
        return ExitCode.CRASHED
    if any(record.verdict.fails for record in seen):
        return ExitCode.FAILED
    return ExitCode.PASSED if judged_claims(seen) else ExitCode.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Expected verdicts that a run did not reach: the reason, and what to do.

    ``target`` is empty if they concern all targets.
    """

    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended, in addition to its records.

    ``cut_short`` is ``MISUSE`` if the run was interrupted (pytest's own code for Ctrl-C) or killed,
    ``CRASHED`` after an internal error of pytest or the loss of a process, else None.
    ``failed_elsewhere`` is true if pytest's exit status is a failure. ``lost`` are the ids of
    selected items without a verdict. ``lost_process`` is the process of a group whose loss ended
    the run. ``unwritten`` is why not everything could be written; ``fault`` is any other failure of
    Assay at the end.
    ``coverage`` is one line on the expected verdicts, ``missing`` those not reached. ``verdicts``
    counts the run's records; None if the run did not end, if its files are incomplete, or if an
    older Assay wrote them.
    """

    cut_short: ExitCode | None = None
    failed_elsewhere: bool = False
    lost: tuple[str, ...] = ()
    lost_process: str = ""
    unwritten: str = ""
    fault: str = ""
    coverage: str = ""
    missing: tuple[Missing, ...] = ()
    verdicts: int | None = None

    def matches(self, records: Sequence[Record]) -> bool:
        """Whether these are as many records as the run reached, as far as that is known."""
        return self.verdicts in (None, len(records))

    @property
    def is_faulty(self) -> bool:
        """Whether the run's files are incomplete."""
        return bool(self.unwritten or self.fault)

    def code(self, records: Iterable[Record]) -> ExitCode:
        """The exit code of a run with these records: the one rule for all commands and reports."""
        if self.cut_short is not None:
            return self.cut_short
        if self.is_faulty:
            return ExitCode.CRASHED
        seen = tuple(records)
        code = exit_code(seen)
        incomplete = self.failed_elsewhere or self.lost or self.missing or not self.matches(seen)
        return ExitCode.FAILED if code is ExitCode.PASSED and incomplete else code


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A worker of a fleet that was lost: its machine, why, and how many items ran elsewhere."""

    node: str
    why: str
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The command that repeats a run, its ending, and its suites' upstream issues.

    ``uncontrolled`` are the checks that have no negative control. ``upstreams`` are the reports of
    the known defects by link. ``environment`` is where and when the run started, by name.
    ``sources`` are the folders of its tests, each with a digest of the Python files. ``losses`` are
    the workers that a fleet lost.
    """

    command: tuple[str, ...] = ("pytest", "suites")
    ending: Ending = field(default_factory=Ending)
    upstream_issues: dict[str, tuple[UpstreamIssue, ...]] = field(default_factory=dict)
    uncontrolled: tuple[str, ...] = ()
    upstreams: dict[str, Upstream] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    losses: tuple[Loss, ...] = ()


USUAL: Final = Invocation()
"""The invocation to assume if only the records of a run are known."""


class Slot(NamedTuple):
    """Verdicts that are counted together; the claim of a negative control has its suffix."""

    framework: str
    suite: str
    target: str
    claim: str


class Count(NamedTuple):
    """The verdicts of a slot, and how many of them judge something."""

    verdicts: int
    judged: int


_NONE: Final = Count(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The expected verdicts of each level, and the folder of each suite's tests."""

    counts: Mapping[Level, Mapping[Slot, Count]] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)

    def at(self, level: Level) -> Mapping[Slot, Count]:
        """The expected verdicts at a level: of each suite, those of its highest level up to it."""
        found: dict[Slot, Count] = {}
        for stored in sorted(each for each in self.counts if each <= level):
            suites = {slot.suite for slot in self.counts[stored]}
            lower = {slot: count for slot, count in found.items() if slot.suite not in suites}
            found = {**lower, **self.counts[stored]}
        return found

    def recording(self, reached: "Reached", *, level: Level, replaces: bool) -> "Coverage":
        """The same with what a run reached; ``replaces`` also lowers and removes counts."""
        known = self.counts.get(level, {})
        counts = {
            slot: count
            for slot, count in known.items()
            if not (replaces and slot.suite in reached.suites and slot.target in reached.targets)
        }
        for slot, found in reached.counts.items():
            verdicts, judged = found
            if slot in known and slot.framework in reached.not_run:
                judged = max(verdicts - (known[slot].verdicts - known[slot].judged), 0)
            before = counts.get(slot, _NONE)
            counts[slot] = Count(max(verdicts, before.verdicts), max(judged, before.judged))
        levels = {each: slots for each, slots in {**self.counts, level: counts}.items() if slots}
        suites = {slot.suite for each in levels.values() for slot in each}
        folders = {**self.folders, **reached.folders}
        return replace(self, counts=levels, folders={suite: folders[suite] for suite in suites})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The verdicts of a run, counted by slot.

    ``not_run`` are the frameworks whose programs did not run; their verdicts count as judged.
    ``reasons`` says for each slot why a verdict judged nothing. ``suites`` were collected whole.
    ``noisy`` counts the verdicts on times that were not measured, because of noise or options of
    pytest-benchmark; they leave no gap.
    """

    counts: Mapping[Slot, Count]
    not_run: Collection[str]
    reasons: Mapping[Slot, str]
    suites: Collection[str]
    targets: Collection[str]
    folders: Mapping[str, str]
    noisy: int = 0


class Gap(NamedTuple):
    """Expected verdicts of one framework, suite and target that a run did not judge.

    ``expected`` and ``judged`` count all their verdicts; ``claims`` are those with too few.
    ``reason`` is why a verdict of these claims judged nothing, empty if the run reached no such
    verdict.
    """

    framework: str
    suite: str
    target: str
    expected: int
    judged: int
    reason: str
    claims: tuple[str, ...]


def gaps(expected: Mapping[Slot, Count], reached: Reached) -> Iterator[Gap]:
    """One gap for each framework, suite and target with too few verdicts, or too few judged."""
    for place in dict.fromkeys(slot[:3] for slot in expected):
        due = {slot: count for slot, count in expected.items() if slot[:3] == place}
        found = {slot: reached.counts.get(slot, _NONE) for slot in due}
        short = [
            slot
            for slot, count in due.items()
            if found[slot].verdicts < count.verdicts or found[slot].judged < count.judged
        ]
        if short:
            reasons = (reached.reasons[slot] for slot in short if slot in reached.reasons)
            yield Gap(
                *place,
                expected=sum(count.judged for count in due.values()),
                judged=sum(min(found[slot].judged, due[slot].judged) for slot in due),
                reason=next(reasons, ""),
                claims=tuple(slot.claim for slot in short),
            )
