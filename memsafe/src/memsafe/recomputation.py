"""The programs with values computed again, in the order in which a search tries them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from memsafe.programs import signature

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from memsafe.compiled_plan import Fit
    from memsafe.graph import Graph
    from memsafe.plan import Plan
    from memsafe.rewrites import Rewritten
    from memsafe.search import Search

__all__ = ["Attempt", "Recomputation", "allowed", "slowdown"]

_HOPELESS = 2
"""Maximum number of programs with values computed again that are tried in slices."""

_FEWER = 3
"""Maximum number of plans compiled for each of these: other programs keep less."""


_NOTICED = 0.01
"""Seconds that a plan on a GPU may take beyond what `max_slowdown` allows.

A program of a tutorial takes less than that. It is not refused for the kernels of its loops.
"""


class Attempt(NamedTuple):
    """A program to be planned.

    Attributes:
        program: The program.
        target: Predicted bytes that its plan may need.
        tries: Maximum number of its plans that are compiled.
    """

    program: Rewritten
    target: float
    tries: int


@dataclass(slots=True, kw_only=True)
class _Way:
    """A program with values computed again, its plan without slices, and whether it fits."""

    program: Rewritten
    plan: Plan
    is_tried: bool = False
    fits: bool = False


@dataclass(slots=True, kw_only=True)
class Recomputation:
    """Programs with values computed again, each of which is tried once without slices.

    Attributes:
        search: The search that tries them.
        programs: Programs not looked at yet.
        target: Bytes that a plan may need.
        scale: Minimum ratio of needed memory to predicted memory.
        corrected: Highest such ratio of compiled programs that do not fit, by whether products are
            kept, because what fuses into a product differs. The memory of libraries is left out,
            because no prediction knows it.
        compiled: All plans that the search compiled.
        known: Programs looked at, by signature.
        failed: Of each compiled program that does not fit: whether products are kept, the bytes
            sent to the host, the predicted bytes and the predicted time. A program with equal
            values is equal to the compiler: two ways to divide a ResNet need equal bytes.
    """

    search: Search
    programs: Iterator[Rewritten]
    target: float
    scale: float
    corrected: dict[bool, float] = field(default_factory=dict)
    compiled: list[Fit] = field(default_factory=list)
    known: dict[Hashable, _Way] = field(default_factory=dict)
    failed: set[tuple[bool, float, float, float]] = field(default_factory=set)

    def whole(self, limit: float, close: float = 1.0) -> Iterator[Attempt]:
        """Programs predicted to fit the target without slices, in less time than `limit`.

        A program predicted to need up to `close` times the target is compiled as well.
        """
        for way in self._ways():
            if not way.program.moved and self._needed(way) <= close * self.target:
                yield from self._tried(way, limit)

    def on_the_host(self, limit: float) -> Iterator[Attempt]:
        """Like `whole`, for programs that send values to the host; the cheapest come first."""
        moving = [way for way in self._ways() if way.program.moved]
        for way in sorted(moving, key=lambda way: cost(way.plan, way.program.moved)):
            if self._needed(way) <= self.target:
                yield from self._tried(way, limit)

    def in_slices(self) -> Iterator[Attempt]:
        """Programs predicted to need the least memory, but none that fits whole and is too slow."""
        for way in sorted(self._ways(), key=lambda way: way.plan.predicted)[:_HOPELESS]:
            if not way.fits:
                yield Attempt(way.program, self.target / self._scale(way), _FEWER)

    def at_last(self) -> Iterator[Attempt]:
        """Programs of `Search.deepest` that are predicted to fit the target without slices."""
        for each in self.search.deepest:
            if signature(each.program) not in self.known:
                way = self._way(each)
                if self.scale * way.plan.predicted <= self.target:
                    yield from self._tried(way, float("inf"))

    def _ways(self) -> Iterator[_Way]:
        """Each program once: in loops of few steps, two levels of segments equal one level."""
        yield from tuple(self.known.values())
        for each in self.programs:
            key = signature(each.program)
            if key not in self.known:
                self.known[key] = self._way(each)
                yield self.known[key]

    def _way(self, program: Rewritten) -> _Way:
        plan = self.search.planner.plan(program.program, float("inf"), self.search.parts)
        return _Way(program=program, plan=plan)

    def _tried(self, way: _Way, limit: float) -> Iterator[Attempt]:
        plan, search = way.plan, self.search
        alike = way.program.products, way.program.moved, plan.predicted, plan.elapsed
        if way.is_tried or plan.elapsed >= limit or alike in self.failed:
            return
        way.is_tried = True
        yield Attempt(way.program, max(self.target / self._scale(way), plan.predicted), 1)
        result = self.compiled[-1].result
        way.fits = result.keeps(search.budget)
        if not way.fits:
            self.failed.add(alike)
            needed = result.nbytes - result.library_bytes - search.plain.argument_bytes
            if needed < float("inf"):
                reached = needed / max(plan.predicted, 1.0)
                self.corrected[way.program.products] = max(self._scale(way), reached)

    def _needed(self, way: _Way) -> float:
        return self._scale(way) * way.plan.predicted

    def _scale(self, way: _Way) -> float:
        return max(self.scale, self.corrected.get(way.program.products, 0.0))


def slowdown(plan: Plan, moved: float, written: Graph) -> float:
    """The predicted time of a plan as a multiple of that of the program as written.

    The time to begin steps and kernels counts on a GPU only; for a CPU see `device_model.CPU`.
    """
    taken, own = cost(plan, moved), written.costs.work
    if written.model.kernel:
        taken, own = taken + plan.overhead, written.costs.elapsed
    return taken / own if own else 1.0


def allowed(most: float, written: Graph) -> float:
    """The slowdown allowed for a `max_slowdown` of `most`; on a GPU, `_NOTICED` seconds more."""
    noticed = _NOTICED * written.model.products if written.model.kernel else 0.0
    return most + noticed / max(written.costs.elapsed, 1.0)


def cost(plan: Plan, moved: float) -> float:
    """The time of a plan in operations, including transfers to and from the host.

    Transfers count in full: in a step of suite scan_offload's program, an H200 hid none of 17 GB
    each way behind kernels (jax 0.11.2, 2026-11-26, docs/device.md).
    """
    return plan.time + 2 * moved * plan.graph.model.host_byte
