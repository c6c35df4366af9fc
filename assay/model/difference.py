"""Differences: how one compiled program differs from another, in words of XLA's users."""

from dataclasses import dataclass
from enum import Enum

from assay.model.units import format_bytes


class Aspect(Enum):
    """What of a program a difference is about; most important first."""

    MEMORY = "memory"
    ARGUMENT = "argument"
    OUTPUT = "output"
    SHARED_BUFFER = "shared buffer"
    DONATION = "donation"
    LAYOUT = "layout"
    FULL_BUFFER_WRITE = "full-buffer write"
    HOST_PLACEMENT = "host placement"
    TRANSFER = "transfer"
    LOOP = "loop"
    TRIPS = "trip count"
    OVERLAP = "overlap"
    COLLECTIVE = "collective"
    FUSION = "fusion"
    OPERATION = "operation"
    UNNAMED = "unnamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing of which a program has more, fewer or others than the program before.

    ``before`` and ``after`` count the ``subject``: one None is an unknown count, both are no matter
    of counts; of memory they are bytes. ``nbytes`` is what the program after has more, negative for
    less; None if unknown. Of full-buffer writes and transfers it counts bytes per run, of all else
    the arrays themselves. ``source`` names the lines that it comes from.
    """

    aspect: Aspect
    subject: str
    before: int | None = None
    after: int | None = None
    where: str = ""
    nbytes: int | None = 0
    source: str | None = None

    def __str__(self) -> str:
        changed = self.before != self.after
        in_words = _bytes if self.aspect is Aspect.MEMORY else _count
        counts = f" {in_words(self.before)} → {in_words(self.after)}" if changed else ""
        where = f" {self.where}" if self.where else ""
        source = f", {self.source}" if self.source else ""
        return f"{self.subject}{counts}{where}{self._traffic}{source}"

    @property
    def _traffic(self) -> str:
        if self.aspect not in {Aspect.FULL_BUFFER_WRITE, Aspect.TRANSFER}:
            return ""
        if self.nbytes is None:
            return ", unknown how often"
        return f", {_signed(self.nbytes)} per run" if self.nbytes else ""

    @property
    def weight(self) -> tuple[int, float, str]:
        """Sorts the most important first: by aspect, then by bytes."""
        size = float("inf") if self.nbytes is None else abs(self.nbytes)
        return list(Aspect).index(self.aspect), -size, str(self)


def _count(count: int | None) -> str:
    return "unknown" if count is None else str(count)


def _bytes(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else format_bytes(nbytes)


def _signed(nbytes: int) -> str:
    return f"{'+' if nbytes > 0 else '−'}{format_bytes(abs(nbytes))}"
