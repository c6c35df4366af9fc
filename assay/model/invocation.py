"""A run without its records: its command, how it ended, and the coverage it reached."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from assay.model.verdict import ExitCode, Record, exit_code
from assay.model.workload import Level, UpstreamIssue


class Slot(NamedTuple):
    """What verdicts are counted by; ``claim`` with its suffix where it is a negative control's."""

    framework: str
    suite: str
    target: str
    claim: str


class Count(NamedTuple):
    """The verdicts of a slot, and how many of them judge something."""

    verdicts: int
    judged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Expected verdicts of each level, and the folder that each suite's tests lie in."""

    counts: Mapping[Level, Mapping[Slot, Count]] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)

    def at(self, level: Level) -> Mapping[Slot, Count]:
        """What is expected at a level: each suite's counts of the highest stored level up to it."""
        found: dict[str, Mapping[Slot, Count]] = {}
        for stored in sorted(each for each in self.counts if each <= level):
            for suite in {slot.suite for slot in self.counts[stored]}:
                slots = self.counts[stored].items()
                found[suite] = {slot: count for slot, count in slots if slot.suite == suite}
        return {slot: count for counts in found.values() for slot, count in counts.items()}

    def recording(self, reached: "Reached", *, level: Level, replaces: bool) -> "Coverage":
        """The same with what a run reached; ``replaces`` also lowers and removes counts."""
        known = self.counts.get(level, {})
        counts = {
            slot: count
            for slot, count in known.items()
            if not (replaces and slot.suite in reached.suites and slot.target in reached.targets)
        }
        for slot, count in reached.counts.items():
            found = count
            if slot in known and not reached.ran(slot):
                unjudged = known[slot].verdicts - known[slot].judged
                found = Count(count.verdicts, max(count.verdicts - unjudged, 0))
            kept = counts.get(slot, Count(0, 0))
            counts[slot] = Count(*map(max, found, kept))
        levels = {**self.counts, level: counts}
        remaining = {slot.suite for each in levels.values() for slot in each}
        folders = {**self.folders, **reached.folders}
        return replace(
            self,
            counts={each: levels[each] for each in levels if levels[each]},
            folders={suite: folders[suite] for suite in remaining},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What a run came to: its verdicts, counted by slot.

    ``not_run`` are the frameworks whose programs it did not run, all of them where it only
    collected: their verdicts are counted as judged. ``noisy`` is how many verdicts on times were
    not measured, by noise or by pytest-benchmark's options; they leave no gap. ``reasons`` says
    for each slot why a verdict judged nothing.
    ``suites`` are the suites that the run held as a whole, ``targets`` those that it judged on.
    """

    counts: Mapping[Slot, Count]
    not_run: Collection[str]
    reasons: Mapping[Slot, str]
    suites: Collection[str]
    targets: Collection[str]
    folders: Mapping[str, str]
    noisy: int = 0

    def ran(self, slot: Slot) -> bool:
        """Whether the programs of a slot were run."""
        return slot.framework not in self.not_run


class Gap(NamedTuple):
    """Expected verdicts of one suite, target and framework that a run did not judge.

    ``expected`` and ``judged`` count all verdicts of the place. ``reason`` is why one of them
    judged nothing, empty if none was reached.
    """

    framework: str
    suite: str
    target: str
    expected: int
    judged: int
    reason: str
    claims: tuple[str, ...]


def gaps(expected: Mapping[Slot, Count], reached: Reached) -> Iterator[Gap]:
    """The gaps of a run, one for each place with too few verdicts, or too few that judged."""
    nothing = Count(0, 0)
    places = dict.fromkeys(slot[:3] for slot in expected)
    for place in places:
        due = {slot: count for slot, count in expected.items() if slot[:3] == place}
        found = {slot: reached.counts.get(slot, nothing) for slot in due}
        short = [
            slot
            for slot, count in due.items()
            if found[slot].verdicts < count.verdicts or found[slot].judged < count.judged
        ]
        if short:
            reasons = [reached.reasons[slot] for slot in short if slot in reached.reasons]
            yield Gap(
                *place,
                expected=sum(count.judged for count in due.values()),
                judged=sum(min(found[slot].judged, due[slot].judged) for slot in due),
                reason=reasons[0] if reasons else "",
                claims=tuple(slot.claim for slot in short),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Expected verdicts that a run did not reach on a target, in words, and what to do."""

    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended, in addition to its records.

    ``cut_short`` is ``MISUSE``, pytest's own code for Ctrl-C, or ``CRASHED``; None if the run was
    not interrupted. ``failed_elsewhere`` is true if pytest failed. ``lost`` are the ids of selected
    items without a verdict. ``unwritten`` is why a file could not be written; ``fault`` is any
    other failure of Assay at the end. ``coverage`` is one line on the expected verdicts, and
    ``missing`` describes those that were not reached.
    """

    cut_short: ExitCode | None = None
    failed_elsewhere: bool = False
    lost: tuple[str, ...] = ()
    unwritten: str = ""
    fault: str = ""
    coverage: str = ""
    missing: tuple[Missing, ...] = ()

    @property
    def is_faulty(self) -> bool:
        """Whether what the run leaves behind is incomplete."""
        return bool(self.unwritten or self.fault)

    def code(self, records: Iterable[Record]) -> ExitCode:
        """The exit code of a run with these records: the one rule for all commands and reports."""
        if self.cut_short is not None:
            return self.cut_short
        if self.is_faulty:
            return ExitCode.CRASHED
        code = exit_code(records)
        incomplete = self.failed_elsewhere or self.lost or self.missing
        return ExitCode.FAILED if code is ExitCode.PASSED and incomplete else code


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The words of a command that reaches the run's items again, and how the run ended.

    ``upstream_issues`` are those that its suites reproduce, by suite.
    """

    command: tuple[str, ...] = ("pytest", "suites")
    ending: Ending = field(default_factory=Ending)
    upstream_issues: dict[str, tuple[UpstreamIssue, ...]] = field(default_factory=dict)


USUAL: Final = Invocation()
"""What is taken for granted where nothing is known of a run but its records."""


def lost_on(ending: Ending, target: str) -> Sequence[str]:
    """``workload/variant`` of the items of a target that never reached a verdict."""
    programs = (item.rpartition("[")[2].partition("]")[0] for item in ending.lost)
    named = (program.removesuffix("/negative-control").rpartition("@") for program in programs)
    return tuple(dict.fromkeys(program for program, _, where in named if where == target))
