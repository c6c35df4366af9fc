"""Every item of a fleet is reported or given up once, whatever is lost."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import Any

import pytest

from assay.fleet import ledger
from assay.fleet.ledger import TRIES, Group
from assay.fleet.messages import Message
from tests.fleet.fakes import Fakes, Told, ended

GROUPS = [Group(items=tuple(f"{group}/{item}" for item in range(4))) for group in range(5)]
ALL = [item for group in GROUPS for item in group.items]


def test_every_item_is_reported_once() -> None:
    told = Told()
    told.ledger().run(GROUPS, Fakes())
    assert sorted(told.ended) == sorted(ALL)
    assert not told.losses
    assert not told.given_up


def test_the_view_names_each_item_before_it_ends() -> None:
    told = Told()
    told.ledger().run(GROUPS, Fakes())
    assert sorted(item for _, item in told.shown) == sorted(ALL)
    assert {node for node, _ in told.shown} == {"machine-0", "machine-1"}


def test_what_a_lost_worker_did_not_report_runs_again() -> None:
    told, fakes = Told(), Fakes(kills=lambda item, tries: item == "1/1" and tries == 1)
    told.ledger().run(GROUPS, fakes)
    assert sorted(told.ended) == sorted(ALL)
    assert [again for _, again in told.losses] == [("1/1", "1/2", "1/3")]
    assert fakes.tries["1/0"] == 1


def test_an_item_that_ends_its_workers_is_given_up_alone() -> None:
    told = Told()
    told.ledger().run(GROUPS, Fakes(kills=lambda item, _: item == "1/1"))
    assert sorted([*told.ended, "1/1"]) == sorted(ALL)
    assert list(told.given_up) == ["1/1"]
    assert len(told.given_up["1/1"]) == TRIES
    assert all(each.startswith("machine-") for each in told.given_up["1/1"])


@pytest.mark.parametrize("seed", range(20))
def test_no_item_is_lost_or_done_twice_by_chance(seed: int) -> None:
    chance, told = random.Random(seed), Told()
    told.ledger().run(GROUPS, Fakes(kills=lambda _item, _try: chance.random() < 0.3))
    assert sorted([*told.ended, *told.given_up]) == sorted(ALL)


class Silent(Fakes):
    """Workers that end without a report."""

    def _messages(self, group: Group, name: str) -> Iterator[Message | None]:
        yield None


def test_workers_that_report_nothing_end_the_run() -> None:
    told = Told()
    told.ledger().run(GROUPS, Silent())
    assert sorted(told.given_up) == sorted(ALL)


class Gone(Fakes):
    """A fleet whose machines are all lost after the first report."""

    def capacity(self) -> int:
        return 0 if self.groups else self.count

    def receive(
        self, handles: Collection[Any], seconds: float
    ) -> Iterator[tuple[Any, Message | None]]:
        if self.streams:
            self.streams.clear()
            yield next(iter(handles)), ended("0/0")


def test_a_fleet_without_machines_ends_the_run() -> None:
    told = Told()
    told.ledger().run(GROUPS, Gone())
    assert told.ended == ["0/0"]
    assert sorted(told.given_up) == sorted(set(ALL) - {"0/0"})
    assert told.given_up["4/3"] == [": no machine is left in the fleet"]


def test_a_pinned_group_stays_on_its_machine_when_it_is_lost() -> None:
    told, fakes = Told(), Fakes(kills=lambda item, tries: item == "b" and tries == 1)
    told.ledger().run([Group(items=("a", "b", "c"), node="id-7", device="gpu")], fakes)
    assert {(each.node, each.device) for each in fakes.groups} == {("id-7", "gpu")}


def test_groups_that_wait_for_a_gpu_do_not_hold_up_others() -> None:
    class OneGpu(Fakes):
        """Machines whose only GPU never gets free until all else is done."""

        def receive(
            self, handles: Collection[Any], seconds: float
        ) -> Iterator[tuple[Any, Message | None]]:
            free = [each for each in handles if not self.groups[each - 1].device]
            yield from super().receive(free or handles, seconds)

    told, fakes = Told(), OneGpu()
    live = [Group(items=(f"gpu/{number}",), device="gpu") for number in range(9)]
    told.ledger().run([*live, *GROUPS], fakes)
    assert sorted(told.ended[: len(ALL)]) == sorted(ALL)
    assert len(told.ended) == len(ALL) + len(live)


def test_a_report_that_was_not_asked_for_is_a_fault() -> None:
    class Wrong(Fakes):
        def _messages(self, group: Group, name: str) -> Iterator[Message | None]:
            yield ended("another")

    with pytest.raises(ValueError, match="not in deque"):
        Told().ledger().run(GROUPS, Wrong())


def test_a_fleet_whose_first_machine_is_late_is_waited_for() -> None:
    class Late(Fakes):
        """Machines that an autoscaler starts after nine minutes."""

        asked = 0

        def capacity(self) -> int:
            self.asked += 1
            is_late = self.asked * ledger._TICK_SECONDS < 540
            return 0 if is_late else self.count

        def receive(
            self, handles: Collection[Any], seconds: float
        ) -> Iterator[tuple[Any, Message | None]]:
            yield from super().receive(handles, seconds) if self.capacity() else ()

    told = Told()
    told.ledger().run(GROUPS, Late())
    assert sorted(told.ended) == sorted(ALL)
