"""The minimum time: how fast a program runs where nothing disturbs it.

A busy machine only ever adds time, and may add to most samples; the fastest of several stretches
(blocks of samples, processes, sessions) is reached again and again all the same. Stretches are
resampled with replacement; the minimum of a resample has a known distribution, so the bootstrap is
computed, not drawn: the k-th fastest of n is the minimum of m draws with probability ((n-k)/n)**m -
((n-k-1)/n)**m, counted from 0. A cost that only some runs have, a minimum time cannot see.
"""

import math

import numpy as np

from assay.judge.changes import Floats


def minimum_time_interval(first: Floats, second: Floats, errors: float) -> tuple[float, float]:
    """The interval of the second minimum time less the first, from stretches' minima as logarithms.

    Both sides draw as many stretches as the smaller has: of more draws comes a lower minimum time.
    Without bounds where stretches are so few that, of two sides that do not differ, one would lie
    wholly above the other more often than the errors allow.
    """
    if 2 / math.comb(len(first) + len(second), len(first)) > errors:
        return -math.inf, math.inf
    draws = min(len(first), len(second))
    ours, theirs = np.sort(first), np.sort(second)
    differences = (theirs[:, None] - ours[None, :]).ravel()
    chances = (_chances(len(theirs), draws)[:, None] * _chances(len(ours), draws)[None, :]).ravel()
    return _quantile(differences, chances, errors / 2), -_quantile(
        -differences, chances, errors / 2
    )


def block_minima(logs: Floats, size: int) -> Floats:
    """The minimum of each block of so many samples in a row; what is left over joins the last."""
    starts = np.arange(0, max(len(logs) - size + 1, 1), size)
    minima: Floats = np.minimum.reduceat(logs, starts)
    return minima


def _chances(count: int, draws: int) -> Floats:
    """The chance of each of the sorted stretches to be the minimum of so many draws."""
    left: Floats = ((count - np.arange(count + 1)) / count) ** draws
    return left[:-1] - left[1:]


def _quantile(values: Floats, chances: Floats, share: float) -> float:
    """The largest value with at most ``share`` of the chance below it.

    Summed from the smallest value up on either side, so that swapping the sides mirrors it.
    """
    order = np.argsort(values, kind="stable")
    below = np.cumsum(chances[order])
    place = int(np.searchsorted(below, share))
    return float(values[order][min(place, len(values) - 1)])
