"""Times of two programs, taken alternately; the machine they were taken on; how they changed."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from assay.model.evidence import Coded, Failure, Toolchain, Unavailable
from assay.model.workload import Variant, Workload


class Change(Coded):
    """The verdict on two programs; for a metric of which more is better, slower means less."""

    SLOWER = "slower", "slower"
    FASTER = "faster", "faster"
    SAME = "same", "same"
    TOO_NOISY = "too-noisy", "too noisy to decide"


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
        return f"{self.ratio:.4g} ({low} to {high}, {self.units} units): {self.change.phrase}{why}"


class Work(Coded):
    """What of a program is timed, as a sentence begins that tells its time."""

    RUN = "run", "a run"
    TRACE = "trace", "tracing"


class Ending(Coded):
    """Why no more pairs were measured."""

    ENOUGH = "decided", "the pairs decide"
    TURNS = "most-pairs", "the maximum number of pairs"
    SECONDS = "time-limit", "the time limit"
    BELOW_CLOCK = "below-clock", "a run is too short for the clock"
    CUT_OFF = "cut-off", "a run took certainly too long"
    UNFINISHED = "interrupted", "it was interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Seconds of fixed work on the target's device, each done several times in a row.

    They tell a slow machine from a slow program: a product of two 512 × 512 matrices, a copy of
    16 MiB, and the dispatch of one addition.
    """

    matmul: tuple[float, ...]
    copy: tuple[float, ...]
    dispatch: tuple[float, ...]

    def over(self, before: "Calibration") -> dict[str, float]:
        """How many times as long each work takes now as before, by medians."""
        works = ("matmul", "copy", "dispatch")
        return {name: median(getattr(self, name)) / median(getattr(before, name)) for name in works}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTimes:
    """Seconds of one run by a profile: the device at work, and moving data to and from it.

    None is what the profile of this kind of device does not tell.
    """

    busy: float
    to_host: float | None = None
    to_device: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the times were taken on; an empty word or None is what could not be read.

    ``load`` is the load average of the last minute before the turns. ``throttles`` counts how
    often the processor slowed down for heat while they were taken.
    """

    cpu: str
    cores: int
    device: str
    governor: str = ""
    driver: str = ""
    load: float | None = None
    throttles: int | None = None

    @property
    def identity(self) -> dict[str, str]:
        """What must be equal for times of two machines to be compared; what is unknown is left out.

        Two machines of one kind are the same here: what they differ by, calibration tells.
        """
        parts = (
            ("cores", str(self.cores)),
            ("cpu", self.cpu),
            ("device", self.device),
            ("driver", self.driver),
            ("governor", self.governor),
        )
        return {name: text for name, text in parts if text}

    @property
    def fingerprint(self) -> str:
        """The identity as a name of a folder: readable, and different where the identity is."""
        words = f"{self.cpu} {self.cores} cores {self.device}".lower()
        readable = re.sub("[^a-z0-9]+", "-", words).strip("-")[:_READABLE]
        return f"{readable}-{digest(self.identity)}"

    def __str__(self) -> str:
        return ", ".join(f"{name} {text}" for name, text in self.identity.items())


_READABLE = 48


def digest(identity: Mapping[str, str]) -> str:
    """The last word of a fingerprint, which differs where identities do."""
    canonical = json.dumps(dict(identity), sort_keys=True).encode()
    return hashlib.sha256(canonical).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTimes:
    """One program's wall times in seconds, in the order in which they were taken.

    ``first`` is the first run after compiling. Each of ``samples`` is the time of one steady run:
    the mean of ``runs_per_sample`` runs, 1 where a run is long enough for the clock.
    """

    variant: str
    trace: float | None = None
    compile: float | None = None
    first: float | None = None
    runs_per_sample: int = 1
    samples: tuple[float, ...] = ()
    on_device: DeviceTimes | None = None

    @property
    def steady(self) -> float | None:
        """The median of the samples."""
        return median(self.samples) if self.samples else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Two programs' times, taken in turns (A B B A …): sample k of one stands beside the other's.

    A program that was timed alone is the judged one, and the reference then has no name.
    ``failure`` or ``unavailable`` says why there are no more; ``failed_variant`` is the one that
    failed and empty where that is not known. ``at_work`` is the variant that is compiled or run for
    the first time while these times are kept; empty while both take turns. ``not_profiled`` says
    why there are no times of a device that has some to tell.
    """

    suite: str
    workload: str
    target: str
    question: str
    toolchain: Toolchain
    reference: VariantTimes
    judged: VariantTimes
    ended: Ending = Ending.UNFINISHED
    machine: Machine | None = None
    before: Calibration | None = None
    after: Calibration | None = None
    failure: Failure | None = None
    failed_variant: str = ""
    at_work: str = ""
    not_profiled: str = ""
    unavailable: Unavailable | None = None
    seconds: float = 0.0

    @property
    def drift(self) -> dict[str, float]:
        """How many times as long each fixed work took after the turns as before, if known."""
        return self.after.over(self.before) if self.after and self.before else {}

    @property
    def is_alone(self) -> bool:
        """Whether one program was timed by itself."""
        return not self.reference.variant

    @property
    def calibration(self) -> dict[str, tuple[float, ...]]:
        """Seconds of all fixed work around the turns, by its kind."""
        taken = [each for each in (self.before, self.after) if each]
        return {
            work: tuple(seconds for each in taken for seconds in getattr(each, work))
            for work in ("matmul", "copy", "dispatch")
            if taken
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """What a claim wants timed: the variant that alternates with the judged one, and until when.

    Without a ``reference`` the judged variant is timed alone, in ``PROCESSES_ALONE`` fresh
    processes. ``enough`` gets the samples of both so far, the reference's first; it must be
    picklable. ``question`` says in a word what they are to decide: times are shared by all who ask
    the same. ``work`` says what of the programs is timed. For the first ``fewest`` samples of each,
    turns may last twice the seconds that they are given. A first run of the judged variant that
    lasts for ``hopeless_after`` the reference's seconds is ended, and decides.
    """

    reference: str
    question: str
    enough: Callable[[Sequence[float], Sequence[float]], bool]
    most: int
    fewest: int = 0
    hopeless_after: Callable[[float], float] | None = None
    work: Work = Work.RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPair:
    """A request for times: two variants of a workload, or one alone, on a target, in seconds."""

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
        """What makes two requests the same."""
        variants = (variant.name for variant in self.variants)
        return (
            self.workload.suite,
            self.workload.name,
            *variants,
            self.target,
            self.turns.question,
        )


PROCESSES_ALONE: Final = 4
"""In so many fresh processes a program is timed alone, for the memory of each lies elsewhere."""


def pooled(processes: Sequence[Times]) -> Times:
    """The times of one variant alone, of several processes: all samples, the rest of the first."""
    first = processes[0]
    samples = tuple(sample for times in processes for sample in times.judged.samples)
    last = processes[-1]
    return replace(
        first,
        judged=replace(first.judged, samples=samples),
        ended=last.ended,
        after=last.after,
        failure=last.failure,
        failed_variant=last.failed_variant,
        unavailable=last.unavailable,
        seconds=sum(times.seconds for times in processes),
    )


def beside(times: Times, variant: VariantTimes) -> str:
    """What a variant was timed beside: the other one's name, or that it was alone."""
    if times.is_alone:
        return times.question
    return (times.judged if variant is times.reference else times.reference).variant


Keep = Callable[[Times], None]
"""Takes the times as far as they are known, now and then while they are taken."""


def untaken(pair: TimedPair, toolchain: Toolchain) -> Times:
    """The times of a pair before any was taken."""
    return Times(
        suite=pair.workload.suite,
        workload=pair.workload.name,
        target=pair.target,
        question=pair.turns.question,
        toolchain=toolchain,
        reference=VariantTimes(variant=pair.reference.name if pair.reference else ""),
        judged=VariantTimes(variant=pair.judged.name),
    )


def format_seconds(seconds: float) -> str:
    """A time as a person reads it, in the unit that keeps the number at 1 or more."""
    for step, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= step:
            return f"{seconds / step:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
