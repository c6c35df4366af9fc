"""Rerun: what came of running an accepted toolchain again beside the present one."""

from dataclasses import dataclass
from enum import Enum
from statistics import median

from assay.judge.changes import Ratio
from assay.judge.reruns import FEWEST_TURNS, Turns
from assay.model.evidence import Failure, Toolchain, Unavailable
from assay.model.timing import Machine


class RerunError(RuntimeError):
    """The rerun itself failed, neither the program nor a compiler; a fault of Assay or its use."""


class Side(Enum):
    """Which of the two toolchains."""

    OLD = "the accepted toolchain"
    NEW = "the present toolchain"


class Enough(Enum):
    """Why no more processes were started."""

    DECIDED = "they decide"
    PAIRS = "the cap of process pairs"
    SECONDS = "the cap of seconds"
    UNFINISHED = "it was interrupted"
    STOPPED = "it could not go on"


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

    @property
    def turns(self) -> Turns:
        """What the judge compares."""
        return Turns(first=self.old.samples, second=self.new.samples)

    @property
    def is_judged(self) -> bool:
        """Whether it took enough turns; in a short share of seconds it may not have."""
        return len(self.old.samples) >= FEWEST_TURNS


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """One program on the accepted and on the present toolchain, the new time over the old judged.

    ``ratio`` is None with fewer than two judged pairs. ``unavailable`` or ``failure`` says why
    there are no more; ``side`` is where, None where it is the comparison itself that cannot run.
    """

    suite: str
    workload: str
    arm: str
    target: str
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
