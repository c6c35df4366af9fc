"""Turns alternate, stop when they decide or at a cap, and no sample is shorter than a clock."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from assay.frameworks.timing import Runner, clock_step, take_turns
from assay.model.timing import Ending, Turns


@dataclass
class Machine:
    """A clock of steps, and programs that take their time by it."""

    step: float = 1e-7
    now: float = 0.0
    order: list[str] = field(default_factory=list)

    def clock(self) -> float:
        self.now += self.step / 5  # a reading takes its time, too
        return round(self.now / self.step) * self.step

    def runner(self, name: str, seconds: float) -> Runner:
        def run(count: int) -> float:
            self.order.append(name)
            start = self.clock()
            self.now += count * seconds
            return self.clock() - start

        return Runner(run=run)


def never(_reference: Sequence[float], _judged: Sequence[float]) -> bool:
    return False


def asked(**rest: Any) -> Turns:
    return Turns(**{"reference": "A", "question": "any", "enough": never, "most": 8, **rest})


def turns(
    machine: Machine, *seconds: float, most_seconds: float = 100.0, **rest: Any
) -> tuple[Ending, Runner, Runner]:
    a, b = (machine.runner(name, time) for name, time in zip("AB", seconds, strict=True))
    ending = take_turns((a, b), asked(**rest), most_seconds=most_seconds, clock=machine.clock)
    return ending, a, b


def test_turns_alternate_as_a_b_b_a() -> None:
    machine = Machine()
    ending, a, b = turns(machine, 0.01, 0.02)
    assert ending is Ending.TURNS
    assert "".join(machine.order).endswith("ABBAABBAABBAABBA")
    assert (len(a.samples), len(b.samples)) == (8, 8)
    assert a.samples == pytest.approx([0.01] * 8, rel=1e-4)
    assert b.samples == pytest.approx([0.02] * 8, rel=1e-4)


def test_no_sample_is_the_first_run_or_a_warming_up() -> None:
    machine = Machine()
    turns(machine, 0.01, 0.02)
    assert "".join(machine.order).startswith("ABAABB")


def test_turns_end_when_they_decide() -> None:
    seen = []

    def enough(reference: Sequence[float], judged: Sequence[float]) -> bool:
        seen.append((len(reference), len(judged)))
        return len(reference) == 4

    ending, a, _ = turns(Machine(), 0.01, 0.01, enough=enough)
    assert ending is Ending.ENOUGH
    assert seen == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert len(a.samples) == 4


def test_a_program_by_itself_takes_all_turns() -> None:
    machine, seen = Machine(), []

    def enough(reference: Sequence[float], judged: Sequence[float]) -> bool:
        seen.append((len(reference), len(judged)))
        return len(judged) == 6

    alone = machine.runner("A", 0.01)
    ending = take_turns((alone,), asked(enough=enough), most_seconds=100.0, clock=machine.clock)
    assert (ending, len(alone.samples)) == (Ending.ENOUGH, 6)
    assert seen == [(0, taken) for taken in range(1, 7)]
    capped = machine.runner("B", 0.01)
    ended = take_turns((capped,), asked(most=99), most_seconds=0.2, clock=machine.clock)
    assert ended is Ending.SECONDS
    assert 10 < len(capped.samples) < 20


def test_turns_end_at_the_cap_of_seconds() -> None:
    machine = Machine()
    ending, a, b = turns(machine, 0.01, 0.01, most=1000, most_seconds=1.0)
    assert ending is Ending.SECONDS
    assert machine.now <= 1.0
    assert 20 < len(a.samples) == len(b.samples) < 50


def test_a_run_of_thirty_seconds_is_run_once_and_no_more() -> None:
    machine = Machine()
    ending, a, b = turns(machine, 30.0, 30.0, most_seconds=30.0)
    assert ending is Ending.SECONDS
    assert machine.order == ["A", "B"]
    assert (a.first, b.first) == pytest.approx((30.0, 30.0))
    assert a.samples == b.samples == []


def test_a_hopeless_first_run_is_the_only_one() -> None:
    machine = Machine()
    ending, a, b = turns(machine, 0.01, 1.0, hopeless_after=lambda seconds: 16 * seconds)
    assert (ending, machine.order) == (Ending.ENOUGH, ["A", "B"])
    assert (a.samples, b.samples) == ([a.first], [b.first])


def test_what_is_far_slower_is_not_warmed_up() -> None:
    machine = Machine()
    turns(machine, 0.01, 0.2, most=2, most_seconds=30.0)
    assert "".join(machine.order) == "ABAA" + "ABBA"


def test_the_fewest_samples_may_take_twice_the_seconds() -> None:
    machine = Machine()
    ending, a, _ = turns(machine, 1.0, 2.0, fewest=4, most=100, most_seconds=10.0)
    assert (ending, len(a.samples)) == (Ending.SECONDS, 4)
    assert machine.now == pytest.approx(3 + 4 * 3, rel=0.01)
    ending, a, _ = turns(Machine(), 2.0, 4.0, fewest=12, most=100, most_seconds=10.0)
    assert (ending, len(a.samples)) == (Ending.SECONDS, 2)


def test_a_long_run_is_not_warmed_up() -> None:
    machine = Machine()
    turns(machine, 3.0, 3.0, most_seconds=30.0)
    assert "".join(machine.order).startswith("ABABBA")


def test_a_short_run_is_sampled_several_at_a_time() -> None:
    machine = Machine(step=1e-6)
    ending, a, b = turns(machine, 1e-4, 1e-2)
    assert ending is Ending.TURNS
    assert a.runs_per_sample >= 10
    assert b.runs_per_sample == 1
    assert a.samples == pytest.approx([1e-4] * 8, rel=1e-2)


def test_a_run_below_the_clocks_resolution_is_not_sampled() -> None:
    ending, a, b = turns(Machine(step=0.015), 1e-6, 1e-6)
    assert ending is Ending.BELOW_CLOCK
    assert a.samples == b.samples == []


def test_runs_that_need_arguments_of_their_own_are_bounded() -> None:
    machine = Machine(step=1e-5)
    a, b = machine.runner("A", 1e-5), machine.runner("B", 1e-5)
    a.most_runs = 7
    pair = (a, b)
    ending = take_turns(pair, asked(), most_seconds=9.0, clock=machine.clock)
    assert ending is Ending.BELOW_CLOCK
    assert a.runs_per_sample == 7


def test_a_program_that_fails_leaves_what_was_taken() -> None:
    machine = Machine()
    a, b = machine.runner("A", 0.01), machine.runner("B", 0.01)
    sound = b.run

    def failing(count: int) -> float:
        if len(b.samples) == 2:
            raise RuntimeError("not again")
        return sound(count)

    b.run = failing
    with pytest.raises(RuntimeError, match="not again"):
        take_turns((a, b), asked(), most_seconds=9.0, clock=machine.clock)
    assert (len(a.samples), len(b.samples)) == (3, 2)


def test_no_garbage_is_collected_between_samples() -> None:
    seen: list[bool] = []
    machine = Machine()
    runners = (machine.runner("A", 0.01), machine.runner("B", 0.01))
    take_turns(
        runners,
        asked(enough=lambda *_: bool(seen.append(gc.isenabled())), most=4),  # type: ignore[func-returns-value]
        most_seconds=9.0,
        clock=machine.clock,
    )
    assert seen == [False] * 4
    assert gc.isenabled()


def test_the_clocks_step_is_seen() -> None:
    assert clock_step(Machine(step=1e-3).clock) == pytest.approx(1e-3)
    assert clock_step(Machine(step=1e-7).clock) == pytest.approx(1e-7, rel=0.01)


def test_first_runs_that_compile_take_nothing_from_the_turns() -> None:
    machine = Machine()
    lengths = {"A": iter([50.0]), "B": iter([60.0])}

    def lazily(name: str) -> Runner:
        def run(count: int) -> float:
            seconds = count * next(lengths[name], 0.01)
            machine.now += seconds
            return seconds

        return Runner(run=run, compiles=True)

    a, b = lazily("A"), lazily("B")
    ending = take_turns((a, b), asked(), most_seconds=10.0, clock=machine.clock)
    assert (ending, a.first, b.first) == (Ending.TURNS, 50.0, 60.0)
    assert a.samples == pytest.approx([0.01] * 8)
