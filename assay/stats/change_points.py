"""Change points of times over runs: where they change beyond noise.

1. Optimal partitioning (Jackson et al., IEEE Signal Processing Letters 12(2), 2005: the problem
   that PELT solves, Killick, Fearnhead and Eckley, JASA 107, 2012) proposes segments. Its cost is
   the squared distance from a segment's mean over the variance of noise, and each further segment
   costs 2 ln n. The noise is the median absolute difference of neighbours, which few steps do not
   change.
2. The Mann-Whitney test (Annals of Mathematical Statistics 18(1), 1947) decides on each proposal,
   because ranks do not depend on how far outliers lie. The least certain one is removed until all
   are certain: Bonferroni's bound on all places where a series could change.

Apache Otava tests proposals of E-divisive means in the same way (Fleming et al., Hunter, ICPE 2023,
arXiv:2301.03034), with Student's test, which outliers mislead.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from statistics import fmean, median
from typing import Final

import numpy as np
import numpy.typing as npt

from assay.model.timing import Sensitivity

Floats = npt.NDArray[np.float64]
SHORTEST: Final = 3
"""The fewest runs of a segment of times: one or two runs cannot be told from outliers."""
_MOST_EXACT: Final = 8
"""The longest short segment whose ranks are counted exactly; beyond, the normal law is close."""
ERRORS: Final = 0.01
"""The greatest probability that a series of noise alone has a change point."""
_SIGMA_OF_MEDIAN: Final = 1.4826 / math.sqrt(2)
_SIGMA_OF_MEAN: Final = math.sqrt(math.pi) / 2
"""The standard deviation of normal noise over the median, or mean, absolute difference of two."""


def change_points(series: Sequence[Sequence[float]]) -> list[list[int]]:
    """The indices from which on the times of each series have another level, in order."""
    found: list[list[int]] = [[] for _ in series]
    judged = {}
    for place, numbers in enumerate(series):
        if len(numbers) >= 2 * SHORTEST and (noise := _noise(numbers)):
            judged[place] = (np.asarray(numbers, dtype=np.float64), noise)
    proposals = _proposals(list(judged.values())) if judged else []
    for (place, (values, _)), cuts in zip(judged.items(), proposals, strict=True):
        found[place] = _certain(values, cuts)
    return found


def _noise(numbers: Sequence[float]) -> float:
    """The standard deviation of noise, from the mean where most numbers repeat: the median is 0."""
    steps = [abs(after - before) for before, after in pairwise(numbers)]
    return _SIGMA_OF_MEDIAN * median(steps) or _SIGMA_OF_MEAN * fmean(steps)


def _proposals(series: Sequence[tuple[Floats, float]]) -> list[list[int]]:
    """The cheapest segments of at least ``SHORTEST`` numbers, as the indices where they start.

    All series at once, each with its noise. What is beyond the end of a shorter one is not read.
    """
    longest = max(len(values) for values, _ in series)
    sums = np.zeros((len(series), longest + 1))
    for row, (values, _) in zip(sums, series, strict=True):
        row[1 : len(values) + 1] = np.cumsum(values - values.mean())
    penalties = np.array([2 * math.log(len(values)) * noise**2 for values, noise in series])
    shares = 1 / np.arange(longest, 0, -1)
    best, start = np.full(sums.shape, np.inf), np.zeros(sums.shape, dtype=int)
    best[:, 0] = 0.0
    rows = np.arange(len(series))
    for end in range(SHORTEST, longest + 1):
        last = end - SHORTEST + 1
        # Squares about the mean, less the sum of all squares, which no partition changes.
        costs = sums[:, [end]] - sums[:, :last]
        costs *= costs
        costs *= shares[longest - end :][:last]
        np.subtract(best[:, :last], costs, out=costs)
        start[:, end] = costs.argmin(axis=1)
        best[:, end] = costs[rows, start[:, end]] + penalties
    return [_cuts(row, len(values)) for row, (values, _) in zip(start, series, strict=True)]


def _cuts(start: npt.NDArray[np.int_], end: int) -> list[int]:
    cuts: list[int] = []
    while end := int(start[end]):
        cuts.insert(0, end)
    return cuts


def _certain(values: Floats, cuts: list[int]) -> list[int]:
    """The cuts whose sides differ by more than noise, and by more than the least that matters."""

    @cache
    def doubt(low: int, cut: int, high: int) -> float:
        before, after = values[low:cut], values[cut:high]
        level = float(np.median(before))
        matters = abs(float(np.median(after)) - level) > Sensitivity().least * abs(level)
        return probability_of_ranks(before, after) if matters else 1.0

    while cuts:
        edges = [0, *cuts, len(values)]
        doubts = [doubt(*three) for three in zip(edges, cuts, edges[2:], strict=False)]
        worst = max(range(len(cuts)), key=doubts.__getitem__)
        if doubts[worst] * len(values) < ERRORS:
            break
        cuts = cuts[:worst] + cuts[worst + 1 :]
    return cuts


def probability_of_ranks(first: Floats, second: Floats) -> float:
    """How likely equal distributions differ as much in their ranks: Mann and Whitney, two-sided.

    ``scipy.stats.mannwhitneyu`` gives the same number. Its import takes longer than a query of a
    history of a thousand runs.
    """
    sizes = sorted((len(first), len(second)))
    total, pairs = sum(sizes), sizes[0] * sizes[1]
    ordered = np.sort(first)
    # A pair of equals counts as a half.
    wins = sum(float(ordered.searchsorted(second, side).sum()) for side in ("left", "right")) / 2
    most = max(wins, pairs - wins)
    ties = np.unique(np.concatenate((first, second)), return_counts=True)[1].astype(float)
    if sizes[0] <= _MOST_EXACT and len(ties) == total:
        counts = _arrangements(*sizes)
        return min(1.0, 2 * float(counts[round(most) :].sum() / counts.sum()))
    spread = pairs / 12 * (total + 1 - float((ties**3 - ties).sum()) / (total * (total - 1)))
    if not spread:
        return 1.0
    return min(1.0, math.erfc((most - 0.5 - pairs / 2) / math.sqrt(2 * spread)))


def _arrangements(few: int, many: int) -> Floats:
    """The number of orders of two samples for each number of pairs that the second wins.

    The coefficients of a Gaussian binomial: the product of (1 - q^(many+i)) / (1 - q^i).
    """
    counts = np.zeros(few * many + 1)
    counts[0] = 1.0
    for size in range(1, few + 1):
        counts[many + size :] -= counts[: -(many + size)].copy()
        for first in range(size):
            counts[first::size] = np.cumsum(counts[first::size])
    return counts
