"""The ratio of two toolchains' times, from several pairs of processes run side by side.

Two processes of one program differ by where their memory lies. Pairs of processes are therefore
compared, not their samples, weighted by their noise: random effects (DerSimonian and Laird 1986)
with Hartung and Knapp's interval (2001), which is never narrower than the noise of the pairs. The
three estimates are those of ``assay.stats.ratios``. A minimum time is that of a process.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

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
"""The numbers of pairs of processes at which they are judged. No more start if they decide."""

TURNS_OF_A_PAIR: Final = 48
"""Samples that each process of a pair takes."""

FEWEST_TURNS: Final = 8
"""The fewest samples of a pair of processes that is judged. Fewer do not show its noise."""

_LEAST_ERROR: Final = 1e-4
_ONE_SIGMA: Final = 2 * (1 - 0.8413447460685429)


class Turns(NamedTuple):
    """Seconds of the samples that two processes took alternately."""

    first: Sequence[float]
    second: Sequence[float]


def ratio_of_processes(pairs: Sequence[Turns], sensitivity: Sensitivity = DEFAULT) -> Ratio:
    """The second toolchain's time over the first's.

    Times that are ``far_apart`` decide at once, even one turn of one pair of processes. Otherwise
    fewer than two pairs of ``FEWEST_TURNS`` are too noisy, because one pair does not show the
    variation between processes.

    Raises:
        ValueError: no turns, or turns that cannot be compared.
    """
    first, second = _pooled(pairs)
    found = far_apart(first, second, processes=len(pairs))
    if found is not None:
        return found
    usable = [pair for pair in pairs if len(pair.first) >= FEWEST_TURNS]
    if len(usable) < 2:  # noqa: PLR2004  (one pair shows no variation)
        center, _ = signed_rank_interval(differences(first, second), _ONE_SIGMA)
        return judged((center, (-math.inf, math.inf)), len(pairs), sensitivity)
    share = sensitivity.errors / (len(PAIR_LOOKS) + 1) / VIEWS
    calm = _over_pairs([calm_differences(*each) for each in usable], share)
    everything = _over_pairs([differences(*each) for each in usable], share)
    minima = minimum_time_interval(
        np.log([min(each.first) for each in usable]),
        np.log([min(each.second) for each in usable]),
        share,
    )
    view, reason = of_views(calm, minima, everything, alike=vary_alike(usable))
    return judged(view, len(usable), sensitivity, reason=reason)


def _pooled(pairs: Sequence[Turns]) -> tuple[list[float], list[float]]:
    return (
        [seconds for pair in pairs for seconds in pair.first],
        [seconds for pair in pairs for seconds in pair.second],
    )


def more_pairs(pairs: Sequence[Turns], sensitivity: Sensitivity = DEFAULT) -> int:
    """How many more pairs of processes to start before the next look; 0 to start no more."""
    if len(pairs) in PAIR_LOOKS:
        decided = ratio_of_processes(pairs, sensitivity).change is not Change.TOO_NOISY
    else:
        decided = far_apart(*_pooled(pairs), processes=len(pairs)) is not None
    if decided:
        return 0
    return next((look - len(pairs) for look in PAIR_LOOKS if look > len(pairs)), 0)


def random_effects(centers: Floats, errors: Floats, share: float) -> tuple[float, float]:
    """The mean of estimates that differ by more than their errors, and half of its interval."""
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
    """The mean of the ratios of pairs of processes, as a logarithm, and its interval."""
    centers, errors = [], []
    for each in found:
        center, (low, high) = signed_rank_interval(each, _ONE_SIGMA)
        centers.append(center)
        errors.append((high - low) / 2)
    mean, half = random_effects(np.array(centers), np.array(errors), share)
    return mean, (mean - half, mean + half)
