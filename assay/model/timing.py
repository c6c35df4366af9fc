"""Times of two variants that alternate, the machine that they were measured on, and verdicts."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from statistics import median
from typing import Final

from assay.model.evidence import Coded, Failure, Toolchain
from assay.model.target import Unavailable
from assay.model.units import three_digits
from assay.model.workload import Variant, Workload


class Change(Coded):
    """The verdict on two programs; for a metric of which more is better, slower means less."""

    SLOWER = "slower", "slower"
    FASTER = "faster", "faster"
    SAME = "same", "same"
    TOO_NOISY = "too-noisy", "too noisy to decide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """How much change matters, and how often a verdict may be wrong.

    A change counts if its whole interval lies beyond ``least``, and reaches no further to either
    side than ``seen``, or than half of the change itself. Two programs are the same if the
    whole interval lies within ``seen``: the change that "same" promises to have seen. What lies
    between is too noisy to decide. ``errors`` bounds the chance that an interval misses the truth,
    over all looks at one comparison.
    """

    least: float = 0.02
    seen: float = 0.04
    errors: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.least < self.seen:
            raise ValueError(
                f"got a least change of {self.least} and a change to be seen of {self.seen}, "
                "wanted 0 <= least < seen; give both as shares, such as 0.02 and 0.04"
            )
        if not 0 < self.errors < 1:
            raise ValueError(
                f"got an error rate of {self.errors}, wanted a share between 0 and 1; "
                "0.01 is one wrong interval in a hundred"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The second time over the first, its confidence interval, and the verdict.

    ``units`` counts what was resampled: pairs of samples, pairs of processes, or sessions.
    ``reason`` says what else led to the verdict.
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
        return f"{self.ratio:.4g} ({low} to {high}, {self.units} units): {self.change.phrase}{why}"


class Work(Coded):
    """What is timed."""

    RUN = "run", "a run"
    TRACE = "trace", "tracing"


class Ending(Coded):
    """Why no more samples, or pairs of processes, were measured."""

    ENOUGH = "decided", "the pairs decide"
    TURNS = "most-pairs", "the maximum number of pairs"
    SECONDS = "time-limit", "the time limit"
    BELOW_CLOCK = "below-clock", "a run is too short for the clock"
    CUT_OFF = "cut-off", "a run took certainly too long"
    UNFINISHED = "interrupted", "it was interrupted"
    STOPPED = "failed", "a process failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Seconds of fixed work on the target's device, to tell a slow machine from a slow program.

    A product of two 512 × 512 matrices, a copy of 16 MiB, and the dispatch of one addition.
    """

    matmul: tuple[float, ...]
    copy: tuple[float, ...]
    dispatch: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTimes:
    """Seconds of one run in a profile, over all devices; None if the profile lacks the number.

    ``busy`` counts computation and transfers. ``hidden`` are those of transfers to and from the
    host during which the device did other work.
    """

    busy: float
    to_host: float | None = None
    to_device: float | None = None
    hidden: float | None = None


_MACHINE: Final = ("cores", "cpu", "device", "driver", "governor")
_READABLE_CHARACTERS: Final = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine of a measurement; "" or None is what could not be read.

    ``load`` is the load average of the minute before the measurement.
    """

    cpu: str
    cores: int
    device: str
    governor: str = ""
    driver: str = ""
    load: float | None = None

    @property
    def identity(self) -> dict[str, str]:
        """What must be equal to compare times of two machines; unknown parts are left out."""
        return {name: str(getattr(self, name)) for name in _MACHINE if getattr(self, name)}

    @property
    def fingerprint(self) -> str:
        """The identity as a file name: readable words, and a digest of the identity."""
        words = f"{self.cpu} {self.cores} cores {self.device}".lower()
        readable = re.sub("[^a-z0-9]+", "-", words).strip("-")[:_READABLE_CHARACTERS]
        canonical = json.dumps(self.identity, sort_keys=True).encode()
        return f"{readable}-{hashlib.sha256(canonical).hexdigest()[:8]}"

    def __str__(self) -> str:
        return ", ".join(f"{name} {text}" for name, text in self.identity.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTimes:
    """Wall times in seconds of a program in one process.

    ``first`` is the first run after compiling. A sample is the mean of ``runs_per_sample`` steady
    runs, more than 1 if a run is too short for the clock.
    """

    trace: float | None = None
    compile: float | None = None
    first: float | None = None
    runs_per_sample: int = 1
    samples: tuple[float, ...] = ()

    @property
    def steady(self) -> float | None:
        """The median of the samples."""
        return median(self.samples) if self.samples else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTimes(ProcessTimes):
    """The times of a variant, and those of its device."""

    variant: str
    on_device: DeviceTimes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times of two variants that alternate (A B B A …), or of the judged one alone.

    Sample k of one is the partner of sample k of the other. ``reference`` has no name if the judged
    variant is timed alone. ``failure`` or ``unavailable`` says why there are no more samples.
    ``failed_variant`` is empty if it is unknown which one failed. ``at_work`` is the variant that
    is now compiled or run for the first time. ``limit`` is the ratio of the two that was asked
    about. ``not_profiled`` says why a device has no times, ``retries`` how earlier attempts ended.
    """

    suite: str
    workload: str
    target: str
    question: str
    toolchain: Toolchain
    reference: VariantTimes
    judged: VariantTimes
    limit: float | None = None
    ended: Ending = Ending.UNFINISHED
    machine: Machine | None = None
    before: Calibration | None = None
    after: Calibration | None = None
    failure: Failure | None = None
    failed_variant: str = ""
    at_work: str = ""
    not_profiled: str = ""
    unavailable: Unavailable | None = None
    retries: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def drift(self) -> dict[str, float]:
        """The time of each fixed work after the measurement over that before, if known."""
        if self.before is None or self.after is None:
            return {}
        before, after = asdict(self.before), asdict(self.after)
        return {work: median(after[work]) / median(before[work]) for work in before}

    @property
    def is_alone(self) -> bool:
        """Whether one variant was timed by itself."""
        return not self.reference.variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The variant to alternate with the judged one, and when to end.

    Without a ``reference`` the judged variant is timed alone, in ``PROCESSES_ALONE`` processes.
    ``enough`` gets the samples of both so far, the reference's first; it must be picklable. Claims
    with the same ``question`` share their times; ``limit`` is the ratio that it asks about. Up to
    ``fewest`` samples of each, sampling may take twice its time limit. ``hopeless_after`` maps the
    seconds of the reference's first run to those after which the judged variant's first run is
    stopped. The first runs then decide.
    """

    reference: str
    question: str
    enough: Callable[[Sequence[float], Sequence[float]], bool]
    most: int
    limit: float | None = None
    fewest: int = 0
    hopeless_after: Callable[[float], float] | None = None
    work: Work = Work.RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPair:
    """A request for the times of two variants of a workload, or of one."""

    workload: Workload
    reference: Variant | None
    judged: Variant
    target: str
    turns: Turns
    most_seconds: float

    @property
    def variants(self) -> tuple[Variant, ...]:
        """What is timed, the reference first."""
        return (self.reference, self.judged) if self.reference else (self.judged,)

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for requests that share their times."""
        names = (variant.name for variant in self.variants)
        workload = self.workload
        return (workload.suite, workload.name, *names, self.target, self.turns.question)


Keep = Callable[[Times], None]
"""Receives the times so far, repeatedly while they are measured."""

PROCESSES_ALONE: Final = 4
"""Processes that time a variant alone: its memory, and so its time, differs between processes."""


def unmeasured(pair: TimedPair, toolchain: Toolchain) -> Times:
    """The times of a pair before the first sample."""
    return Times(
        suite=pair.workload.suite,
        workload=pair.workload.name,
        target=pair.target,
        question=pair.turns.question,
        toolchain=toolchain,
        reference=VariantTimes(variant=pair.reference.name if pair.reference else ""),
        judged=VariantTimes(variant=pair.judged.name),
        limit=pair.turns.limit,
    )


def pooled(processes: Sequence[Times]) -> Times:
    """The times of a variant alone in several processes: all samples, and the last ending."""
    first, last = processes[0], processes[-1]
    samples = chain.from_iterable(times.judged.samples for times in processes)
    return replace(
        first,
        judged=replace(first.judged, samples=tuple(samples)),
        ended=last.ended,
        after=last.after,
        failure=last.failure,
        failed_variant=last.failed_variant,
        unavailable=last.unavailable,
        seconds=sum(times.seconds for times in processes),
    )


def partner(times: Times, variant: VariantTimes) -> str:
    """The variant that a variant alternated with, or the question if it was timed alone."""
    if times.is_alone:
        return times.question
    return (times.judged if variant is times.reference else times.reference).variant


def format_seconds(seconds: float) -> str:
    """A time in the unit that keeps the number at 1 or more: ``1.25 ms``."""
    rounded = float(f"{seconds:.3g}")
    for step, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if rounded >= step:
            return f"{three_digits(seconds / step)} {unit}"
    return f"{three_digits(seconds / 1e-9)} ns"
