"""Process pairs: one process on each toolchain, which take samples alternately.

A program's time differs between processes, because its memory lies elsewhere. After some samples a
pair is therefore ended and another is started, until the judge has enough of them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from assay.model.rerun import Pair
from assay.model.timing import Change, Ending, ProcessTimes, Sensitivity
from assay.stats.processes import (
    FEWEST_TURNS,
    PAIR_LOOKS,
    TURNS_OF_A_PAIR,
    Turns,
    more_pairs,
    ratio_of_processes,
)
from assay.stats.ratios import DEFAULT
from assay.toolchains.child import Prepared

Clock = Callable[[], float]

_STRETCH = 2


class Sampled(Protocol):
    """A process that takes a sample on request."""

    def sample(self, runs: int) -> float:
        """The seconds of one run, the mean of so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A process that is ready to be sampled, and its report on its program."""

    process: Sampled
    prepared: Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Twice:
    """A process that does all of a sample twice: it takes twice as long, and says so."""

    process: Sampled

    def sample(self, runs: int) -> float:
        """The seconds of doing one run twice, the mean of so many."""
        return self.process.sample(runs) + self.process.sample(runs)


@dataclass(slots=True, kw_only=True)
class Samples:
    """The samples of one process."""

    started: Started
    runs: int
    taken: list[float] = field(default_factory=list)

    def take(self) -> None:
        """Take one more."""
        self.taken.append(self.started.process.sample(self.runs))

    def times(self) -> ProcessTimes:
        """All of them."""
        told = self.started.prepared
        return ProcessTimes(
            trace=told.trace,
            compile=told.compile,
            first=told.first,
            runs_per_sample=self.runs,
            samples=tuple(self.taken),
        )


def turns(pair: Pair) -> Turns:
    """What the judge compares."""
    return Turns(first=pair.old.samples, second=pair.new.samples)


def is_judged(pair: Pair) -> bool:
    """Whether it took enough turns; in a short share of seconds it may not have."""
    return len(pair.old.samples) >= FEWEST_TURNS


def take_turns(
    old: Started, new: Started, *, old_first: bool, end: float, clock: Clock = time.perf_counter
) -> Pair:
    """Sample A B B A …, as many turns as a pair takes, or as end by ``end``; one at least."""
    # Of more runs in a row each is faster, so both take as many.
    told = (old.prepared, new.prepared)
    runs = min(max(each.runs_per_sample for each in told), *(each.most_runs for each in told))
    olds, news = Samples(started=old, runs=runs), Samples(started=new, runs=runs)
    order = (olds, news) if old_first else (news, olds)
    lasted = 0.0
    for number in range(TURNS_OF_A_PAIR):
        began = clock()
        if number and began + lasted > end:
            break
        for samples in order:
            samples.take()
        order = order[::-1]
        lasted = clock() - began
    return Pair(old=olds.times(), new=news.times())


def take_pairs(
    take: Callable[[int, float], Pair],
    *,
    most_seconds: float,
    sensitivity: Sensitivity = DEFAULT,
    taken: Callable[[Sequence[Pair]], None] = lambda _: None,
    clock: Clock = time.perf_counter,
) -> Ending:
    """Take pairs until the judge has enough of them; ``taken`` gets all of them after each.

    ``take`` gets the number of the pair and the time to stop at: a long program takes fewer turns,
    so that there is time for the fewest pairs that can be judged. No pair is begun that would not
    end in time, as far as the one before tells; while there are not the fewest pairs, time is twice
    the seconds.
    """
    start, share = clock(), most_seconds / PAIR_LOOKS[0]
    pairs: list[Pair] = []
    lasted = 0.0
    while more_pairs([turns(pair) for pair in pairs], sensitivity):
        if pairs and not is_judged(pairs[-1]):
            return Ending.SECONDS
        began = clock()
        end = start + most_seconds * (_STRETCH if len(pairs) < PAIR_LOOKS[0] else 1)
        if began + lasted > end:
            return Ending.SECONDS
        pairs.append(take(len(pairs), min(began + share, end)))
        taken(tuple(pairs))
        lasted = clock() - began
    return _why(pairs, sensitivity)


def _why(pairs: Sequence[Pair], sensitivity: Sensitivity) -> Ending:
    """The judge wants no more: since they decide, or since it never takes more."""
    seen = ratio_of_processes([turns(pair) for pair in pairs], sensitivity)
    return Ending.TURNS if seen.change is Change.TOO_NOISY else Ending.ENOUGH
