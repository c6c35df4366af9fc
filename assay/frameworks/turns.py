"""Interleaved samples of two programs, until they decide; process priority while sampling.

A single program takes every sample.
"""

import gc
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from assay.model.timing import Ending, Machine, Turns

_CPU = Path("/sys/devices/system/cpu")
_GOVERNOR = _CPU / "cpu0/cpufreq/scaling_governor"
_NVIDIA = Path("/sys/module/nvidia/version")
_THREADS: Final = Path("/proc/self/task")
_SESSION: Final = Path("/proc/self/autogroup")
_FIRST: Final = -20
"""The nice value of the highest scheduling priority."""


def machine(device: Any) -> Machine:
    """The machine as it is now; ``device`` is jax's own object."""
    is_gpu = device.platform == "gpu"
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        device=device.device_kind,
        governor=_word(_GOVERNOR),
        driver=_word(_NVIDIA) if is_gpu else "",
        load=os.getloadavg()[0],
    )


def throttles() -> int | None:
    """How often the processors throttled for heat since boot, if they count it."""
    counts = [_word(file) for file in _CPU.glob("cpu*/thermal_throttle/core_throttle_count")]
    return sum(map(int, counts)) if counts and all(counts) else None


@contextmanager
def run_first() -> Iterator[None]:
    """Have the scheduler run this process before others, where it may: as root, or CAP_SYS_NICE.

    Elsewhere nothing changes. Linux weighs the sessions first (sched(7), "The autogroup feature"),
    then the threads of each.
    """
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    session = _word(_SESSION).rpartition(" ")[2]  # "/autogroup-7885 nice 0"
    before = {thread: _nice(thread, usual) for thread in _threads()}
    _set_session(str(_FIRST))
    for thread in before:
        _set_nice(thread, _FIRST)
    try:
        yield
    finally:
        for thread in _threads():
            _set_nice(thread, before.get(thread, usual))
        _set_session(session)


def _threads() -> list[int]:
    return [int(thread.name) for thread in _THREADS.iterdir()]


def _nice(thread: int, usual: int) -> int:
    try:
        return os.getpriority(os.PRIO_PROCESS, thread)
    except OSError:  # It has ended.
        return usual


def _set_nice(thread: int, value: int) -> None:
    # It may have ended, or may not be changed.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, value)


def _set_session(nice: str) -> None:
    with suppress(OSError):
        _SESSION.write_text(nice)


def _cpu() -> str:
    lines = _word(Path("/proc/cpuinfo")).splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, os.uname().machine)


def _word(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


Clock = Callable[[], float]

_CLOCK_STEPS_A_SAMPLE = 1000  # so that the clock's resolution is a thousandth of a sample
_MOST_RUNS_A_SAMPLE = 1024
_WARM_RUNS = 2
_SHARE_OF_A_LONG_RUN = 0.1
_FAR_SLOWER = 8
_STRETCH = 2
"""While too few samples are there to decide at all, turns may last so many times their seconds."""

_READINGS = 20


@dataclass(slots=True, kw_only=True)
class Runner:
    """One of two programs; ``run`` gives the seconds that so many runs take, one after another.

    ``most_runs`` bounds the runs of a sample, for each may need arguments of its own. ``compiles``
    says that the first run does so too, and tells nothing of those after it.
    """

    run: Callable[[int], float]
    most_runs: int = _MOST_RUNS_A_SAMPLE
    compiles: bool = False
    first: float | None = None
    next: float = 0.0
    runs_per_sample: int = 1
    samples: list[float] = field(default_factory=list)

    def begin(self) -> None:
        """Run the program for the first time, and estimate the time of a run."""
        self.first = self.next = self.run(1)
        if self.compiles:
            self.next = self.run(1)

    def warm_up(self, least_seconds: float) -> bool:
        """Run it till it is steady, and learn how many runs last ``least_seconds``, if any do."""
        for _ in range(_WARM_RUNS):
            seconds = self.run(self.runs_per_sample)
        while seconds < least_seconds and self.runs_per_sample < self.most_runs:
            needed = math.ceil(self.runs_per_sample * least_seconds / seconds) if seconds else 0
            wanted = max(needed, 2 * self.runs_per_sample)
            self.runs_per_sample = min(wanted, self.most_runs)
            seconds = self.run(self.runs_per_sample)
        return seconds >= least_seconds

    def sample(self) -> None:
        """Take one sample."""
        self.samples.append(self.run(self.runs_per_sample) / self.runs_per_sample)


def take_turns(
    runners: tuple[Runner, ...],
    turns: Turns,
    *,
    most_seconds: float,
    taken: Callable[[], None] = lambda: None,
    clock: Clock = time.perf_counter,
) -> Ending:
    """Run both once, warm them up, then sample A B B A … until ``turns.enough`` says so.

    First runs are the samples where the second program's lasts for ``turns.hopeless_after``. No
    turn is begun that would end after ``most_seconds``, as far as the runs before tell; twice as
    many while there are fewer than ``turns.fewest`` samples. First runs that compile are not
    counted. ``taken`` is called after every two samples of each. Samples of a program by itself are
    those of the judged one. Raises what the programs raise.
    """
    start = clock()
    for runner in runners:
        runner.begin()
    *others, judged = runners
    hopeless_after = turns.hopeless_after
    if others and hopeless_after and judged.next >= hopeless_after(others[0].next):
        for runner in runners:
            runner.samples.append(runner.next)
        return Ending.ENOUGH
    compiled = sum((runner.first or 0.0) for runner in runners if runner.compiles)
    if not _warmed_up(runners, most_seconds, clock):
        return Ending.BELOW_CLOCK
    reference = others[0].samples if others else []
    with _no_collector(), run_first():
        while len(judged.samples) < turns.most:
            number = len(judged.samples)
            cap = most_seconds * (_STRETCH if number < turns.fewest else 1)
            if clock() + sum(map(_sample_seconds, runners)) > start + compiled + cap:
                return Ending.SECONDS
            for runner in runners if number % 2 == 0 else runners[::-1]:
                runner.sample()
            if number % 2:
                taken()
            if turns.enough(reference, judged.samples):
                return Ending.ENOUGH
    return Ending.TURNS


def _warmed_up(runners: Sequence[Runner], most_seconds: float, clock: Clock) -> bool:
    """Warm up what gains by it; whether samples are then long enough for the clock.

    A run so long needs no warming up, and leaves no time for it; nor does one that takes many times
    as long as the other, which few samples tell.
    """
    if sum(runner.next for runner in runners) >= _SHARE_OF_A_LONG_RUN * most_seconds:
        return True
    least = _CLOCK_STEPS_A_SAMPLE * clock_step(clock)
    far_slower = max(least, _FAR_SLOWER * min(runner.next for runner in runners))
    warm = [runner.warm_up(least) for runner in runners if runner.next <= far_slower]
    return all(warm)


def clock_step(clock: Clock) -> float:
    """The smallest observed difference between two readings of the clock."""
    least, readings = math.inf, 0
    before = clock()
    while readings < _READINGS:
        now = clock()
        if now > before:
            least, before, readings = min(least, now - before), now, readings + 1
    return least


def _sample_seconds(runner: Runner) -> float:
    """What the next sample will take, going by the last one or by the run before."""
    one = runner.samples[-1] if runner.samples else runner.next
    return one * runner.runs_per_sample


@contextmanager
def _no_collector() -> Iterator[None]:
    """Collect garbage, then disable the collector, which would disturb the running program."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
