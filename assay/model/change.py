"""Change: what became of a time or another metric, as a ratio with its interval."""

from dataclasses import dataclass
from enum import Enum


class Change(Enum):
    """The verdict on two programs; for a metric of which more is better, slower means less."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    TOO_NOISY = "too noisy to say"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The second over the first, with the interval that holds the truth, and what it amounts to.

    ``units`` counts what was resampled: pairs of samples, of processes, or sessions. ``reason``
    says what beside the interval led to the verdict.
    """

    ratio: float
    low: float
    high: float
    units: int
    change: Change
    reason: str = ""

    def __str__(self) -> str:
        low, high = (f"{bound:.4g}" for bound in (self.low, self.high))
        why = f", {self.reason}" if self.reason else ""
        return f"{self.ratio:.4g} ({low} to {high}, {self.units} units): {self.change.value}{why}"
