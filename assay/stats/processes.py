"""The ratio of two toolchains' times, from several pairs of processes run side by side.

Two processes of the same program differ by where their memory lies, so pairs of processes are what
is compared, and not their samples. Pairs are weighed by what noise left of each: random effects
(DerSimonian and Laird 1986) with Hartung and Knapp's interval (2001), never narrower than the
pairs' own noise allows. The three views are those of ``assay.stats.ratios``; here a minimum time is
a process's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import stdtrit

from assay.model.timing import Change, Ratio, Sensitivity
from assay.stats.ratios import (
    DEFAULT,
    VIEWS,
    Floats,
    View,
    calm_differences,
    differences,
    far_apart,
    judged,
    minimum_time_interval,
    of_views,
    signed_rank_interval,
    vary_alike,
)

PAIR_LOOKS: Final = (4, 6, 9, 12)
"""After so many pairs of processes they are judged, and no more are started if they decide."""

TURNS_OF_A_PAIR: Final = 48
"""How many turns a pair of processes takes: starting it costs more."""

FEWEST_TURNS: Final = 8
"""With fewer turns a pair of processes is not judged: its own noise is known too badly."""

_LEAST_ERROR: Final = 1e-4
_ONE_SIGMA: Final = 2 * (1 - 0.8413447460685429)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """What one pair of processes measured, told alternately to take a sample: seconds."""

    first: Sequence[float]
    second: Sequence[float]


def ratio_of_processes(pairs: Sequence[Turns], sensitivity: Sensitivity = DEFAULT) -> Ratio:
    """The second toolchain's time over the first's.

    Times that are ``far_apart`` decide at once, even one turn of one pair of processes. Else fewer
    than two pairs of ``FEWEST_TURNS`` are too noisy: one pair cannot tell a toolchain from where a
    process's memory happens to lie.

    Raises:
        ValueError: no turns, or turns that cannot be compared.
    """
    first, second = _pooled(pairs)
    found = far_apart(first, second, processes=len(pairs))
    if found is not None:
        return found
    usable = [pair for pair in pairs if len(pair.first) >= FEWEST_TURNS]
    if len(usable) < 2:  # noqa: PLR2004  (what varies between processes takes two to see)
        center, _ = signed_rank_interval(differences(first, second), _ONE_SIGMA)
        return judged((center, (-math.inf, math.inf)), len(pairs), sensitivity)
    share = sensitivity.errors / (len(PAIR_LOOKS) + 1) / VIEWS
    calm = _over_pairs([calm_differences(each.first, each.second) for each in usable], share)
    everything = _over_pairs([differences(each.first, each.second) for each in usable], share)
    minima = minimum_time_interval(
        np.log([min(each.first) for each in usable]),
        np.log([min(each.second) for each in usable]),
        share,
    )
    alike = vary_alike([(each.first, each.second) for each in usable])
    view, reason = of_views(calm, minima, everything, alike=alike)
    return judged(view, len(usable), sensitivity, reason=reason)


def _pooled(pairs: Sequence[Turns]) -> tuple[list[float], list[float]]:
    return (
        [seconds for pair in pairs for seconds in pair.first],
        [seconds for pair in pairs for seconds in pair.second],
    )


def more_pairs(pairs: Sequence[Turns], sensitivity: Sensitivity = DEFAULT) -> int:
    """How many more pairs of processes to start before looking again; 0 if these are enough."""
    if len(pairs) in PAIR_LOOKS:
        decided = ratio_of_processes(pairs, sensitivity).change is not Change.TOO_NOISY
    else:
        decided = far_apart(*_pooled(pairs), processes=len(pairs)) is not None
    if decided:
        return 0
    return next((look - len(pairs) for look in PAIR_LOOKS if look > len(pairs)), 0)


def random_effects(centers: Floats, errors: Floats, share: float) -> tuple[float, float]:
    """The mean of estimates that differ more than their errors say, and its interval's half."""
    variances = np.maximum(errors, _LEAST_ERROR) ** 2
    weights = 1 / variances
    degrees = len(centers) - 1
    scatter = np.sum(weights * (centers - _mean(centers, weights)) ** 2)
    scale = weights.sum() - np.sum(weights**2) / weights.sum()
    between = max(0.0, float((scatter - degrees) / scale))
    weights = 1 / (variances + between)
    center = _mean(centers, weights)
    spread = max(1.0, float(np.sum(weights * (centers - center) ** 2)) / degrees)
    half = float(stdtrit(degrees, 1 - share / 2)) * math.sqrt(spread / weights.sum())
    return center, half


def _mean(centers: Floats, weights: Floats) -> float:
    return float(np.sum(weights * centers) / weights.sum())


def _over_pairs(found: Sequence[Floats], share: float) -> View:
    """The mean over pairs of processes of their own ratios, as a logarithm, and its interval."""
    centers, errors = [], []
    for each in found:
        center, (low, high) = signed_rank_interval(each, _ONE_SIGMA)
        centers.append(center)
        errors.append((high - low) / 2)
    mean, half = random_effects(np.array(centers), np.array(errors), share)
    return mean, (mean - half, mean + half)
