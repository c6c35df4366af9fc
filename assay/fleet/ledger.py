"""Which items still need a verdict: what waits, what runs, and what lost its worker."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from assay.fleet.messages import Ended, Lost, Message, Place, Started

TRIES: Final = 3
"""An item whose worker is lost so often is given up."""
_AHEAD: Final = 2
"""Groups that are submitted for each worker, so that none waits for the driver."""
_TICK_SECONDS: Final = 2.0
_PATIENCE: Final = 30
"""Ticks without any machine after which the rest is given up."""
_FIRST_PATIENCE: Final = 300
"""The same before the first machine was there: an autoscaler starts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Items that one worker runs in this order. ``device`` is ``gpu`` or ``tpu`` if they need one.

    ``node`` pins the group to the machine with that id.
    """

    items: tuple[str, ...]
    device: str = ""
    node: str = ""


class Workers(Protocol):
    """Machines that run groups."""

    def capacity(self) -> int:
        """How many groups they can run at once; 0 if there is no machine."""

    def submit(self, group: Group) -> Any:
        """Start the group when a worker is free; returns the handle of its messages."""

    def receive(
        self, handles: Collection[Any], seconds: float
    ) -> Iterator[tuple[Any, Message | None]]:
        """The messages that arrived, after at most ``seconds`` of waiting; None ends a handle."""


@dataclass(slots=True)
class _Running:
    """A submitted group, what it has not reported, and where it runs."""

    group: Group
    left: deque[str]
    place: Place | None = None


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Runs groups on workers until each item has reported or is given up.

    ``report`` gets each message but ``Lost``, its group's machine, and the item that runs next.
    ``lose`` gets a machine, why it was lost, and the items that run elsewhere. ``give_up`` gets an
    item, and where and why it lost each worker.
    """

    report: Callable[[Message, Place | None, str], None]
    lose: Callable[[Lost, Sequence[str]], None]
    give_up: Callable[[str, Sequence[Lost]], None]
    _losses: dict[str, list[Lost]] = field(default_factory=dict)
    _waiting: dict[str, deque[Group]] = field(default_factory=dict)
    _submitted: Counter[str] = field(default_factory=Counter)
    _running: dict[Any, _Running] = field(default_factory=dict)

    def run(self, groups: Iterable[Group], workers: Workers) -> None:
        """Run all groups. Every item is either reported once or given up once."""
        for group in groups:
            self._queue(group).append(group)
        missing, patience = 0, _FIRST_PATIENCE
        while self._running or any(self._waiting.values()):
            capacity = workers.capacity()
            self._submit(workers, _AHEAD * max(capacity, 1))
            heard = False
            for handle, message in workers.receive(self._running, _TICK_SECONDS):
                heard = True
                self._handle(handle, message)
            patience = _PATIENCE if capacity else patience
            missing = 0 if heard or capacity else missing + 1
            if missing > patience:
                self._abandon()

    def _queue(self, group: Group) -> deque[Group]:
        """What waits for the same device: groups that wait for a GPU must not hold up others."""
        return self._waiting.setdefault(group.device, deque())

    def _submit(self, workers: Workers, most: int) -> None:
        for device, queue in self._waiting.items():
            while queue and self._submitted[device] < most:
                group = queue.popleft()
                self._submitted[device] += 1
                self._running[workers.submit(group)] = _Running(group, deque(group.items))

    def _handle(self, handle: Any, message: Message | None) -> None:
        running = self._running[handle]
        if isinstance(message, Started):
            running.place = message.place
            self.report(message, running.place, running.left[0])
        elif isinstance(message, Ended):
            running.left.remove(message.item)
            self.report(message, running.place, running.left[0] if running.left else "")
        elif message is None or isinstance(message, Lost):
            del self._running[handle]
            self._submitted[running.group.device] -= 1
            if running.left:
                self._lose(
                    running, message or Lost(why="it reported fewer items than it was given")
                )
        else:
            self.report(message, running.place, "")

    def _lose(self, running: _Running, lost: Lost) -> None:
        """Give what has no report to other workers.

        The item that ran may have ended the worker, so it runs alone, after all others. Before
        the session was ready, all items are suspects: they run together again, after all others.
        """
        if running.place is not None:
            lost = Lost(why=lost.why, node=running.place.name)
        left = tuple(running.left)
        # Before the session was ready, any of the items may have ended it.
        suspects = left[:1] if running.place else left
        again, rest = [], left[len(suspects) :]
        for item in suspects:
            losses = self._losses.setdefault(item, [])
            losses.append(lost)
            if len(losses) < TRIES:
                again.append(item)
            else:
                self.give_up(item, losses)
        self.lose(lost, (*again, *rest))
        if rest:
            self._queue(running.group).appendleft(replace(running.group, items=rest))
        if again:
            self._queue(running.group).append(replace(running.group, items=tuple(again)))

    def _abandon(self) -> None:
        """Give up all items, because no machine is left to run them."""
        lost = Lost(why="no machine is left in the fleet")
        left = [item for running in self._running.values() for item in running.left]
        waiting = (group for queue in self._waiting.values() for group in queue)
        left += [item for group in waiting for item in group.items]
        self._running.clear()
        self._waiting.clear()
        for item in left:
            self.give_up(item, [*self._losses.get(item, ()), lost])
