"""Taking turns: samples of two programs, alternately, until they decide or a cap is reached.

A program by itself takes all turns.
"""

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from assay.model.timing import Ending

Clock = Callable[[], float]

_CLOCK_STEPS_A_SAMPLE = 1000  # so that the clock's step is a thousandth of what it measures
_MOST_RUNS_A_SAMPLE = 1024
_WARM_RUNS = 2
_SHARE_OF_A_LONG_RUN = 0.1
_READINGS = 20


@dataclass(slots=True, kw_only=True)
class Runner:
    """One of two programs; ``run`` gives the seconds that so many runs take, one after another.

    ``most_runs`` bounds the runs of a sample, for each may need arguments of its own. ``compiles``
    says that the first run does so too, and tells nothing of those after it.
    """

    run: Callable[[int], float]
    most_runs: int = _MOST_RUNS_A_SAMPLE
    compiles: bool = False
    first: float | None = None
    next: float = 0.0
    runs_per_sample: int = 1
    samples: list[float] = field(default_factory=list)

    def begin(self) -> None:
        """Run it for the first time, and learn what a run takes."""
        self.first = self.next = self.run(1)
        if self.compiles:
            self.next = self.run(1)

    def warm_up(self, least_seconds: float) -> bool:
        """Run it till it is steady, and learn how many runs last ``least_seconds``, if any do."""
        for _ in range(_WARM_RUNS):
            seconds = self.run(self.runs_per_sample)
        while seconds < least_seconds and self.runs_per_sample < self.most_runs:
            needed = math.ceil(self.runs_per_sample * least_seconds / seconds) if seconds else 0
            wanted = max(needed, 2 * self.runs_per_sample)
            self.runs_per_sample = min(wanted, self.most_runs)
            seconds = self.run(self.runs_per_sample)
        return seconds >= least_seconds

    def sample(self) -> None:
        """Take one sample."""
        self.samples.append(self.run(self.runs_per_sample) / self.runs_per_sample)


def take_turns(
    runners: tuple[Runner, ...],
    *,
    enough: Callable[[Sequence[float], Sequence[float]], bool],
    most: int,
    most_seconds: float,
    taken: Callable[[], None] = lambda: None,
    clock: Clock = time.perf_counter,
) -> Ending:
    """Run both once, warm them up, then sample A B B A … until ``enough`` says so.

    No turns are begun that would end after ``most_seconds``, as far as the runs before tell; first
    runs that compile are not counted. ``taken`` is called after every two samples of each.
    ``enough`` gets the samples of both, those of a program by itself as the second. Raises what the
    programs raise.
    """
    start = clock()
    for runner in runners:
        runner.begin()
    compiled = sum((runner.first or 0.0) for runner in runners if runner.compiles)
    end = start + compiled + most_seconds
    # A run so long needs no warming up, and leaves no time for it.
    if sum(runner.next for runner in runners) < _SHARE_OF_A_LONG_RUN * most_seconds:
        least = _CLOCK_STEPS_A_SAMPLE * clock_step(clock)
        warm = [runner.warm_up(least) for runner in runners]
        if not all(warm):
            return Ending.BELOW_CLOCK
    turns = (*runners, *reversed(runners))
    *others, judged = (runner.samples for runner in runners)
    reference = others[0] if others else []
    with _no_collector():
        while len(judged) < most:
            if clock() + sum(map(_sample_seconds, turns)) > end:
                return Ending.SECONDS
            for runner in turns:
                runner.sample()
            taken()
            if enough(reference, judged):
                return Ending.ENOUGH
    return Ending.TURNS


def clock_step(clock: Clock) -> float:
    """The smallest difference that two readings of the clock were seen to have."""
    least, readings = math.inf, 0
    before = clock()
    while readings < _READINGS:
        now = clock()
        if now > before:
            least, before, readings = min(least, now - before), now, readings + 1
    return least


def _sample_seconds(runner: Runner) -> float:
    """What the next sample will take, going by the last one or by the run before."""
    one = runner.samples[-1] if runner.samples else runner.next
    return one * runner.runs_per_sample


@contextmanager
def _no_collector() -> Iterator[None]:
    """A garbage collection would fall on whichever program is running."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
