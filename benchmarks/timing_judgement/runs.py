"""Raw runs: what was timed, kept line by line as it is measured, so that Ctrl-C loses nothing.

Each visit is a fresh pair of processes. All comparisons of it are made in random order; how many
turns an arm takes is decided by Assay's own judge as it goes, and the other rules judge the same
samples.
"""

import json
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from assay.judge.ratios import LOOKS, more_turns
from assay.judge.reruns import TURNS_OF_A_PAIR
from benchmarks.timing_judgement.processes import Worker, bursts, others_keep_it_busy
from benchmarks.timing_judgement.program import CALIBRATION, SIZES, TURNS, Plan, Ready

ADDED: Final = (0, 2, 5, 10)
"""Per cent of work added to the second program; 0 is a program against itself."""

IN_ONE_RUN: Final = "arms in one run"
AGAINST_RERUN: Final = "against a rerun toolchain"
AGAINST_STORED: Final = "against a stored number"

SESSION_SAMPLES: Final = {"medium": 48, "small": 300}
_PAUSE: Final = 2.0
_CALIBRATIONS: Final = 10  # of each kind, before and after a session


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Samples taken together, in seconds.

    ``first`` and ``second`` are turns for a comparison in one run or of two processes. A session
    for stored numbers has its samples in ``second``. ``start`` is what the slower of the two
    processes took to be ready; ``load`` the machine's load average, ``bursts`` whether this tool
    added to it.
    """

    kind: str
    program: str
    added: int
    visit: int
    at: float
    first: list[float]
    second: list[float]
    calibration: dict[str, list[float]]
    start: float
    load: float
    bursts: bool
    jax: str


def in_turns(pairs: int, taken: int = 0) -> Iterator[bool]:
    """A B B A A B B A …: whether the second program is next, two entries a pair."""
    for pair in range(taken, taken + pairs):
        yield from (False, True) if pair % 2 == 0 else (True, False)


def collect(
    file: Path,
    *,
    seconds: float,
    seed: int,
    load: float = math.inf,
    programs: Sequence[str] = tuple(SIZES),
) -> None:
    """Appends visits to the file until the time is over, a line a run; goes on after its last.

    Waits while the machine's load average is above ``load``; waiting takes none of the time.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    visit = max((run.visit for run in read(file)), default=-1) + 1
    left = seconds
    with file.open("a") as out:
        while left > 0:
            while os.getloadavg()[0] > load:
                time.sleep(_PAUSE)
            begun = time.monotonic()
            # Not for secrets: the order of comparisons is to be the same for the same seed.
            for run in _visit(visit, random.Random(f"{seed} {visit}"), programs):  # noqa: S311
                out.write(json.dumps(asdict(run)) + "\n")
                out.flush()
            visit += 1
            left -= time.monotonic() - begun


def _visit(visit: int, chance: random.Random, programs: Sequence[str]) -> Iterator[Run]:
    """Everything that a fresh pair of processes measures, in random order."""
    wanted = [(kind, program, added) for kind, added in _comparisons(visit) for program in programs]
    chance.shuffle(wanted)
    with ExitStack() as open_:
        burst = not others_keep_it_busy()
        if burst:
            open_.enter_context(bursts())
        pair = [open_.enter_context(Worker()), open_.enter_context(Worker())]
        readies = [worker.ready() for worker in pair]
        ready, start = readies[0][0], max(seconds for _, seconds in readies)
        for kind, program, added in wanted:
            workers = list(pair) if kind == AGAINST_RERUN else chance.sample(pair, 2)
            begun, busy = time.time(), os.getloadavg()[0]
            first, second, calibration = _samples(kind, program, TURNS + added, workers)
            yield Run(
                kind=kind,
                program=program,
                added=added,
                visit=visit,
                at=begun,
                first=first,
                second=second,
                calibration=calibration,
                start=start,
                load=busy,
                bursts=burst,
                jax=_named(ready),
            )


def _comparisons(visit: int) -> Iterator[tuple[str, int]]:
    """Two of a program with itself and one of each slowdown; 2 % on every third visit only."""
    slowdowns = ADDED[1:] if visit % 3 == 0 else ADDED[2:]
    yield from ((IN_ONE_RUN, added) for added in (0, 0, *slowdowns))
    for kind in (AGAINST_RERUN, AGAINST_STORED):
        yield from ((kind, added) for added in (0, *slowdowns))


def _named(ready: Ready) -> str:
    return f"jax {ready['jax']} on {ready['device']}"


_Samples = tuple[list[float], list[float], dict[str, list[float]]]


def _samples(kind: str, program: str, turns: int, workers: Sequence[Worker]) -> _Samples:
    if kind == IN_ONE_RUN:
        return *_arms(program, turns, workers[0]), {}
    if kind == AGAINST_RERUN:
        return *_pair(program, turns, workers), {}
    return _session(program, turns, workers[0])


def _arms(program: str, turns: int, worker: Worker) -> tuple[list[float], list[float]]:
    first: list[float] = []
    second: list[float] = []
    more = LOOKS[0]
    while more:
        order = list(in_turns(more, len(first)))
        taken = worker.take([(program, turns if changed else TURNS) for changed in order])
        for seconds, changed in zip(taken, order, strict=True):
            (second if changed else first).append(seconds)
        more = more_turns(first, second)
    return first, second


def _pair(program: str, turns: int, workers: Sequence[Worker]) -> tuple[list[float], list[float]]:
    sides: tuple[list[float], list[float]] = ([], [])
    for changed in in_turns(TURNS_OF_A_PAIR):
        sides[changed].extend(workers[changed].take([(program, turns if changed else TURNS)]))
    return sides


def _session(program: str, turns: int, worker: Worker) -> _Samples:
    calibrate: Plan = [(kind, TURNS) for kind in CALIBRATION for _ in range(_CALIBRATIONS)]
    before = worker.take(calibrate)
    samples = worker.take([(program, turns)] * SESSION_SAMPLES[program])
    after = worker.take(calibrate)
    calibration = {
        kind: before[place : place + _CALIBRATIONS] + after[place : place + _CALIBRATIONS]
        for place, kind in zip(range(0, len(before), _CALIBRATIONS), CALIBRATION, strict=True)
    }
    return [], samples, calibration


def read(file: Path) -> list[Run]:
    """The runs of a file; a last line that was cut short is left out; none if it is not there."""
    if not file.exists():
        return []
    lines = file.read_text().splitlines(keepends=True)
    return [Run(**json.loads(line)) for line in lines if line.endswith("\n")]
