"""The rules that other harnesses judge two sets of samples by: whether the second is slower.

pytest-benchmark's own classes answer for pytest-benchmark. asv's rule is written down from
``asv.statistics.is_different`` and ``asv compare --factor``: medians further apart than a factor of
1.1, and a Mann-Whitney test with p below 0.002.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
from pytest_benchmark.stats import Stats
from pytest_benchmark.utils import parse_compare_fail
from scipy.stats import mannwhitneyu

Rule = Callable[[Sequence[float], Sequence[float]], bool]

_ASV_FACTOR: Final = 1.1
_ASV_CHANCE: Final = 0.002


def compare_fail(option: str, first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether ``--benchmark-compare-fail=option`` fails the second, the first being stored."""
    check = parse_compare_fail(option)
    return bool(check.fails(_fields(second), _fields(first)))


def asv(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether asv calls the second slower."""
    if np.median(second) / np.median(first) <= _ASV_FACTOR:
        return False
    return bool(mannwhitneyu(first, second, alternative="two-sided").pvalue < _ASV_CHANCE)


def _fields(seconds: Sequence[float]) -> Mapping[str, float]:
    stats = Stats()
    for each in seconds:
        stats.update(each)
    return {field: getattr(stats, field) for field in ("min", "median", "mean")}


RULES: Final[Mapping[str, Rule]] = {
    "pytest-benchmark min:5%": partial(compare_fail, "min:5%"),
    "pytest-benchmark median:5%": partial(compare_fail, "median:5%"),
    "pytest-benchmark mean:5%": partial(compare_fail, "mean:5%"),
    "asv, factor 1.1, p < 0.002": asv,
}
