"""Slow creep: many small steps, each within what is called the same, add up to a change."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import ndtri

from assay.judge.changes import DEFAULT, Better, Change, Ratio, Sensitivity, judged, logarithms

_FEWEST_FOR_A_TREND: Final = 6  # Kendall cannot reach 1 % with fewer.


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A number that was accepted once, with the relative standard error it was known to."""

    value: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Creep:
    """How far a history went: the newest over the oldest, and the trend over its whole length.

    ``trend`` is None where there are too few numbers for one.
    """

    since_oldest: Ratio
    trend: Ratio | None
    change: Change


def creep(
    history: Sequence[Accepted],
    sensitivity: Sensitivity = DEFAULT,
    *,
    better: Better = Better.LESS,
) -> Creep:
    """What became of a number since it was first accepted, the oldest first and today's last.

    Slower if the newest is slower than the oldest, or the trend is: Theil and Sen's slope, if
    Mann and Kendall's test finds one. The larger word wins, so a step back that is within the
    noise hides no trend.

    Raises:
        ValueError: fewer than two numbers, or one that is no positive number.
    """
    logs = logarithms([number.value for number in history], "accepted numbers")
    oldest, newest = history[0], history[-1]
    half = -float(ndtri(sensitivity.errors / 2)) * math.hypot(oldest.error, newest.error)
    step = float(logs[-1] - logs[0])
    since = judged(step, (step - half, step + half), len(logs), sensitivity, better=better)
    trend = _trend(logs.tolist(), sensitivity, better)
    changes = {since.change, trend.change if trend else since.change}
    change = next((each for each in _BY_WEIGHT if each in changes), Change.TOO_NOISY)
    return Creep(since_oldest=since, trend=trend, change=change)


_BY_WEIGHT = (Change.SLOWER, Change.FASTER, Change.SAME, Change.TOO_NOISY)


def _trend(logs: Sequence[float], sensitivity: Sensitivity, better: Better) -> Ratio | None:
    """The slope times the history's length, or None if there are too few numbers."""
    if len(logs) < _FEWEST_FOR_A_TREND:
        return None
    from scipy.stats import kendalltau, theilslopes  # Half a second that most runs never need.

    steps = np.arange(len(logs))
    slope, _, low, high = (
        float(each) * (len(logs) - 1)
        for each in theilslopes(logs, steps, alpha=1 - sensitivity.errors)
    )
    rising = kendalltau(steps, logs).pvalue < sensitivity.errors
    if not rising:
        low, high = min(low, 0.0), max(high, 0.0)
    return judged(slope, (low, high), len(logs), sensitivity, better=better)
