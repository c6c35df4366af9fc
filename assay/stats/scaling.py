"""How a cost grows with a size: a power law's exponent, fitted, with its interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import numpy as np
from scipy.special import stdtrit

from assay.model.timing import Ratio
from assay.stats.ratios import logarithms

FEWEST_SIZES: Final = 4
_FEWEST_FOR_A_CURVE: Final = 6
"""The fewest sizes to fit a parabola to: it has three terms, and three sizes are left to judge."""


class Growth(Enum):
    """The verdict on a cost that may grow at most as a power of the size."""

    WITHIN = auto()
    BEYOND = auto()
    CANNOT_SAY = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponent:
    """Cost grows as size ** ``value`` from the smallest to the largest size, on average.

    The interval is unbounded if there is a ``reason`` for that. ``worst`` is the largest factor
    between a cost and the fit.
    """

    value: float
    low: float
    high: float
    sizes: int
    worst: float
    reason: str = ""


def fitted_exponent(
    sizes: Sequence[float], costs: Sequence[float], errors: float = 0.01
) -> Exponent:
    """The exponent by least squares on logarithms, with Student's interval.

    A line is fitted to few sizes, a parabola to six or more, because most costs bend: a constant
    part fades, a cache is left. The exponent is then that of the parabola's chord, from smallest
    to largest size, so that its interval contains the noise, not the bend.

    A cost of nothing at every size, such as copies per iteration, has exponent 0 exactly.

    Raises:
        ValueError: sequences of unequal length, one size only, sizes or costs that are not
            positive.
    """
    if len(sizes) != len(costs):
        raise ValueError(
            f"got {len(sizes)} sizes and {len(costs)} costs, wanted a cost for every size; "
            "leave out a size that was not measured"
        )
    across = logarithms(sizes, "sizes")
    if (distinct := len(np.unique(across))) < 2:  # noqa: PLR2004  (a slope takes two points)
        raise ValueError("got one size only, wanted several; measure at other sizes")
    slope = half = 0.0
    worst = 1.0
    if any(costs):
        up = logarithms(costs, "costs")
        # From the middle of the range a parabola's linear term is the slope of its chord.
        away = across - (across.min() + across.max()) / 2
        degree = 2 if distinct >= _FEWEST_FOR_A_CURVE else 1
        terms, spread = np.polyfit(away, up, degree, cov="unscaled")
        off = up - np.polyval(terms, away)
        degrees = max(len(up) - degree - 1, 1)
        error = math.sqrt(float(np.sum(off**2)) / degrees * float(spread[-2, -2]))
        slope, half = float(terms[-2]), float(stdtrit(degrees, 1 - errors / 2)) * error
        worst = math.exp(float(np.max(np.abs(off))))
    reason = ""
    if distinct < FEWEST_SIZES:
        reason = f"too few sizes: {distinct}, wanted at least {FEWEST_SIZES} different ones"
        half = math.inf
    return Exponent(
        value=slope, low=slope - half, high=slope + half, sizes=distinct, worst=worst, reason=reason
    )


def grows(exponent: Exponent | Ratio, *, at_most: float, slack: float) -> Growth:
    """Whether the whole interval lies within, or beyond, the wanted exponent and its slack."""
    if exponent.high <= at_most + slack:
        return Growth.WITHIN
    return Growth.BEYOND if exponent.low > at_most + slack else Growth.CANNOT_SAY
