"""Synthetic times of a realistic shape, seeded: jitter, drift, bursts, outliers, coarse clocks."""

import numpy as np

from assay.stats.ratios import Floats

MEDIUM = 10e-3
"""Seconds that the undisturbed program takes."""


def turns(  # noqa: PLR0913 - each is one kind of noise
    ratio: float,
    seed: int,
    *,
    pairs: int = 64,
    jitter: float = 0.005,
    drift: float = 0.0,
    busy: float = 0.0,
    outliers: float = 0.0,
    tick: float = 0.0,
) -> tuple[list[float], list[float]]:
    """Samples of two programs taken A B B A …, the second ``ratio`` times as long.

    ``drift`` is the machine's change of speed over the whole run; ``busy`` the share of samples
    that a neighbour slows by a scheduler's quanta; ``outliers`` the share that takes ten times as
    long; ``tick`` the clock's resolution in seconds.
    """
    chance = np.random.default_rng(seed)
    second = np.tile([False, True, True, False], -(-pairs // 2))[: 2 * pairs]
    base = np.where(second, ratio, 1.0) * MEDIUM
    seconds = base * np.exp(np.abs(chance.normal(0, jitter, 2 * pairs)))
    seconds *= np.exp(np.linspace(0, drift, 2 * pairs))
    seconds += (chance.random(2 * pairs) < busy) * 4e-3 * chance.integers(1, 4, 2 * pairs)
    seconds *= np.where(chance.random(2 * pairs) < outliers, 10, 1)
    if tick:
        seconds = np.maximum(np.round(seconds / tick), 1) * tick
    return seconds[~second].tolist(), seconds[second].tolist()


def level(seconds: float, seed: int, *, count: int = 40, busy: float = 0.3) -> Floats:
    """Samples of one program in one session, some of them disturbed."""
    chance = np.random.default_rng(seed)
    disturbed = (chance.random(count) < busy) * chance.exponential(0.5, count)
    samples: Floats = seconds * np.exp(np.abs(chance.normal(0, 0.005, count)) + disturbed)
    return samples
