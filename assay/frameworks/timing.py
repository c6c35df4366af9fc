"""Times of a pair of programs, or of one alone: interleaved samples, until they decide.

While samples are taken, the process has priority and collects no garbage.
"""

import gc
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.frameworks.failures import stage
from assay.frameworks.framework import Framework, Ready, built
from assay.frameworks.installed import processor
from assay.model.collector import collector_off
from assay.model.evidence import FailureKind
from assay.model.timing import Ending, Keep, Machine, TimedPair, Times, Turns, Work
from assay.model.workload import Program

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_THREADS = Path("/proc/self/task")
_AUTOGROUP = Path("/proc/self/autogroup")
_HIGHEST_PRIORITY = -20  # as a nice value


def machine(device: Any) -> Machine:
    """The machine as it is now; ``device`` is jax's own object."""
    is_gpu = device.platform == "gpu"
    return Machine(
        cpu=processor(),
        cores=len(os.sched_getaffinity(0)),
        device=device.device_kind,
        governor=_word(_GOVERNOR),
        driver=_word(Path("/sys/module/nvidia/version")) if is_gpu else "",
        load=os.getloadavg()[0],
    )


def _word(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


@contextmanager
def run_first() -> Iterator[None]:
    """Give this process priority over others, which takes root or CAP_SYS_NICE; else do nothing.

    Linux weighs the sessions first (sched(7), "The autogroup feature"), then their threads.
    """
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    session = _word(_AUTOGROUP).rpartition(" ")[2]  # "/autogroup-7885 nice 0"
    before = {}
    for thread in _threads():
        with suppress(OSError):  # The thread has ended.
            before[thread] = os.getpriority(os.PRIO_PROCESS, thread)
    _set_nice(str(_HIGHEST_PRIORITY), dict.fromkeys(before, _HIGHEST_PRIORITY))
    try:
        yield
    finally:
        _set_nice(session, {thread: before.get(thread, usual) for thread in _threads()})


def _threads() -> list[int]:
    return [int(thread.name) for thread in _THREADS.iterdir()]


def _set_nice(session: str, threads: Mapping[int, int]) -> None:
    with suppress(OSError):
        _AUTOGROUP.write_text(session)
    for thread, nice in threads.items():
        with suppress(OSError):  # It has ended, or may not be changed.
            os.setpriority(os.PRIO_PROCESS, thread, nice)


Clock = Callable[[], float]

_CLOCK_READINGS = 20
_CLOCK_STEPS_A_SAMPLE = 1000  # so that the clock's resolution is a thousandth of a sample
_MOST_RUNS_A_SAMPLE = 1024
_WARM_RUNS = 2
_SHARE_OF_A_LONG_RUN = 0.1
_FAR_SLOWER = 8
_STRETCH = 2  # Before the fewest samples are taken, turns may last so many times their seconds.


@dataclass(slots=True, kw_only=True)
class Runner:
    """One of two programs; ``run(count)`` gives the total seconds of ``count`` runs.

    ``most_runs`` bounds the runs of a sample, for each may need arguments of its own. ``compiles``
    says that the first run also compiles. ``next`` estimates the seconds of a run.
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
        """Run it until it is steady. Whether some number of runs lasts for ``least_seconds``."""
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

    If the second program's first run lasts for ``turns.hopeless_after``, the first runs are the
    samples. No turn starts that is expected to end after ``most_seconds``, or after twice as many
    while there are fewer than ``turns.fewest`` samples. First runs that compile do not count
    towards these seconds. ``taken`` is called after every two samples of each. A single program is
    the judged one. Raises what the programs raise.
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
    start += sum((runner.first or 0.0) for runner in runners if runner.compiles)
    if not _warmed_up(runners, most_seconds, clock):
        return Ending.BELOW_CLOCK
    reference = others[0].samples if others else []
    # A collection would disturb the running program.
    gc.collect()
    with collector_off(), run_first():
        while (number := len(judged.samples)) < turns.most:
            expected = sum(
                (runner.samples[-1] if number else runner.next) * runner.runs_per_sample
                for runner in runners
            )
            cap = most_seconds * (_STRETCH if number < turns.fewest else 1)
            if clock() + expected > start + cap:
                return Ending.SECONDS
            for runner in runners if number % 2 == 0 else runners[::-1]:
                runner.sample()
            if number % 2:
                taken()
            if turns.enough(reference, judged.samples):
                return Ending.ENOUGH
    return Ending.TURNS


def _warmed_up(runners: Sequence[Runner], most_seconds: float, clock: Clock) -> bool:
    """Warm up the runners; whether samples are then long enough for the clock.

    A long run needs no warm-up, and leaves no time for it. A run that is many times as long as the
    other needs none either: few samples decide.
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
    while readings < _CLOCK_READINGS:
        now = clock()
        if now > before:
            least, before, readings = min(least, now - before), now, readings + 1
    return least


def ready_to_trace(tools: Framework, program: Program) -> Ready:
    """A program that each run traces and lowers anew. Caches are cleared before each run."""

    def once() -> float:
        tools.forget()
        start = time.perf_counter()
        lowered = tools.lower(tools.trace(program))
        seconds = time.perf_counter() - start
        del lowered
        return seconds

    return Ready(run=lambda count: sum(once() for _ in range(count)), most_runs=_MOST_RUNS_A_SAMPLE)


_KEEP_SECONDS = 1.0
_FAILS_BY = {Work.RUN: FailureKind.EXECUTION, Work.TRACE: FailureKind.TRACE}


class PairTimer:
    """Measures the times of one pair. ``times`` holds the results so far."""

    def __init__(self, pair: TimedPair, times: Times, keep: Keep) -> None:
        self._pair = pair
        self._times = times
        self._keep = keep
        self._last_kept = -math.inf
        # By the field of ``Times`` that holds the times of each.
        fields = ("reference", "judged")[-len(pair.variants) :]
        self._variants = dict(zip(fields, pair.variants, strict=True))
        self._runners: dict[str, Runner] = {}

    @property
    def times(self) -> Times:
        """The times so far, without a last sample that has no partner."""
        pairs = min((len(runner.samples) for runner in self._runners.values()), default=0)
        for place, runner in self._runners.items():
            samples = tuple(runner.samples[:pairs])
            runs = runner.runs_per_sample
            self._note_variant(place, first=runner.first, runs_per_sample=runs, samples=samples)
        return self._times

    def run(self, tools: Framework) -> None:
        """Compile, calibrate, sample alternately, calibrate again, and profile where possible.

        Raises:
            Ended: one of the programs failed.
        """
        from assay.frameworks.jax_timing import calibrate

        turns, device = self._pair.turns, tools.devices[0]
        readies = {place: self._ready(place, tools) for place in self._variants}
        self._note(machine=machine(device), before=calibrate(device))
        self._runners = {place: self._runner(place, ready) for place, ready in readies.items()}
        if not ends_when_hopeless(self._times):
            turns = replace(turns, hopeless_after=None)
        ended = take_turns(
            tuple(self._runners.values()),
            turns,
            most_seconds=self._pair.most_seconds,
            taken=self._keep_now_and_then,
        )
        self._note(ended=ended)
        # Programs far apart give the same verdict on a machine of any speed.
        if ended is not Ending.ENOUGH or len(self.times.judged.samples) >= turns.fewest:
            self._note(after=calibrate(device))
        # On a CPU the wall times are the device's. No device works while a program is traced.
        if tools.platform != "cpu" and turns.work is Work.RUN:
            self._profile(tools, readies)

    def _ready(self, place: str, tools: Framework) -> Ready:
        variant = self._variants[place]
        self._at_work(variant.name)
        with stage(FailureKind.BUILD, variant.name):
            program = built(variant, tools.devices)
        with stage(FailureKind.COMPILER, variant.name):
            if self._pair.turns.work is Work.TRACE:
                return ready_to_trace(tools, program)
            ready = tools.ready(program)
        self._note_variant(place, trace=ready.trace_seconds, compile=ready.compile_seconds)
        return ready

    def _runner(self, place: str, ready: Ready) -> Runner:
        name = self._variants[place].name
        work = self._pair.turns.work

        def run(count: int) -> float:
            # The parent must know whose first run it is, as that may kill the process.
            self._at_work(name if runner.first is None else "")
            with stage(_FAILS_BY[work], name):
                seconds = ready.run(count)
            if seconds > _KEEP_SECONDS:  # Without progress the parent's timeout may expire.
                self._keep(self.times)
            return seconds

        lazily = ready.compile_seconds is None and work is Work.RUN
        runner = Runner(run=run, most_runs=ready.most_runs, compiles=lazily)
        return runner

    def _profile(self, tools: Framework, readies: dict[str, Ready]) -> None:
        # Report all other results first: a profiler may crash the process.
        self._keep(self.times)
        for place, ready in readies.items():
            try:
                self._note_variant(place, on_device=tools.profile(ready))
            # The program ran. An exception of the profiler is not its fault.
            except Exception as error:  # noqa: BLE001
                self._note(not_profiled=f"{type(error).__name__}: {error}")

    def _at_work(self, variant: str) -> None:
        if self._times.at_work != variant:
            self._note(at_work=variant)
            self._keep(self.times)

    def _keep_now_and_then(self) -> None:
        now = time.perf_counter()
        if now - self._last_kept > _KEEP_SECONDS:
            self._last_kept = now
            self._keep(self.times)

    def _note(self, **known: Any) -> None:
        self._times = replace(self._times, **known)

    def _note_variant(self, place: str, **known: Any) -> None:
        self._note(**{place: replace(getattr(self._times, place), **known)})


def ends_when_hopeless(times: Times) -> bool:
    """Whether the judged variant's first run tells what a run takes.

    Not where it compiles or traces, nor on an accelerator, whose libraries start in it.
    """
    return times.judged.compile is not None and times.target.partition(":")[0] == "cpu"
