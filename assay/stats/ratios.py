"""The ratio of two programs' times, from samples taken alternately in one process.

Sample k of one program is paired with sample k of the other. A disturbance slows both, and the
differences of their logarithms are symmetric about the true one. Three estimates share the errors:

- *Calm pairs*: the half with the smallest sums of logarithms. Most noise of a busy machine is in
  few pairs, and a sum does not show which of the two programs was slower if both vary alike.
- *Minimum times*, which decide where most pairs are disturbed.
- *All pairs*, which contain what only some runs show. They decide where they contradict the others.

Where one program varies more, calm pairs and minimum times select its fast runs. The interval is
then extended to the centre of all pairs. One or two pairs decide if the times are far apart.

The interval of pairs is Wilcoxon's signed-rank interval about the Hodges-Lehmann median (Hollander,
Wolfe and Chicken, Nonparametric Statistical Methods, 3.1 to 3.3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from assay.model.timing import Change, Ratio, Sensitivity

DEFAULT: Final = Sensitivity()
Floats = npt.NDArray[np.float64]
Bounds = tuple[float, float]
View = tuple[float, Bounds]
"""An estimate of a ratio's logarithm, and its interval."""


def judged(
    view: View, units: int, sensitivity: Sensitivity, *, against: float = 1.0, reason: str = ""
) -> Ratio:
    """The ratio that an estimate gives, judged against a wanted ratio."""
    center, (low, high) = view
    goal = math.log(_positive(against, "a ratio to judge against"))
    return Ratio(
        ratio=math.exp(min(max(center, low), high)),
        low=math.exp(low),
        high=math.exp(high),
        units=units,
        change=_change(low - goal, high - goal, sensitivity),
        reason=reason,
    )


def _change(low: float, high: float, sensitivity: Sensitivity) -> Change:
    least, seen = math.log1p(sensitivity.least), math.log1p(sensitivity.seen)
    half = (high - low) / 2
    # Noise as large as the change need not be as independent as the interval takes it to be.
    if half > seen and half > abs(low + high) / 4:
        return Change.TOO_NOISY
    if low > least:
        return Change.SLOWER
    if high < -least:
        return Change.FASTER
    return Change.SAME if max(-low, high) < seen else Change.TOO_NOISY


def logarithms(values: Sequence[float], what: str, *, at_least: int = 2) -> Floats:
    """The natural logarithms of measured numbers.

    Raises:
        ValueError: too few of them, or one that is not a positive finite number.
    """
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or len(found) < at_least:
        raise ValueError(
            f"got {found.size} {what}, wanted at least {at_least} in one sequence; take more"
        )
    for value in found:
        _positive(float(value), what)
    logs: Floats = np.log(found)
    return logs


def _positive(value: float, what: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(
            f"got {value} among {what}, wanted positive finite numbers; a time of zero is below "
            "the clock's resolution: time several runs as one sample"
        )
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How much noise alone can lengthen a sample: by a factor, and by seconds in addition."""

    stretch: float
    stall: float

    def longest(self, seconds: float) -> float:
        """The longest time that can be measured of a program that takes ``seconds``."""
        return self.stretch * seconds + self.stall


BEYOND: Final = {
    1: Noise(stretch=4.0, stall=0.25),
    2: Noise(stretch=3.0, stall=0.05),
    4: Noise(stretch=2.0, stall=0.02),
    6: Noise(stretch=1.5, stall=0.005),
}
"""The fewest pairs -> the difference by which they decide. One pair decides for slower only.

By chance, 6 pairs of equal programs are separated in a given direction in 1 of 924 cases.
"""

FIRST_RUN: Final = Noise(stretch=16.0, stall=0.5)
"""The noise of first runs, which touch their memory for the first time; chosen, not measured."""


def far_apart(
    first: Sequence[float],
    second: Sequence[float],
    *,
    against: float = 1.0,
    processes: int | None = None,
) -> Ratio | None:
    """The ratio of samples that are farther apart than noise can move them; else None.

    They are compared with ``against``, the limit of the ratio. The ratio is that of the medians,
    its bounds those of the samples. What stretches a process stretches all its samples, so
    ``processes`` is the number of pairs of processes that the samples come from.
    """
    pairs = min(len(first), len(second))
    if not pairs:
        return None
    units = pairs if processes is None else processes
    noise = Noise(stretch=_noise(min(pairs, units)).stretch, stall=_noise(pairs).stall)
    slower = min(second) >= noise.longest(against * max(first))
    faster = pairs > 1 and against * min(first) >= noise.longest(max(second))
    if not (slower or faster):
        return None
    ours, theirs = (np.median(logarithms(side, "samples", at_least=1)) for side in (first, second))
    return Ratio(
        ratio=math.exp(theirs - ours),
        low=float(min(second) / max(first)),
        high=float(max(second) / min(first)),
        units=units,
        change=Change.SLOWER if slower else Change.FASTER,
    )


def _noise(count: int) -> Noise:
    return BEYOND[max(fewest for fewest in BEYOND if fewest <= count)]


def certainly_slower_after(seconds: float, *, against: float = 1.0) -> float:
    """The seconds after which a first run is slower than ``against`` times one of ``seconds``."""
    return FIRST_RUN.longest(against * seconds)


def minimum_time_interval(first: Floats, second: Floats, errors: float) -> tuple[float, float]:
    """The interval of the second minimum time less the first, from minima of blocks as logarithms.

    Both sides draw as many blocks as the smaller side has, because more draws have a lower minimum.
    The interval has no bounds if blocks are so few that one of two equal sides would be above the
    other by chance more often than the errors allow.
    """
    if 2 / math.comb(len(first) + len(second), len(first)) > errors:
        return -math.inf, math.inf
    draws = min(len(first), len(second))
    ours, theirs = np.sort(first), np.sort(second)
    differences = (theirs[:, None] - ours[None, :]).ravel()
    chances = (_chances(len(theirs), draws)[:, None] * _chances(len(ours), draws)[None, :]).ravel()
    low = _quantile(differences, chances, errors / 2)
    return low, -_quantile(-differences, chances, errors / 2)


def block_minima(logs: Floats, size: int) -> Floats:
    """The minimum of each block of ``size`` successive samples; the last block has the rest too."""
    starts = np.arange(0, max(len(logs) - size + 1, 1), size)
    minima: Floats = np.minimum.reduceat(logs, starts)
    return minima


def _chances(count: int, draws: int) -> Floats:
    """The chance that each of the sorted blocks is the minimum of ``draws``."""
    left: Floats = ((count - np.arange(count + 1)) / count) ** draws
    return left[:-1] - left[1:]


def _quantile(values: Floats, chances: Floats, share: float) -> float:
    """The largest value with less than ``share`` of the chance below it."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(chances[order])
    place = int(np.searchsorted(below, share))
    return float(values[order][min(place, len(values) - 1)])


LOOKS: Final = (12, 16, 24, 32, 48, 64, 96, 128, 192, 384, 768, 1536)
"""The numbers of pairs at which samples are judged. No more are taken if they decide.

The last ones are for programs of a few milliseconds on a noisy machine: 192 pairs left 28 of 200
comparisons of such a program with itself undecided, 1,536 none of 94 (docs/timing-evaluation.md).
"""

SOME_RUNS: Final = "the typical run changed, though the fastest did not"
"""The reason if all pairs decide, because calm pairs and minimum times would miss the change."""

VIEWS: Final = 3
_CALM: Final = 0.5
_FEWEST_KEPT: Final = 12
_FEWEST_FOR_MINIMA: Final = 24
_ALIKE: Final = 1.25
_NO_SPREAD: Final = 1e-6  # Less is the clock's, not the program's.
_MOST_EXACT: Final = 256
_BLOCK: Final = 2  # A burst of load hits neighbours.


def ratio_of_turns(
    first: Sequence[float],
    second: Sequence[float],
    sensitivity: Sensitivity = DEFAULT,
    *,
    against: float = 1.0,
    looks: int = len(LOOKS) + 1,
) -> Ratio:
    """The second program's time over the first's, compared with ``against``.

    The allowed errors are divided among the ``looks``, so that repeated looks do not exceed them.
    The default is all of ``LOOKS`` and a last one that a caller's own limit may force. Use 1 for
    samples that are judged once. Samples that are ``far_apart`` decide at once, even one pair.

    Raises:
        ValueError: sequences of unequal length, no pair, or times that are not positive.
    """
    view, reason = _view(first, second, sensitivity.errors / looks / VIEWS)
    found = judged(view, len(first), sensitivity, against=against, reason=reason)
    if found.change is Change.TOO_NOISY:
        return far_apart(first, second, against=against) or found
    return found


def _view(first: Sequence[float], second: Sequence[float], errors: float) -> tuple[View, str]:
    everything = signed_rank_interval(differences(first, second), errors)
    if len(first) < 2:  # noqa: PLR2004  (one pair has no interval)
        return everything, ""
    calm = signed_rank_interval(calm_differences(first, second), errors)
    minima = calm[1]
    if len(first) >= _FEWEST_FOR_MINIMA:
        ours, theirs = (block_minima(np.log(side), _BLOCK) for side in (first, second))
        minima = minimum_time_interval(ours, theirs, errors)
    return of_views(calm, minima, everything, alike=vary_alike([(first, second)]))


def of_views(calm: View, minima: Bounds, everything: View, *, alike: bool) -> tuple[View, str]:
    """What calm pairs and minimum times agree on, or all pairs with a reason if they contradict it.

    ``alike`` says whether both sides vary as much (`vary_alike`).
    """
    low, high = agreed(calm[1], minima)
    center = everything[0]
    if _apart((low, high), everything[1]):
        return everything, SOME_RUNS
    if not alike:
        low, high = min(low, center), max(high, center)
    return (calm[0], (low, high)), ""


def agreed(one: Bounds, other: Bounds) -> Bounds:
    """The intersection of two intervals for one number; their hull if they do not intersect."""
    if _apart(one, other):
        return min(one[0], other[0]), max(one[1], other[1])
    return max(one[0], other[0]), min(one[1], other[1])


def _apart(one: Bounds, other: Bounds) -> bool:
    return max(one[0], other[0]) > min(one[1], other[1])


def vary_alike(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> bool:
    """Whether both sides vary as much, by the interquartile range, the mean over all pairs.

    If not, the fast half of the noisier side is faster than that of the other: with equal medians
    and normal noise of 2 % and 5 %, 39 of 200 were judged faster.
    """
    spreads = np.log(
        [[max(_interquartile_range(side), _NO_SPREAD) for side in pair] for pair in pairs]
    )
    return bool(abs(np.mean(spreads[:, 0] - spreads[:, 1])) <= math.log(_ALIKE))


def _interquartile_range(samples: Sequence[float]) -> float:
    low, high = np.quantile(np.log(samples), (0.25, 0.75))
    return float(high - low)


def differences(first: Sequence[float], second: Sequence[float]) -> Floats:
    """The difference of the logarithms of each pair, the second less the first.

    Raises:
        ValueError: sequences of unequal length, none, or times that are not positive.
    """
    if len(first) != len(second):
        raise ValueError(
            f"got {len(first)} and {len(second)} samples, wanted equal numbers; "
            "alternate the two, and drop a last sample without a partner"
        )
    ours, theirs = (logarithms(side, "samples", at_least=1) for side in (first, second))
    return theirs - ours


def calm_differences(first: Sequence[float], second: Sequence[float]) -> Floats:
    """The differences of the calmer half of the pairs, at least 12, in the order taken.

    Raises:
        ValueError: as ``differences`` does.
    """
    found = differences(first, second)
    keep = max(math.ceil(_CALM * len(found)), min(len(found), _FEWEST_KEPT))
    calmest = np.argsort(np.log(first) + np.log(second), kind="stable")[:keep]
    kept: Floats = found[np.sort(calmest)]
    return kept


def signed_rank_interval(found: Floats, errors: float) -> tuple[float, tuple[float, float]]:
    """The Hodges-Lehmann median and the interval about it; without bounds if there are too few."""
    rows, columns = np.triu_indices(len(found))
    averages = np.sort((found[rows] + found[columns]) / 2)
    center = float(np.median(averages))
    cut = _cut(len(found), errors)
    if cut == 0:
        return center, (-math.inf, math.inf)
    return center, (float(averages[cut - 1]), float(averages[-cut]))


@lru_cache
def _cut(count: int, errors: float) -> int:
    """The rank of the bounds among the averages, from each end; 0 if there are too few for bounds.

    It comes from the exact distribution of the rank sum. For more than ``_MOST_EXACT`` values, the
    normal approximation gives up to 0.3 % less.
    """
    if count > _MOST_EXACT:
        mean, variance = count * (count + 1) / 4, count * (count + 1) * (2 * count + 1) / 24
        return int(mean + float(ndtri(errors / 2)) * math.sqrt(variance))
    chances = np.ones(1)
    for rank in range(1, count + 1):
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    return int(np.searchsorted(np.cumsum(chances), errors / 2, side="right"))
