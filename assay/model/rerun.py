"""Rerun: what came of running a baseline toolchain again beside the present one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from assay.model.evidence import Coded, Failure, Toolchain, Unavailable
from assay.model.timing import Machine, Ratio, format_seconds
from assay.model.workload import Variant, Workload


class Side(Coded):
    """Which of the two toolchains."""

    OLD = "baseline", "the baseline toolchain"
    NEW = "present", "the present toolchain"


class Enough(Coded):
    """Why no more processes were started."""

    DECIDED = "decided", "the pairs decide"
    PAIRS = "most-pairs", "the maximum number of process pairs"
    SECONDS = "time-limit", "the time limit"
    UNFINISHED = "interrupted", "it was interrupted"
    STOPPED = "failed", "a process failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTimes:
    """One process's times in seconds; sample k stands beside sample k of its partner.

    Each sample is the mean of ``runs_per_sample`` runs.
    """

    trace: float | None
    compile: float | None
    first: float
    runs_per_sample: int
    samples: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two processes that took turns, one on each toolchain."""

    old: ProcessTimes
    new: ProcessTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """One program on the baseline and on the present toolchain, the new time over the old judged.

    ``ratio`` is None with fewer than two judged pairs, unless they are far apart. ``unavailable``
    or ``failure`` says why there are no more; ``side`` is where, None where it is the comparison
    itself that cannot run.
    A ``negative_control`` is a variant that must fail: see ``RerunRequest``.
    """

    suite: str
    workload: str
    variant: str
    target: str
    negative_control: bool = False
    ended: Enough = Enough.UNFINISHED
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

    def compile_seconds(self, side: Side) -> float | None:
        """The median over processes of a toolchain's compile time, if it tells one."""
        found = [(pair.old if side is Side.OLD else pair.new).compile for pair in self.pairs]
        known = [seconds for seconds in found if seconds is not None]
        return median(known) if known else None

    def versions(self, side: Side) -> str:
        """A toolchain in words: what tells it from the other, or all of it if nothing does."""
        mine, other = (self.old, self.new) if side is Side.OLD else (self.new, self.old)
        if mine is None:
            return side.phrase
        known = other.identity if other else {}
        differs = {name: each for name, each in mine.identity.items() if known.get(name) != each}
        return ", ".join(f"{name} {each}" for name, each in sorted(differs.items())) or str(mine)

    @property
    def told(self) -> str:
        """What was measured, in words; empty without a ratio."""
        if self.ratio is None:
            return ""
        new, old = (format_seconds(median(self.samples(side))) for side in (Side.NEW, Side.OLD))
        times, there = f"{self.ratio.ratio:.4g} times", self.versions(Side.OLD)
        told = f"a run on {self.versions(Side.NEW)} takes {times} what it takes on {there}"
        if self.negative_control:
            told = f"a run done twice takes {times} what one takes, both on {there}"
        bounds = f"{self.ratio.low:.4g} to {self.ratio.high:.4g}"
        return f"{told} ({bounds} by {self.ratio.units} pairs of processes: {new} against {old})"

    def samples(self, side: Side) -> tuple[float, ...]:
        """A toolchain's samples in seconds, of all its processes."""
        times = [pair.old if side is Side.OLD else pair.new for pair in self.pairs]
        return tuple(sample for each in times for sample in each.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """The change that a rerun is to find, as shares: what counts, and what must have been seen."""

    least: float
    seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunRequest:
    """A request for a rerun: a variant on a target, on the baseline toolchain and on this one.

    ``baseline`` is a baseline's toolchain, or a version as the user writes it. A
    ``negative_control`` runs on the baseline toolchain on both sides, and does all twice on the
    second: a slowdown that is really there, which no sound judge misses.
    """

    workload: Workload
    variant: Variant
    target: str
    baseline: Mapping[str, str] | str
    sought: Sought
    negative_control: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two requests the same."""
        baseline = self.baseline
        text = baseline if isinstance(baseline, str) else str(sorted(baseline.items()))
        control = f"negative control {self.negative_control}"
        asked = f"{text}, {self.sought.least:g} to {self.sought.seen:g}, {control}"
        return (self.workload.suite, self.workload.name, self.variant.name, self.target, asked)


KeepRerun = Callable[[Rerun], None]
"""Takes a rerun as far as it is known, after every pair of processes."""


def not_rerun(request: RerunRequest, side: Side, why: Unavailable) -> Rerun:
    """The rerun that could not be begun, because of that side."""
    return Rerun(
        suite=request.workload.suite,
        workload=request.workload.name,
        variant=request.variant.name,
        target=request.target,
        negative_control=request.negative_control,
        ended=Enough.STOPPED,
        unavailable=why,
        side=side,
    )
