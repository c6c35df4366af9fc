"""The parent's side: child processes that observe programs, one request after another."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self, TypeVar

import cloudpickle
import msgspec

from assay.frameworks.installed import toolchain
from assay.frameworks.timing import ends_when_hopeless
from assay.isolate.child import ENDED_BY_KERNEL, Child, NotStartedError, is_kill
from assay.isolate.memory import MemoryExceeded, MemoryLimit, usual_limit
from assay.isolate.messages import Answer, NotPortable, Request, encoded, pickled
from assay.model.blame import FaultElsewhere
from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.target import TargetName
from assay.model.timing import Ending, Keep, TimedPair, Times, unmeasured
from assay.model.workload import Variant, Workload
from assay.observe import unseen
from assay.store.files import decode_msgpack
from assay.targets import environment, resolve

_Measured = TypeVar("_Measured", Evidence, Times)
_LOST: Final = (FailureKind.CRASH, FailureKind.TIMEOUT, FailureKind.MEMORY)
_LEAST_PATIENCE: Final = 1.0
_MOST_PROCESSES: Final = 2


class ObservationError(FaultElsewhere):
    """The observer failed, not the program under test. This is a fault of Assay."""


@dataclass(eq=False)
class Observer:
    """One child process that observes programs for a set of targets.

    ``forks_for`` names a framework whose programs each run in a separate process.
    Without ``cached``, every program is compiled anew. ``memory_limit`` is that of a program's
    processes, by default this machine's share for one.

    A program whose process was killed from outside is measured once more, and the measurement says
    so in ``retries``. Nothing else is tried again.

    Every measurement raises NotPortable if the workload holds something that cannot be pickled,
    and ObservationError if Assay itself failed in the child.
    """

    targets: Sequence[TargetName]
    timeout_seconds: float
    forks_for: str = ""
    cached: bool = field(default=True, kw_only=True)
    memory_limit: MemoryLimit | None = field(default_factory=usual_limit, kw_only=True)
    _child: Child | None = field(default=None, init=False)
    _killed: str = field(default="", init=False)
    """How the process of the last request ended, if something outside killed it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def observe(
        self, workload: Workload, variant: Variant, target: str, growth_seconds: float | None = None
    ) -> Evidence:
        """Measure one variant on one target. A crash or a timeout of the child is evidence.

        With ``growth_seconds`` only the growing loop is timed, for about that long.
        """
        request = Request(program=pickled(workload, variant, target), most_seconds=growth_seconds)
        return self._despite_a_kill(lambda: self._observed(request, workload, variant, target))

    def _observed(
        self, request: Request, workload: Workload, variant: Variant, target: str
    ) -> Evidence:
        seen: Evidence | None = None
        for answer in self._answers(request, lambda: self.timeout_seconds):
            seen = answer.evidence or seen
        failure = answer.failure
        if failure is not None:
            if failure.kind in _LOST and failure.during is None:
                raise ObservationError(f"Assay's process ended: {failure.message}")
            return replace(seen or unseen(workload, variant, resolve(target)), failure=failure)
        if answer.evidence is None:
            raise _fault_of(answer)
        wanted = workload.key(variant.name, str(resolve(target).name))
        given = answer.evidence.key
        if given != wanted:
            raise ObservationError(f"the observer was asked for {wanted} and answered for {given}")
        return answer.evidence

    def time(self, pair: TimedPair, keep: Keep) -> Times:
        """The times of two variants in turns, or of one alone; ``keep`` gets intermediate results.

        A crash is recorded in the times, and so is a child that reports no progress for as long as
        a program may take. A first run of the judged variant that is hopelessly slower than the
        reference's is ended: the time until then is its sample.
        """
        request = _times_request(pair)
        return self._despite_a_kill(lambda: self._timed(request, pair, keep))

    def _timed(self, request: Request, pair: TimedPair, keep: Keep) -> Times:
        latest = unmeasured(pair, toolchain(pair.workload.framework, resolve(pair.target).platform))

        def patience() -> float:
            return min(self.timeout_seconds, _hopeless_after(pair, latest))

        for answer in self._answers(request, patience):
            if answer.times is not None and not answer.final:
                latest = answer.times
                keep(latest)
        failure = answer.failure
        if failure is None:
            if answer.times is None:
                raise _fault_of(answer)
            return answer.times
        if failure.kind is FailureKind.TIMEOUT and _hopeless_after(pair, latest) <= patience():
            return _cut_off(latest, patience())
        if latest.ended is not Ending.UNFINISHED:
            return replace(latest, not_profiled=failure.message)
        return replace(latest, failure=failure, failed_variant=latest.at_work)

    def _despite_a_kill(self, measure: Callable[[], _Measured]) -> _Measured:
        """The measurement, or that of a second attempt if the first one's process was killed."""
        try:
            measured = measure()
        # The process may have been killed during Assay's own work too.
        except ObservationError:
            if not self._killed:
                raise
        else:
            if not self._killed:
                return measured
        first = self._killed
        return replace(measure(), retries=(first,))

    def _answers(self, request: Request, patience: Callable[[], float]) -> Iterator[Answer]:
        """The answers to a request, of which the last one is final, or says how the child ended.

        A program has one time limit for all its stages. The limit starts anew after an answer that
        asks, or that holds times; it is then as many seconds as ``patience`` says.
        """
        self._killed = ""
        child = self._running()
        stage: FailureKind | None = None
        try:
            deadline = time.monotonic() + patience()
            child.send(encoded(request), patience())
            while True:
                payload = self._receive(child, deadline - time.monotonic())
                answer = answer_of(payload)
                if answer.final:
                    break
                stage = answer.stage
                yield answer
                if answer.times is not None or answer.asks:
                    deadline = time.monotonic() + patience()
        except TimeoutError:
            self.close()
            words = f"no answer within {self.timeout_seconds:g} s; raise the compile timeout"
            answer = _lost(FailureKind.TIMEOUT, words, stage)
        except MemoryExceeded as exceeded:
            self._child = None
            answer = _exceeding(exceeded, stage)
        except (EOFError, BrokenPipeError):
            self._child = None
            answer = self._crashed(child, child.ending_with_stderr_tail(), stage)
        if answer.died:
            answer = self._crashed(child, child.with_stderr_tail(answer.died), stage)
        yield answer

    def _crashed(self, child: Child, words: str, stage: FailureKind | None) -> Answer:
        """The answer for a process that died; a kill from outside is noted."""
        if child.lost_to_kernel(words):
            return _lost(FailureKind.MEMORY, ENDED_BY_KERNEL, stage, of_machine=True)
        self._killed = words if is_kill(words) else ""
        return _lost(FailureKind.CRASH, words, stage)

    def close(self) -> None:
        """Kill the child, also in the middle of a request."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _receive(self, child: Child, seconds: float) -> bytes:
        return child.receive(seconds)

    def _running(self) -> Child:
        # A child that died between requests says nothing about the next program.
        if self._child is not None and not self._child.is_alive:
            self.close()
        if self._child is None:
            self._start()
        assert self._child is not None
        return self._child

    def _start(self, *options: str) -> None:
        forks_for = ["--forks-for", self.forks_for] if self.forks_for else []
        command = ["-m", "assay.isolate", *map(str, self.targets), *forks_for, *options]
        # Stored before it is ready: Ctrl-C may interrupt the start.
        self._child = Child([sys.executable, *command], self._environment(), self.memory_limit)
        try:
            self._child.await_ready(self._receive)
        except NotStartedError as error:
            self._child = None
            raise ObservationError(f"the observer {error}") from None

    def _environment(self) -> dict[str, str]:
        return {
            **environment(self.targets, os.environ),
            "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path),
            # A cached compilation would make the compile time meaningless.
            "JAX_ENABLE_COMPILATION_CACHE": "false",
            # Assay needs the frames that JAX removes to decide who caused an exception.
            "JAX_TRACEBACK_FILTERING": "off",
            **({} if self.cached else {"ASSAY_NO_CACHE": "1"}),
        }


def answer_of(payload: bytes) -> Answer:
    """The answer of a child. Raises ObservationError if it is none."""
    try:
        answer: Answer = decode_msgpack(payload, Answer)
    except msgspec.MsgspecError as error:
        raise ObservationError(f"the observer gave no answer that Assay knows: {error}") from None
    return answer


def _lost(
    kind: FailureKind, message: str, stage: FailureKind | None, *, of_machine: bool = False
) -> Answer:
    failure = Failure(kind=kind, message=message, during=stage, of_machine=of_machine)
    return Answer(failure=failure)


def _exceeding(exceeded: MemoryExceeded, stage: FailureKind | None) -> Answer:
    """The answer for a program whose processes held more memory than they may."""
    of_machine = exceeded.limit.of_machine
    words = str(exceeded) if of_machine else f"{exceeded}; raise the memory limit"
    return _lost(FailureKind.MEMORY, words, stage, of_machine=of_machine)


def _fault_of(answer: Answer) -> ObservationError:
    fault = ObservationError(answer.crash or "the observer gave neither evidence nor a reason")
    fault.add_note(answer.trace)
    return fault


def _times_request(pair: TimedPair) -> Request:
    programs = [pickled(pair.workload, variant, pair.target) for variant in pair.variants]
    try:
        turns = cloudpickle.dumps(pair.turns)
    # Pickling runs the claim's own code, which may raise anything.
    except Exception as error:
        raise NotPortable(
            f"got a question {pair.turns.question!r} that cannot be sent to another process "
            f"({error}), wanted one of plain values; use a function of a module"
        ) from error
    return Request(
        program=programs[-1],
        reference=programs[0] if pair.reference else None,
        turns=turns,
        most_seconds=pair.most_seconds,
    )


def _hopeless_after(pair: TimedPair, latest: Times) -> float:
    """The seconds that the judged variant's first run may last.

    Infinite while something else runs, or if nothing bounds the run. At least a second, because
    the process ends with the run.
    """
    reference, after = latest.reference.first, pair.turns.hopeless_after
    is_first_run = (
        latest.ended is Ending.UNFINISHED
        and latest.at_work == pair.judged.name
        and ends_when_hopeless(latest)
    )
    if after is None or reference is None or not is_first_run:
        return math.inf
    return max(after(reference), _LEAST_PATIENCE)


def _cut_off(times: Times, seconds: float) -> Times:
    """The times of a pair whose judged variant's first run was ended after so many seconds."""
    first = times.reference.first
    assert first is not None
    return replace(
        times,
        ended=Ending.CUT_OFF,
        reference=replace(times.reference, samples=(first,)),
        judged=replace(times.judged, first=seconds, samples=(seconds,)),
    )


class Processes:
    """Child processes that compile, one for each target and time limit."""

    def __init__(self, *, cached: bool = True, memory_limit: MemoryLimit | None = None) -> None:
        self._cached = cached
        self._memory_limit = memory_limit
        self._observers: dict[tuple[str, float], Observer] = {}

    def of(self, target: str, timeout_seconds: float) -> Observer:
        """The target's process. The least recently used ones are ended: each holds a compiler."""
        key = (target, timeout_seconds)
        observer = self._observers.pop(key, None)
        if observer is None:
            observer = Observer(
                [resolve(target).name],
                timeout_seconds,
                cached=self._cached,
                memory_limit=self._memory_limit or usual_limit(),
            )
        self._observers[key] = observer
        for oldest in list(self._observers)[:-_MOST_PROCESSES]:
            self._observers.pop(oldest).close()
        return observer

    def close(self) -> None:
        """End all."""
        while self._observers:
            self._observers.popitem()[1].close()
