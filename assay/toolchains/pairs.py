"""Process pairs: one process on each toolchain, which take samples alternately.

A program's time differs between processes, because its memory lies elsewhere. After some samples a
pair is therefore ended and another is started, until the judge has enough of them.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from assay.isolate.child import ENDED_BY_KERNEL, Child, NotStartedError
from assay.isolate.memory import MemoryExceeded, MemoryLimit, usual_limit
from assay.model.evidence import Failure, FailureKind, Toolchain
from assay.model.rerun import Pair, Side
from assay.model.target import Unavailable
from assay.model.timing import Change, Ending, Machine, ProcessTimes, Sensitivity
from assay.stats.processes import (
    FEWEST_TURNS,
    PAIR_LOOKS,
    TURNS_OF_A_PAIR,
    Turns,
    more_pairs,
    ratio_of_processes,
)
from assay.stats.ratios import DEFAULT
from assay.store.files import decode_json

_T = TypeVar("_T")
Clock = Callable[[], float]

_STRETCH = 2

_MEMORY = "use a machine with more memory"


class RerunError(RuntimeError):
    """The rerun failed, not the program or a compiler. This is a fault of Assay or of its use."""


class Halted(Exception):
    """A process cannot continue: its program failed, or cannot run there.

    ``side`` is the toolchain of that process; None if the program can run on neither.
    """

    def __init__(self, side: Side | None, end: Failure | Unavailable) -> None:
        super().__init__(
            f"{end.kind.phrase}: {end.message}" if isinstance(end, Failure) else str(end)
        )
        self.side = side
        self.end = end


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the processes of a toolchain start, and the ``program`` that each gets as a request.

    ``repeats`` is 2 for a negative control, which does each sample twice.
    """

    side: Side
    command: Sequence[str]
    environment: Mapping[str, str]
    program: bytes
    timeout_seconds: float
    repeats: int = 1
    memory_limit: MemoryLimit | None = field(default_factory=usual_limit)


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A program that is compiled and warm: its times in seconds, its toolchain and machine.

    ``runs_per_sample`` is the number that lasts long enough, ``most_runs`` the highest possible.
    """

    toolchain: Toolchain
    python: str
    machine: Machine | None = None
    trace: float | None = None
    compile: float | None = None
    first: float
    runs_per_sample: int
    most_runs: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request: one of these.

    ``unsupported`` is what no toolchain can do; ``crash`` is a traceback of Assay.
    """

    prepared: Prepared | None = None
    seconds: float | None = None
    failure: Failure | None = None
    unavailable: Unavailable | None = None
    unsupported: Unavailable | None = None
    crash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that is ready; ``sample(runs)`` gives the mean seconds of one run."""

    prepared: Prepared
    sample: Callable[[int], float]


def link_assay(folder: Path) -> Path:
    """Link Assay into the empty folder, which becomes an entry of a search path."""
    (folder / "assay").symlink_to(Path(__file__).parents[1])
    return folder


@contextmanager
def child_of(launch: Launch) -> Iterator[Callable[[bytes], bytes]]:
    """Start a process and yield a function that sends it a request and returns the answer.

    Raises:
        Halted: the process ended, took too much memory, or gave no answer in time.
        RerunError: the process did not start.
    """
    with closing(Child(launch.command, launch.environment, launch.memory_limit)) as child:
        try:
            child.await_ready()
        except NotStartedError as error:
            raise RerunError(f"{launch.side.phrase}: its process {error}") from None

        def ask(request: bytes) -> bytes:
            limit = launch.timeout_seconds
            try:
                child.send(request, limit)
                return child.receive(limit)
            except TimeoutError:
                failure = Failure(kind=FailureKind.TIMEOUT, message=f"no answer within {limit:g} s")
            except MemoryExceeded as exceeded:
                if exceeded.limit.of_machine:
                    raise Halted(launch.side, Unavailable(str(exceeded), _MEMORY)) from None
                failure = Failure(kind=FailureKind.MEMORY, message=str(exceeded))
            except (EOFError, BrokenPipeError):
                words = child.ending_with_stderr_tail()
                if child.lost_to_kernel(words):
                    raise Halted(launch.side, Unavailable(ENDED_BY_KERNEL, _MEMORY)) from None
                failure = Failure(kind=FailureKind.CRASH, message=words)
            raise Halted(launch.side, failure)

        yield ask


def decoded(answer: bytes, kind: type[_T], whose: str) -> _T:
    """What a child answered. Raises RerunError if the answer is not of this kind."""
    try:
        found: _T = decode_json(answer, kind)
    except msgspec.MsgspecError as error:
        raise RerunError(f"{whose}: got an answer that Assay does not know ({error})") from None
    return found


@contextmanager
def started(launch: Launch) -> Iterator[Process]:
    """Start a process that builds, compiles and warms up its program. It ends with the context.

    Starting and sampling raise:
        Halted: the program or its process failed, or the program cannot run there.
        RerunError: Assay itself failed in the process.
    """
    with child_of(launch) as ask:

        def answer(request: bytes) -> Answer:
            given = decoded(ask(request), Answer, launch.side.phrase)
            if given.unsupported is not None:
                raise Halted(None, given.unsupported)
            if end := given.failure or given.unavailable:
                raise Halted(launch.side, end)
            if given.crash:
                raise RerunError(f"{launch.side.phrase}: {given.crash}")
            return given

        def sample(runs: int) -> float:
            answers = [answer(str(runs).encode()) for _ in range(launch.repeats)]
            return sum(each.seconds or 0.0 for each in answers)

        prepared = answer(launch.program).prepared
        assert prepared is not None
        yield Process(prepared=prepared, sample=sample)


def turns(pair: Pair) -> Turns:
    """The samples of a pair, for ``ratio_of_processes``."""
    return Turns(first=pair.old.samples, second=pair.new.samples)


def is_judged(pair: Pair) -> bool:
    """Whether the pair has enough turns. It may not if its share of the time was short."""
    return len(pair.old.samples) >= FEWEST_TURNS


def take_pair(
    launches: Mapping[Side, Launch],
    number: int,
    end: float,
    prepared: Callable[[Prepared, Prepared], None] = lambda _old, _new: None,
) -> Pair:
    """Start one process per toolchain and sample both alternately.

    The toolchain that starts and samples first alternates with the ``number`` of the pair.
    ``prepared`` gets the reports of the old and the new side before the first sample.
    """
    order = (Side.OLD, Side.NEW) if number % 2 == 0 else (Side.NEW, Side.OLD)
    with ExitStack() as stack:
        processes = {side: stack.enter_context(started(launches[side])) for side in order}
        old, new = processes[Side.OLD], processes[Side.NEW]
        prepared(old.prepared, new.prepared)
        return take_turns(old, new, old_first=order[0] is Side.OLD, end=end)


def take_turns(
    old: Process, new: Process, *, old_first: bool, end: float, clock: Clock = time.perf_counter
) -> Pair:
    """Sample A B B A …: the turns of a pair, or as many as end by ``end``, at least one."""
    both = (old, new)
    # A run is faster among more runs in a row, so both sides take the same number.
    runs = min(
        max(each.prepared.runs_per_sample for each in both),
        *(each.prepared.most_runs for each in both),
    )
    samples: tuple[list[float], list[float]] = ([], [])
    order = (0, 1) if old_first else (1, 0)
    lasted = 0.0
    for number in range(TURNS_OF_A_PAIR):
        began = clock()
        if number and began + lasted > end:
            break
        for side in order:
            samples[side].append(both[side].sample(runs))
        order = order[::-1]
        lasted = clock() - began
    times = [
        ProcessTimes(
            trace=process.prepared.trace,
            compile=process.prepared.compile,
            first=process.prepared.first,
            runs_per_sample=runs,
            samples=tuple(taken),
        )
        for process, taken in zip(both, samples, strict=True)
    ]
    return Pair(old=times[0], new=times[1])


def take_pairs(
    take: Callable[[int, float], Pair],
    *,
    most_seconds: float,
    sensitivity: Sensitivity = DEFAULT,
    taken: Callable[[Sequence[Pair]], None] = lambda _: None,
    clock: Clock = time.perf_counter,
) -> Ending:
    """Take pairs until the judge has enough of them; ``taken`` gets all of them after each.

    ``take`` gets the number of the pair and the time to stop at: a long program takes fewer turns,
    so that there is time for the fewest pairs that can be judged. A pair with too few turns to be
    judged is the last. No pair starts that would end too late if it lasts as long as the previous
    one. Until the fewest pairs are taken, the limit is twice ``most_seconds``.
    """
    start, share = clock(), most_seconds / PAIR_LOOKS[0]
    pairs: list[Pair] = []
    lasted = 0.0
    while more_pairs([turns(pair) for pair in pairs], sensitivity):
        if pairs and not is_judged(pairs[-1]):
            return Ending.SECONDS
        began = clock()
        end = start + most_seconds * (_STRETCH if len(pairs) < PAIR_LOOKS[0] else 1)
        if began + lasted > end:
            return Ending.SECONDS
        pairs.append(take(len(pairs), min(began + share, end)))
        taken(tuple(pairs))
        lasted = clock() - began
    # The judge wants no more pairs: either these decide, or it never takes more.
    found = ratio_of_processes([turns(pair) for pair in pairs], sensitivity)
    return Ending.TURNS if found.change is Change.TOO_NOISY else Ending.ENOUGH
