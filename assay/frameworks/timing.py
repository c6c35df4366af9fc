"""A pair of programs, or one alone: made ready, calibrated, and timed alternately."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from assay.frameworks.framework import Framework, Ready, Unsupported, built
from assay.frameworks.turns import Runner, machine, take_turns, throttles
from assay.model.blame import is_ours
from assay.model.evidence import FailureKind
from assay.model.timing import Ending, Keep, TimedPair, Times, Work
from assay.model.workload import Program, Variant
from assay.targets.jax_internals import InternalsMoved

_MOST_RUNS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyToTrace:
    """A program that each run traces and lowers anew, with nothing kept of the run before."""

    tools: Framework
    program: Program
    platform: str
    devices: Sequence[Any]
    trace_seconds: float | None = None
    compile_seconds: float | None = None
    most_runs: int = _MOST_RUNS

    def run(self, count: int) -> float:
        """The total seconds of ``count`` tracings. Caches are cleared between them."""
        return sum(self._once() for _ in range(count))

    def _once(self) -> float:
        self.tools.forget()
        start = time.perf_counter()
        traced = self.tools.trace(self.program, self.devices)
        lowered = self.tools.lower(traced, self.platform, self.devices)
        seconds = time.perf_counter() - start
        del lowered
        return seconds


_KEEP_SECONDS: Final = 1.0
_FAILS_BY: Final = {Work.RUN: FailureKind.EXECUTION, Work.TRACE: FailureKind.TRACE}


class ProgramFailed(Exception):
    """A program of the pair failed in a stage. ``cause`` is its exception."""

    def __init__(self, variant: str, kind: FailureKind, cause: Exception) -> None:
        super().__init__(f"{variant}: {cause}")
        self.variant = variant
        self.kind = kind
        self.cause = cause


class PairTimer:
    """Measures the times of one pair. ``times`` holds the results so far."""

    def __init__(self, pair: TimedPair, times: Times, keep: Keep) -> None:
        self._pair = pair
        self._times = times
        self._keep = keep
        self._kept = -math.inf
        self._runners: list[Runner] = []

    @property
    def times(self) -> Times:
        """The times so far, without a last sample that has no partner."""
        if not self._runners:
            return self._times
        pairs = min(len(runner.samples) for runner in self._runners)
        known: dict[str, Any] = {}
        for variant, runner in zip(self._pair.variants, self._runners, strict=True):
            place = self._place(variant.name)
            known[place] = replace(
                getattr(self._times, place),
                first=runner.first,
                runs_per_sample=runner.runs_per_sample,
                samples=tuple(runner.samples[:pairs]),
            )
        return replace(self._times, **known)

    def run(self, tools: Framework, devices: Sequence[Any], platform: str) -> None:
        """Compile, calibrate, sample alternately, calibrate again, and profile where possible.

        Raises:
            ProgramFailed: one of the programs did.
        """
        variants = self._pair.variants
        readies = [self._ready(variant, tools, devices, platform) for variant in variants]
        cool = throttles()
        self._note(machine=machine(devices[0]), before=tools.calibrate(devices))
        self._runners = [self._runner(*each) for each in zip(variants, readies, strict=True)]
        turns = self._pair.turns
        ended = take_turns(
            tuple(self._runners),
            turns if ends_when_hopeless(self._times) else replace(turns, hopeless_after=None),
            most_seconds=self._pair.most_seconds,
            taken=self._keep_now_and_then,
        )
        self._times = self.times
        self._runners = []
        self._note(ended=ended)
        # Programs far apart say the same on a machine of any pace.
        if ended is not Ending.ENOUGH or len(self._times.judged.samples) >= turns.fewest:
            self._note(after=tools.calibrate(devices))
        self._note_throttles(cool, throttles())
        # The CPU's device is the host, its times the wall's; no tracing is at work on a device.
        if platform != "cpu" and turns.work is Work.RUN:
            self._profile(tools, readies)

    def _ready(
        self, variant: Variant, tools: Framework, devices: Sequence[Any], platform: str
    ) -> Ready:
        self._at_work(variant.name)
        with _stage(variant.name, FailureKind.BUILD):
            program = built(variant, devices)
        with _stage(variant.name, FailureKind.COMPILER):
            if self._pair.turns.work is Work.TRACE:
                return ReadyToTrace(
                    tools=tools, program=program, platform=platform, devices=devices
                )
            ready = tools.ready(program, devices, platform)
        self._note_variant(variant.name, trace=ready.trace_seconds, compile=ready.compile_seconds)
        return ready

    def _runner(self, variant: Variant, ready: Ready) -> Runner:
        def run(count: int) -> float:
            # Whose first run it is must be known where that takes the process down.
            self._at_work(variant.name if runner.first is None else "")
            with _stage(variant.name, _FAILS_BY[self._pair.turns.work]):
                seconds = ready.run(count)
            if seconds > _KEEP_SECONDS:  # Without progress the parent's timeout may expire.
                self._keep(self.times)
            return seconds

        lazily = ready.compile_seconds is None and self._pair.turns.work is Work.RUN
        runner = Runner(run=run, most_runs=ready.most_runs, compiles=lazily)
        return runner

    def _profile(self, tools: Framework, readies: Sequence[Ready]) -> None:
        # Report all other results first: a profiler may crash the process.
        self._keep(self.times)
        for variant, ready in zip(self._pair.variants, readies, strict=True):
            try:
                self._note_variant(variant.name, on_device=tools.profile(ready))
            # The program ran. An exception of the profiler is not its fault.
            except Exception as error:  # noqa: BLE001
                self._note(not_profiled=f"{type(error).__name__}: {error}")

    def _note_throttles(self, before: int | None, after: int | None) -> None:
        if before is not None and after is not None and self._times.machine is not None:
            self._note(machine=replace(self._times.machine, throttles=after - before))

    def _at_work(self, variant: str) -> None:
        if self._times.at_work != variant:
            self._note(at_work=variant)
            self._keep(self.times)

    def _keep_now_and_then(self) -> None:
        now = time.perf_counter()
        if now - self._kept > _KEEP_SECONDS:
            self._kept = now
            self._keep(self.times)

    def _note(self, **known: Any) -> None:
        self._times = replace(self._times, **known)

    def _note_variant(self, variant: str, **known: Any) -> None:
        place = self._place(variant)
        self._note(**{place: replace(getattr(self._times, place), **known)})

    def _place(self, variant: str) -> str:
        reference = self._pair.reference
        return "reference" if reference and variant == reference.name else "judged"


def ends_when_hopeless(times: Times) -> bool:
    """Whether the judged variant's first run tells what a run takes.

    Not where it compiles or traces, nor on an accelerator, whose libraries start in it.
    """
    return times.judged.compile is not None and times.target.partition(":")[0] == "cpu"


@contextmanager
def _stage(variant: str, kind: FailureKind) -> Iterator[None]:
    try:
        yield
    # A program may raise any exception. It is recorded as evidence.
    except Exception as error:
        asked_too_much = isinstance(error, Unsupported)
        if isinstance(error, InternalsMoved) or (is_ours(error) and not asked_too_much):
            raise
        raise ProgramFailed(variant, kind, error) from error
