"""Separation: two programs so far apart that a few samples decide.

Every sample of one lies beyond every sample of the other, further than noise moves a sample. Noise
stretches a run by what shares its core, and adds stalls. ``BEYOND`` bounds both, by how many pairs
were taken: its stretch is at least 1.5 times, its stall at least 4 times the largest that was
measured of a program against itself, on 2 cores at load averages of 3 to 5
(docs/timing-evaluation.md, "Large slowdowns").
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from assay.judge.changes import Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How far noise alone moves a sample: so many times as long, and so many seconds more."""

    stretch: float
    stall: float

    def longest(self, seconds: float) -> float:
        """The longest that a program can seem to take that takes so many seconds."""
        return self.stretch * seconds + self.stall


BEYOND: Final = {
    1: Noise(stretch=4.0, stall=0.25),
    2: Noise(stretch=3.0, stall=0.05),
    4: Noise(stretch=2.0, stall=0.02),
    6: Noise(stretch=1.5, stall=0.005),
}
"""What so many pairs must differ by to decide; of complete separation alone, 6 pairs are 1 in 924.

One pair decides for slower only.
"""

FIRST_RUN: Final = Noise(stretch=16.0, stall=0.5)
"""The same of first runs, which touch their memory for the first time; chosen, not measured."""


def separated(
    first: Sequence[float],
    second: Sequence[float],
    *,
    against: float = 1.0,
    processes: int | None = None,
) -> Bounds | None:
    """The least and greatest ratio of the samples as logarithms, if they are far apart; else None.

    Far apart on either side of ``against``, the ratio that the second is held to. Samples of few
    pairs of ``processes`` share what stretches a whole process.
    """
    pairs = min(len(first), len(second))
    if not pairs:
        return None
    alike = pairs if processes is None else min(pairs, processes)
    noise = Noise(stretch=_noise(alike).stretch, stall=_noise(pairs).stall)
    slower = min(second) >= noise.longest(against * max(first))
    faster = pairs > 1 and against * min(first) >= noise.longest(max(second))
    if not (slower or faster):
        return None
    return math.log(min(second) / max(first)), math.log(max(second) / min(first))


def _noise(count: int) -> Noise:
    return BEYOND[max(fewest for fewest in BEYOND if fewest <= count)]


def certainly_slower_after(seconds: float, *, against: float = 1.0) -> float:
    """After how long a first run is certainly slower than ``against`` times one of such seconds."""
    return FIRST_RUN.longest(against * seconds)
