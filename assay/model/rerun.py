"""Reruns: one variant on a baseline toolchain and on the present one, in pairs of processes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from statistics import median

from assay.model.evidence import Coded, Failure, Toolchain
from assay.model.target import Unavailable
from assay.model.timing import (
    Ending,
    Machine,
    ProcessTimes,
    Ratio,
    Sensitivity,
    format_seconds,
)
from assay.model.workload import Variant, Workload


class Side(Coded):
    """One of the two toolchains of a rerun."""

    OLD = "baseline", "the baseline toolchain"
    NEW = "present", "the present toolchain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two processes that alternate, one on each toolchain."""

    old: ProcessTimes
    new: ProcessTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """The times of one variant on the present toolchain over those on a baseline's.

    ``ratio`` is None with fewer than two judged pairs, unless they are far apart. ``unavailable``
    or ``failure`` says why there are no more, and ``side`` on which toolchain; None if the
    comparison itself cannot run. For ``negative_control`` see ``RerunRequest``.
    """

    suite: str
    workload: str
    variant: str
    target: str
    negative_control: bool = False
    ended: Ending = Ending.UNFINISHED
    old: Toolchain | None = None
    new: Toolchain | None = None
    old_python: str = ""
    new_python: str = ""
    machine: Machine | None = None
    pairs: tuple[Pair, ...] = ()
    ratio: Ratio | None = None
    failure: Failure | None = None
    unavailable: Unavailable | None = None
    side: Side | None = None
    seconds: float = 0.0

    def samples(self, side: Side) -> tuple[float, ...]:
        """A toolchain's samples in seconds, of all its processes."""
        return tuple(chain.from_iterable(each.samples for each in self._processes(side)))

    def compile_seconds(self, side: Side) -> float | None:
        """The median of a toolchain's compile times, if they are known."""
        known = [each.compile for each in self._processes(side) if each.compile is not None]
        return median(known) if known else None

    def _processes(self, side: Side) -> list[ProcessTimes]:
        return [pair.old if side is Side.OLD else pair.new for pair in self.pairs]

    def versions(self, side: Side) -> str:
        """The parts of a toolchain that differ from the other; all of it if none does."""
        mine, other = (self.old, self.new) if side is Side.OLD else (self.new, self.old)
        if mine is None:
            return side.phrase
        differs = mine.identity.items() - (other.identity if other else {}).items()
        return ", ".join(f"{name} {version}" for name, version in sorted(differs)) or str(mine)

    @property
    def description(self) -> str:
        """What was measured, in words; empty without a ratio."""
        if self.ratio is None:
            return ""
        new, old = (format_seconds(median(self.samples(side))) for side in (Side.NEW, Side.OLD))
        times, baseline = f"{self.ratio.ratio:.4g} times", self.versions(Side.OLD)
        words = f"a run on {self.versions(Side.NEW)} takes {times} what it takes on {baseline}"
        if self.negative_control:
            words = f"a run done twice takes {times} what one takes, both on {baseline}"
        bounds = f"{self.ratio.low:.4g} to {self.ratio.high:.4g}"
        return f"{words} ({bounds} by {self.ratio.units} pairs of processes: {new} against {old})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunRequest:
    """A request for a rerun of a variant on a target.

    ``baseline`` is a baseline's toolchain, or a version as the user writes it. A
    ``negative_control`` runs on the baseline toolchain on both sides, and each of its runs on the
    second side is done twice: a slowdown that every sound judge detects.
    """

    workload: Workload
    variant: Variant
    target: str
    baseline: Mapping[str, str] | str
    sensitivity: Sensitivity
    negative_control: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for requests that share their rerun."""
        baseline = self.baseline
        text = baseline if isinstance(baseline, str) else str(sorted(baseline.items()))
        control = f"negative control {self.negative_control}"
        asked = f"{text}, {self.sensitivity.least:g} to {self.sensitivity.seen:g}, {control}"
        return (*self.workload.key(self.variant.name, self.target), asked)


KeepRerun = Callable[[Rerun], None]
"""Receives the rerun so far, after every pair of processes."""
