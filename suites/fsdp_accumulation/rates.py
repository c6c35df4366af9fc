"""How often something was seen: a count, its interval, and the odds that two counts are alike."""

import math
from dataclasses import dataclass
from typing import Final

_Z: Final = 1.959964
"""Standard deviations that hold 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """``seen`` of ``tried`` attempts."""

    seen: int
    tried: int

    def __post_init__(self) -> None:
        if not 0 <= self.seen <= self.tried or not self.tried:
            raise ValueError(f"got {self.seen} of {self.tried}, wanted a part of some attempts")

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the probability, for attempts independent of each other."""
        share, tried = self.seen / self.tried, self.tried
        scale = 1 + _Z**2 / tried
        centre = (share + _Z**2 / (2 * tried)) / scale
        half = _Z * math.sqrt(share * (1 - share) / tried + (_Z / (2 * tried)) ** 2) / scale
        return max(0.0, centre - half), min(1.0, centre + half)


def fisher_p(one: Rate, other: Rate) -> float:
    """Fisher's exact test, two-sided: the probability of a difference at least this unlikely."""
    seen, tried = one.seen + other.seen, one.tried + other.tried
    whole = _log_choose(tried, seen)

    def log_probability(of_one: int) -> float:
        ways = _log_choose(one.tried, of_one) + _log_choose(other.tried, seen - of_one)
        return ways - whole

    possible = range(max(0, seen - other.tried), min(one.tried, seen) + 1)
    limit = log_probability(one.seen) + 1e-9  # rounding must not leave out what is as likely
    found = (each for each in map(log_probability, possible) if each <= limit)
    return min(1.0, math.fsum(map(math.exp, found)))


def _log_choose(of: int, chosen: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(chosen + 1) - math.lgamma(of - chosen + 1)
