"""Workers of a fleet without Ray: they say what a plan tells them to, in a simulated time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.fleet.ledger import Group, Ledger
from assay.fleet.messages import Ended, Lost, Message, Place, Started


def ended(item: str) -> Ended:
    return Ended(item=item, reports=b"[]")


@dataclass
class Fakes:
    """As many machines as ``count``; ``kills(item, try)`` says whether the item ends its worker."""

    count: int = 2
    kills: Callable[[str, int], bool] = lambda _item, _try: False
    tries: dict[str, int] = field(default_factory=dict)
    streams: dict[int, deque[Message | None]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    def capacity(self) -> int:
        return self.count

    def submit(self, group: Group) -> int:
        self.groups.append(group)
        number = len(self.groups)
        self.streams[number] = deque(self._messages(group, f"machine-{number % self.count}"))
        return number

    def _messages(self, group: Group, name: str) -> Iterator[Message | None]:
        yield Started(place=Place(name=name, id=name))
        for item in group.items:
            self.tries[item] = self.tries.get(item, 0) + 1
            if self.kills(item, self.tries[item]):
                yield Lost(why="killed")
                return
            yield ended(item)
        yield None

    def receive(
        self, handles: Collection[Any], seconds: float
    ) -> Iterator[tuple[Any, Message | None]]:
        for handle in list(handles)[: self.count]:
            yield handle, self.streams[handle].popleft()


@dataclass
class Told:
    """What a ledger told its caller."""

    ended: list[str] = field(default_factory=list)
    shown: list[tuple[str, str]] = field(default_factory=list)
    losses: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    given_up: dict[str, list[str]] = field(default_factory=dict)

    def ledger(self) -> Ledger:
        def report(message: Message, place: Place | None, following: str) -> None:
            if isinstance(message, Ended):
                self.ended.append(message.item)
            if following and place:
                self.shown.append((place.name, following))

        def give_up(item: str, losses: Sequence[Lost]) -> None:
            assert item not in self.given_up
            self.given_up[item] = [f"{each.node}: {each.why}" for each in losses]

        def lose(lost: Lost, again: Sequence[str]) -> None:
            self.losses.append((lost.node, tuple(again)))

        return Ledger(report=report, lose=lose, give_up=give_up)
