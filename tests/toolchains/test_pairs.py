"""Pairs of processes are sampled alternately, and no longer than the judge or the time allows."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import pytest

from assay.model.evidence import Failure, Toolchain
from assay.model.rerun import Pair, Side
from assay.model.target import Unavailable
from assay.model.timing import Change, Ending, Machine
from assay.stats.processes import PAIR_LOOKS, TURNS_OF_A_PAIR, ratio_of_processes
from assay.toolchains.pairs import (
    Halted,
    Launch,
    Prepared,
    Process,
    child_of,
    is_judged,
    take_pairs,
    take_turns,
    turns,
)

PREPARED = Prepared(
    toolchain=Toolchain(versions={}),
    python="3.12",
    machine=Machine(cpu="", cores=2, device="cpu"),
    trace=0.1,
    compile=0.2,
    first=0.3,
    runs_per_sample=4,
    most_runs=100,
)


@dataclass
class World:
    """Two processes on one clock, which only their samples move on."""

    now: float = 0.0
    order: list[str] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def wild_pair(self, number: int, end: float) -> Pair:
        """One whose processes differ by far more than programs do."""
        old, new = np.exp(0.5 * np.random.default_rng(number).standard_normal(2))
        return self.pair(number, end, float(new), float(old))

    def started(self, name: str, seconds: float) -> Process:
        def sample(runs: int) -> float:
            self.runs.append(runs)
            self.order.append(name)
            self.now += seconds
            return seconds

        return Process(prepared=PREPARED, sample=sample)

    def pair(self, number: int, end: float, new: float = 1.0, old: float = 1.0) -> Pair:
        return take_turns(
            self.started("a", old),
            self.started("b", new),
            old_first=number % 2 == 0,
            end=end,
            clock=self.clock,
        )


def test_samples_are_taken_alternately_and_who_begins_changes_with_the_pair() -> None:
    world = World()
    pair = world.pair(0, 1e9)
    assert "".join(world.order) == "abba" * (TURNS_OF_A_PAIR // 2)
    assert len(pair.old.samples) == len(pair.new.samples) == TURNS_OF_A_PAIR
    world.order.clear()
    world.pair(1, 1e9)
    assert "".join(world.order) == "baab" * (TURNS_OF_A_PAIR // 2)


def test_each_sample_is_kept_on_the_side_that_took_it() -> None:
    pair = World().pair(1, 1e9, new=3.0)
    assert set(pair.old.samples) == {1.0}
    assert set(pair.new.samples) == {3.0}
    assert (pair.old.compile, pair.old.first, pair.old.runs_per_sample) == (0.2, 0.3, 4)


@pytest.mark.parametrize(("most", "runs"), [(100, 9), (6, 6)])
def test_both_samples_are_of_as_many_runs(most: int, runs: int) -> None:
    world = World()
    old, new = world.started("a", 1.0), world.started("b", 1.0)
    new = replace(new, prepared=msgspec.structs.replace(PREPARED, runs_per_sample=9))
    old = replace(old, prepared=msgspec.structs.replace(PREPARED, most_runs=most))
    pair = take_turns(old, new, old_first=True, end=1e9, clock=world.clock)
    assert set(world.runs) == {runs}
    assert pair.old.runs_per_sample == pair.new.runs_per_sample == runs


def test_no_turn_begins_that_would_not_end_in_time_and_both_have_as_many_samples() -> None:
    world = World()
    pair = world.pair(0, 20.0)
    assert len(pair.old.samples) == len(pair.new.samples) == 10
    assert is_judged(pair)
    assert not is_judged(World().pair(0, 10.0))


@pytest.mark.parametrize(
    ("new", "change"), [(1.0, Change.SAME), (1.1, Change.SLOWER), (0.9, Change.FASTER)]
)
def test_the_fewest_pairs_decide_what_is_clear(new: float, change: Change) -> None:
    world = World()
    seen: list[Sequence[Pair]] = []
    ended = take_pairs(
        lambda number, end: world.pair(number, end, new),
        most_seconds=1e9,
        taken=seen.append,
        clock=world.clock,
    )
    assert ended is Ending.ENOUGH
    assert [len(pairs) for pairs in seen] == list(range(1, PAIR_LOOKS[0] + 1))
    assert ratio_of_processes([turns(pair) for pair in seen[-1]]).change is change


def test_what_no_number_of_pairs_decides_ends_at_the_cap_of_pairs() -> None:
    world = World()
    seen: list[Sequence[Pair]] = []
    ended = take_pairs(
        world.wild_pair,
        most_seconds=1e9,
        taken=seen.append,
        clock=world.clock,
    )
    assert ended is Ending.TURNS
    assert len(seen[-1]) == PAIR_LOOKS[-1]


def test_the_seconds_are_kept_and_what_was_measured_with_them() -> None:
    world = World()
    for number in range(PAIR_LOOKS[-1]):
        world.wild_pair(number, 1e9)
    enough, world = world.now, World()
    seen: list[Sequence[Pair]] = []
    ended = take_pairs(
        world.wild_pair,
        most_seconds=0.6 * enough,
        taken=seen.append,
        clock=world.clock,
    )
    assert ended is Ending.SECONDS
    assert world.now <= 0.6 * enough
    assert PAIR_LOOKS[0] <= len(seen[-1]) < PAIR_LOOKS[-1]


def test_a_long_program_takes_fewer_turns_so_that_enough_pairs_fit() -> None:
    world = World()
    seen: list[Sequence[Pair]] = []
    take_pairs(
        world.pair,
        most_seconds=PAIR_LOOKS[0] * 30.0,
        taken=seen.append,
        clock=world.clock,
    )
    turns = [len(pair.old.samples) for pair in seen[-1]]
    assert len(turns) >= PAIR_LOOKS[0] - 1
    assert set(turns) == {15}


def test_a_program_too_long_for_the_seconds_is_not_judged() -> None:
    world = World()
    seen: list[Sequence[Pair]] = []
    ended = take_pairs(
        world.pair,
        most_seconds=9.0,
        taken=seen.append,
        clock=world.clock,
    )
    assert ended is Ending.SECONDS
    assert [is_judged(pair) for pair in seen[-1]] == [False]


def test_a_program_that_became_many_times_slower_is_judged_by_one_turn() -> None:
    world = World()
    seen: list[Sequence[Pair]] = []
    ended = take_pairs(
        lambda number, end: world.pair(number, end, 23.5, 0.05),
        most_seconds=60.0,
        taken=seen.append,
        clock=world.clock,
    )
    assert ended is Ending.ENOUGH
    assert [len(pair.old.samples) for pair in seen[-1]] == [1]
    found = ratio_of_processes([turns(pair) for pair in seen[-1]])
    assert (found.change, found.ratio) == (Change.SLOWER, pytest.approx(470))


def dying(signal_number: int) -> Launch:
    """A process that is ready, and ends by a signal at its first request."""
    code = (
        "import os, sys; from assay.isolate.child import READY, own_pipes, read, write; "
        "requests, answers = own_pipes(); write(answers, READY); read(requests, 60); "
        f"os.kill(os.getpid(), {signal_number})"
    )
    return Launch(
        side=Side.NEW,
        command=[sys.executable, "-c", code],
        environment=os.environ,
        program=b"",
        timeout_seconds=60,
    )


@pytest.mark.parametrize(
    ("signal_number", "kills", "end"),
    [
        (signal.SIGKILL, itertools.count(), Unavailable),
        (signal.SIGKILL, itertools.repeat(0), Failure),
        (signal.SIGABRT, itertools.count(), Failure),
    ],
    ids=["by the kernel", "from outside", "by itself while the kernel ends another"],
)
def test_a_kill_for_lack_of_memory_judges_no_program(
    monkeypatch: pytest.MonkeyPatch, signal_number: int, kills: Iterator[int], end: type
) -> None:
    monkeypatch.setattr("assay.isolate.child.kernel_kills", lambda: next(kills))
    with child_of(dying(signal_number)) as ask, pytest.raises(Halted) as halted:
        ask(b"program")
    assert halted.value.side is Side.NEW
    assert isinstance(halted.value.end, end)
