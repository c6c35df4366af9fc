"""Coverage: how many verdicts a run of a whole suite must reach, kept as data in the repository."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from assay.model.workload import Level


class Slot(NamedTuple):
    """What verdicts are counted by; ``claim`` with its suffix where it is a negative control's."""

    framework: str
    suite: str
    target: str
    claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Expected verdicts of each level, and the folder that each suite's tests lie in."""

    counts: Mapping[Level, Mapping[Slot, int]] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)

    def at(self, level: Level) -> Mapping[Slot, int]:
        """What is expected at a level: each suite's counts of the highest stored level up to it."""
        found: dict[str, Mapping[Slot, int]] = {}
        for stored in sorted(each for each in self.counts if each <= level):
            for suite in {slot.suite for slot in self.counts[stored]}:
                slots = self.counts[stored].items()
                found[suite] = {slot: count for slot, count in slots if slot.suite == suite}
        return {slot: count for counts in found.values() for slot, count in counts.items()}

    def recording(self, reached: "Reached", *, level: Level, replaces: bool) -> "Coverage":
        """The same with what a run reached; ``replaces`` also lowers and removes counts."""
        kept = {
            slot: count
            for slot, count in self.counts.get(level, {}).items()
            if not (replaces and slot.suite in reached.suites and slot.target in reached.targets)
        }
        counts = dict(kept)
        for slot, count in reached.counts.items():
            counts[slot] = max(count, kept.get(slot, 0))
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
    """What a run came to: verdicts counted by slot, and those of them that judged something.

    ``suites`` are the suites that the run held as a whole, ``targets`` those that it judged on.
    ``reasons`` says for each slot without any judged verdict why there is none.
    """

    counts: Mapping[Slot, int]
    judged: Collection[Slot]
    reasons: Mapping[Slot, str]
    suites: Collection[str]
    targets: Collection[str]
    folders: Mapping[str, str]


class Gap(NamedTuple):
    """Expected verdicts of one suite, target and framework that a run did not reach."""

    framework: str
    suite: str
    target: str
    expected: int
    reached: int
    reason: str
    claims: tuple[str, ...]


def gaps(expected: Mapping[Slot, int], reached: Reached) -> Iterator[Gap]:
    """The gaps of a run, one for each place: verdicts too few, or none that judged anything."""
    places = dict.fromkeys(slot[:3] for slot in expected)
    for place in places:
        slots = [slot for slot in expected if slot[:3] == place]
        short = [slot for slot in slots if reached.counts.get(slot, 0) < expected[slot]]
        seen = [slot for slot in reached.counts if slot[:3] == place]
        judged = any(slot in reached.judged for slot in seen)
        if short or not judged:
            reasons = [reached.reasons[slot] for slot in seen if slot in reached.reasons]
            yield Gap(
                *place,
                expected=sum(expected[slot] for slot in slots),
                reached=sum(min(reached.counts.get(slot, 0), expected[slot]) for slot in slots),
                reason="" if judged or not reasons else reasons[0],
                claims=tuple(slot.claim for slot in short),
            )
