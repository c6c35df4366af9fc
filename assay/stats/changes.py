"""What a measured change amounts to: slower, faster, the same, or too noisy to decide."""

import math
from collections.abc import Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt

from assay.model.timing import Change, Ratio, Sensitivity

__all__ = [
    "DEFAULT",
    "Better",
    "Bounds",
    "Change",
    "Floats",
    "Ratio",
    "Sensitivity",
    "agreed",
    "apart",
    "judged",
    "logarithms",
]

Floats = npt.NDArray[np.float64]


class Better(Enum):
    """Which way a metric improves."""

    LESS = "less"
    MORE = "more"


DEFAULT = Sensitivity()


Bounds = tuple[float, float]


def agreed(one: Bounds, other: Bounds) -> Bounds:
    """What two intervals for the same number both allow; all that either allows if they differ."""
    if apart(one, other):
        return min(one[0], other[0]), max(one[1], other[1])
    return max(one[0], other[0]), min(one[1], other[1])


def apart(one: Bounds, other: Bounds) -> bool:
    """Whether no number lies in both intervals."""
    return max(one[0], other[0]) > min(one[1], other[1])


def judged(
    center: float,
    bounds: Bounds,
    units: int,
    sensitivity: Sensitivity,
    *,
    against: float = 1.0,
    better: Better = Better.LESS,
) -> Ratio:
    """The ratio of a logarithm and of its interval's bounds, judged against a wanted ratio."""
    low, high = bounds
    goal = math.log(_positive(against, "a ratio to judge against"))
    change = _change(low - goal, high - goal, sensitivity)
    if better is Better.MORE:
        change = _OPPOSITE.get(change, change)
    return Ratio(
        ratio=math.exp(min(max(center, low), high)),
        low=math.exp(low),
        high=math.exp(high),
        units=units,
        change=change,
    )


def _change(low: float, high: float, sensitivity: Sensitivity) -> Change:
    least, seen = math.log1p(sensitivity.least), math.log1p(sensitivity.seen)
    half = (high - low) / 2
    # Noise as large as the change need not be as independent as the interval takes it to be.
    if half > seen and (math.isinf(half) or half > abs(low + high) / 4):
        return Change.TOO_NOISY
    if low > least:
        return Change.SLOWER
    if high < -least:
        return Change.FASTER
    return Change.SAME if max(-low, high) < seen else Change.TOO_NOISY


_OPPOSITE = {Change.SLOWER: Change.FASTER, Change.FASTER: Change.SLOWER}


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
