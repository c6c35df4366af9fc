"""Runs a reader on many mutated inputs, each in a worker process with limits.

An input that ends the worker (a crash, 2 s of processor time, 4 GiB of memory), or that the reader
answers with another exception than its own, is a finding. On Python 3.12 and newer, an input that
reaches a line of Assay for the first time becomes a seed of later mutations.
"""

import faulthandler
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any, Final, Self

import assay
from benchmarks.fuzz.mutations import Mutator

MEMORY_BYTES: Final = 4 << 30
"""Of address space for a worker: what jax's libraries and one input may take."""

_PATIENCE_SECONDS: Final = 60.0  # for one that waits, and uses no processor
_START_SECONDS: Final = 300.0
_MOST_INPUT_BYTES: Final = 1 << 20
_MOST_SEED_BYTES: Final = 20_000  # Larger ones take longer to mutate than to read.
_BATCH: Final = 64
"""Inputs that a worker gets at once: two processes that wait for each other are slow."""

_MINIMIZING_TRIES: Final = 200
_ASSAY: Final = str(Path(assay.__file__).parent)
_OWN_TOOL: Final = 4  # the first number that sys.monitoring has not given a name


class Refused(Exception):
    """The reader's clear error: what was given, what is wanted."""


class WrongResult(AssertionError):
    """The reader accepted an input, and its result cannot be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One border of Assay. ``read`` returns if the input is accepted and its result is right.

    It raises Refused for the reader's clear error, and anything else is a finding. ``share`` is its
    part of the inputs of a campaign. A process that ends in the file ``aborts_in`` is no finding:
    Assay runs that code in a process of its own, and says that it ended. An input may take so many
    ``seconds`` of processor time.
    """

    name: str
    read: Callable[[bytes], object]
    mutate: Mutator
    seeds: Callable[[], Sequence[bytes]]
    share: float = 1.0
    aborts_in: str = ""
    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an input: accepted, refused, or a fault and where it arose.

    ``seconds`` are of processor time.
    """

    kind: str
    fault: str = ""
    reached_more: bool = False
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class Campaign:
    """What became of the inputs of one reader; the smallest input of each distinct fault."""

    reader: str
    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    seeds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    smallest: dict[str, bytes] = field(default_factory=dict)

    def note(self, data: bytes, outcome: "Outcome") -> None:
        """Count the outcome of an input."""
        self.inputs += 1
        self.slowest_seconds = max(self.slowest_seconds, outcome.seconds)
        self.outcomes[outcome.kind] += 1
        if outcome.fault:
            self.faults[outcome.fault] += 1
            known = self.smallest.get(outcome.fault, data)
            self.smallest[outcome.fault] = min(data, known, key=len)


def found(place: str) -> Reader:
    """The reader that is a module's value, as ``benchmarks.fuzz.readers:RECORDS``."""
    module, _, name = place.partition(":")
    reader = getattr(import_module(module), name)
    assert isinstance(reader, Reader)
    return reader


def campaign(place: str, inputs: int, seed: int = 0) -> Campaign:
    """Read so many mutations of the reader's seeds."""
    reader = found(place)
    seeds = list(reader.seeds())
    done = Campaign(reader=reader.name)
    with Worker(place) as worker:
        worker.read(seeds)  # so that their lines are known
        for first in range(0, inputs, _BATCH):
            numbers = range(first, min(first + _BATCH, inputs))
            randoms = (Random(f"{seed} {reader.name} {number}") for number in numbers)  # noqa: S311
            batch = [reader.mutate(random, seeds)[:_MOST_INPUT_BYTES] for random in randoms]
            for data, outcome in zip(batch, worker.read(batch), strict=True):
                done.note(data, outcome)
                if outcome.reached_more and len(data) <= _MOST_SEED_BYTES:
                    seeds.append(data)
        done.seeds = len(seeds)
        done.smallest = {
            fault: minimized(data, fault, worker) for fault, data in done.smallest.items()
        }
    return done


def minimized(data: bytes, fault: str, worker: "Worker") -> bytes:
    """The input without the parts that the fault does not need."""
    size = max(1, len(data) // 2)
    tries = 0
    while size and tries < _MINIMIZING_TRIES:
        at = 0
        while at < len(data) and tries < _MINIMIZING_TRIES:
            tries += 1
            shorter = data[:at] + data[at + size :]
            (outcome,) = worker.read([shorter])
            if outcome.fault == fault:
                data = shorter
            else:
                at += size
        size //= 2
    return data


class Worker:
    """A process that reads inputs; one that an input ended is replaced."""

    def __init__(self, place: str) -> None:
        self._place, self._aborts_in = place, found(place).aborts_in
        self._context = get_context("spawn")
        self._words = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.kill()
        self._process.join()
        self._words.close()

    def _start(self) -> None:
        self._connection, theirs = self._context.Pipe()
        self._words.truncate(0)
        self._words.seek(0)
        arguments = (theirs, self._place, self._words.name)
        self._process = self._context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        try:
            started = self._connection.poll(_START_SECONDS) and self._connection.recv()
        except EOFError:
            started = False
        if not started:
            words = Path(self._words.name).read_text(errors="replace")
            raise RuntimeError(f"the worker of {self._place} did not start: {words}")

    def read(self, batch: Sequence[bytes]) -> list[Outcome]:
        """What becomes of each input."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(batch):
            rest = batch[len(outcomes) :]
            self._connection.send(rest)
            try:
                for _ in rest:
                    if not self._connection.poll(_PATIENCE_SECONDS):
                        outcomes.append(self._ended("waits"))
                        break
                    outcomes.append(self._connection.recv())
            except (EOFError, ConnectionError):
                outcomes.append(self._ended(""))
        return outcomes

    def _ended(self, ended: str) -> Outcome:
        """The outcome of an input that ended the process, or on which it waits; replaces it."""
        self._process.kill() if ended else self._process.join()
        self._process.join()
        code = self._process.exitcode or 0
        ended = ended or ("hangs" if code == -signal.SIGPROF else f"ends with {_ending(code)}")
        self._words.seek(0)
        place = _innermost(self._words.read().decode(errors="replace"))
        self._connection.close()
        self._start()
        if self._aborts_in and self._aborts_in in place:
            return Outcome("refused")
        return Outcome("fault", f"{ended} in {place}")


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def _innermost(words: str) -> str:
    """The innermost frame of Assay that faulthandler names, else the last line of stderr."""
    frames = [line.strip() for line in words.splitlines() if _ASSAY in line]
    return frames[0].replace(_ASSAY, "assay") if frames else words.strip()[-100:] or "unknown"


def _serve(connection: Connection, place: str, words: str) -> None:
    """The worker: limits, then an outcome for each input."""
    os.dup2(os.open(words, os.O_WRONLY | os.O_APPEND), 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    reader = found(place)
    faulthandler.enable()
    # A process inherits what its parent ignores or blocks, such as a pytest that profiled before.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    faulthandler.register(signal.SIGPROF, chain=True)
    reached = _Lines()
    judged(reader, reader.seeds()[0])  # which also imports what the reader needs
    connection.send(True)  # noqa: FBT003 - it is ready
    with suppress(EOFError):
        while True:
            for data in connection.recv():
                start = time.process_time()
                signal.setitimer(signal.ITIMER_PROF, reader.seconds)
                try:
                    outcome = judged(reader, data)
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)
                seconds = time.process_time() - start
                connection.send(Outcome(outcome.kind, outcome.fault, reached.more(), seconds))


def judged(reader: Reader, data: bytes) -> Outcome:
    """What becomes of one input, in this process."""
    try:
        reader.read(data)
    except Refused:
        return Outcome("refused")
    except BaseException as error:  # noqa: BLE001 - any other exception at all is what is sought
        return Outcome("fault", _described(error))
    return Outcome("accepted")


def _described(error: BaseException) -> str:
    frames = [each for each in traceback.extract_tb(error.__traceback__) if _ASSAY in each.filename]
    where = "the reader"
    if frames:
        where = f"{Path(frames[-1].filename).relative_to(_ASSAY)}:{frames[-1].name}"
    if isinstance(error, WrongResult):
        return f"WrongResult: {error}"
    return f"{type(error).__name__} in {where}"


class _Lines:
    """Notes each line of Assay that is reached for the first time; none before Python 3.12."""

    def __init__(self) -> None:
        self._count = self._seen = 0
        monitoring: Any = getattr(sys, "monitoring", None)
        if monitoring is None:
            return
        self._disable = monitoring.DISABLE
        monitoring.use_tool_id(_OWN_TOOL, "fuzz")
        monitoring.register_callback(_OWN_TOOL, monitoring.events.LINE, self._line)
        monitoring.set_events(_OWN_TOOL, monitoring.events.LINE)

    def _line(self, code: CodeType, _: int) -> Any:
        self._count += code.co_filename.startswith(_ASSAY)
        return self._disable

    def more(self) -> bool:
        """Whether a line was reached for the first time since the last call."""
        seen, self._seen = self._seen, self._count
        return self._count > seen
