"""Change points of a series of numbers over runs, and changes of its verdicts.

Bytes and counts change where they differ. Times and ratios change beyond noise:

1. Optimal partitioning (Jackson et al., IEEE Signal Processing Letters 12(2), 2005: the problem
   that PELT solves, Killick, Fearnhead and Eckley, JASA 107, 2012) proposes segments. Its cost is
   the squared distance from a segment's mean over the variance of noise, and each further segment
   costs 2 ln n. The noise is the median absolute difference of neighbours, which few steps do not
   change.
2. The Mann-Whitney test decides on each proposal, because ranks do not depend on how far outliers
   lie. The least certain one is removed until all are certain: Bonferroni's bound on all places
   where a series could change.

Apache Otava tests proposals of E-divisive means in the same way (Fleming et al., Hunter, ICPE 2023,
arXiv:2301.03034), with Student's test, which outliers mislead.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from assay.model.history import Change, Trend
from assay.model.timing import Sensitivity
from assay.model.units import Unit
from assay.model.verdict import Outcome

if TYPE_CHECKING:
    from assay.stats.ratios import Floats

SHORTEST: Final = 3
"""The fewest runs of a segment of times: one or two runs cannot be told from outliers."""
ERRORS: Final = 0.01
"""The greatest probability that a series of noise alone has a change point."""
_EXACT: Final = (Unit.BYTES, Unit.COUNT)
_SIGMA_OF_MEDIAN: Final = 1.4826 / math.sqrt(2)
_SIGMA_OF_MEAN: Final = math.sqrt(math.pi) / 2
"""The standard deviation of normal noise over the median, or mean, absolute difference of two."""


def with_changes(trend: Trend) -> Trend:
    """The trend with its changes: of the level of its numbers, and of its verdicts.

    A verdict ``inconclusive`` changes nothing: the times of that run said nothing.
    """
    samples = trend.samples
    measured = [index for index, each in enumerate(samples) if each.measured is not None]
    numbers = [each.measured for each in samples if each.measured is not None]
    cuts = change_points(numbers, is_exact=trend.unit in _EXACT)
    medians = [
        median(numbers[low:high]) for low, high in pairwise([0, *cuts, len(numbers)]) if low < high
    ]
    levels = {
        (measured[cut - 1], measured[cut]): pair
        for cut, pair in zip(cuts, pairwise(medians), strict=True)
    }
    said = [index for index, each in enumerate(samples) if each.verdict is not Outcome.INCONCLUSIVE]
    verdicts = {
        (before, after): (samples[before].verdict, samples[after].verdict)
        for before, after in pairwise(said)
        if samples[before].verdict is not samples[after].verdict
    }
    changes = (
        Change(
            samples[before],
            samples[after],
            levels.get((before, after)),
            verdicts.get((before, after)),
        )
        for before, after in sorted({*levels, *verdicts}, key=lambda place: place[::-1])
    )
    return replace(trend, changes=tuple(changes))


def change_points(numbers: Sequence[float], *, is_exact: bool) -> list[int]:
    """The indices from which on the numbers have another level, in order."""
    steps = [abs(after - before) for before, after in pairwise(numbers)]
    if is_exact:
        return [index for index, step in enumerate(steps, 1) if step]
    if len(numbers) < 2 * SHORTEST:
        return []
    # Where most numbers repeat, the median is no measure of noise.
    noise = _SIGMA_OF_MEDIAN * median(steps) or _SIGMA_OF_MEAN * fmean(steps)
    return _beyond_noise(numbers, noise) if noise else []


def _beyond_noise(numbers: Sequence[float], noise: float) -> list[int]:
    """The proposals that differ by more than noise, and by more than the least that matters."""
    import numpy as np
    from scipy.stats import mannwhitneyu

    values = np.asarray(numbers, dtype=np.float64)
    cuts = _proposals(values, noise)

    @cache
    def doubt(low: int, cut: int, high: int) -> float:
        before, after = values[low:cut], values[cut:high]
        if not _matters(float(np.median(before)), float(np.median(after))):
            return 1.0
        return float(mannwhitneyu(before, after).pvalue)

    while cuts:
        edges = [0, *cuts, len(values)]
        doubts = [doubt(*three) for three in zip(edges, cuts, edges[2:], strict=False)]
        worst = max(range(len(cuts)), key=doubts.__getitem__)
        if doubts[worst] * len(values) < ERRORS:
            break
        del cuts[worst]
    return cuts


def _matters(before: float, after: float) -> bool:
    return abs(after - before) > Sensitivity().least * abs(before)


def _proposals(values: "Floats", noise: float) -> list[int]:
    """The cheapest segments of at least ``SHORTEST`` numbers, as the indices where they start."""
    import numpy as np

    count, penalty = len(values), 2 * math.log(len(values)) * noise**2
    sums = np.concatenate(([0.0], np.cumsum(values - values.mean())))
    shares = 1 / np.arange(count, 0, -1)
    best, start = np.full(count + 1, np.inf), np.zeros(count + 1, dtype=int)
    best[0] = 0.0
    for end in range(SHORTEST, count + 1):
        last = end - SHORTEST + 1
        # Squares about the mean, less the sum of all squares, which no partition changes.
        costs = best[:last] - (sums[end] - sums[:last]) ** 2 * shares[count - end :][:last]
        start[end] = costs.argmin()
        best[end] = costs[start[end]] + penalty
    cuts: list[int] = []
    end = count
    while end := int(start[end]):
        cuts.insert(0, end)
    return cuts
