"""What changed in series of verdicts and numbers over runs."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Final

from assay.model.history import Change, Trend
from assay.model.units import Unit
from assay.model.verdict import Outcome

_EXACT: Final = (Unit.BYTES, Unit.COUNT)


def with_changes(trends: Sequence[Trend]) -> tuple[Trend, ...]:
    """The trends with their changes: of the level of the numbers, and of the verdicts.

    Bytes and counts change where they differ, times and ratios beyond noise. ``inconclusive`` is
    not a change of verdict; a number measured with it counts.
    """
    numbers = {
        place: [each.measured for each in trend.samples if each.measured is not None]
        for place, trend in enumerate(trends)
    }
    noisy = [place for place, trend in enumerate(trends) if trend.unit not in _EXACT]
    cuts = {place: differences(own) for place, own in numbers.items()}
    if noisy:
        from assay.stats.change_points import (
            change_points,  # It takes longer to import than to run.
        )

        cuts |= zip(noisy, change_points([numbers[place] for place in noisy]), strict=True)
    return tuple(
        replace(trend, changes=_changes(trend, numbers[place], cuts[place]))
        for place, trend in enumerate(trends)
    )


def _changes(trend: Trend, numbers: Sequence[float], cuts: Sequence[int]) -> tuple[Change, ...]:
    samples = trend.samples
    measured = [index for index, each in enumerate(samples) if each.measured is not None]
    edges = pairwise([0, *cuts, len(numbers)])
    medians = [median(numbers[low:high]) for low, high in edges if low < high]
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
    places = sorted({*levels, *verdicts}, key=lambda place: place[::-1])
    return tuple(
        Change(samples[place[0]], samples[place[1]], levels.get(place), verdicts.get(place))
        for place in places
    )


def differences(numbers: Sequence[float]) -> list[int]:
    """The indices of numbers that differ from the one before."""
    return [index for index, (one, two) in enumerate(pairwise(numbers), 1) if one != two]
