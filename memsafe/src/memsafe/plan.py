"""A plan: what is computed whole, what in loops, and what that should take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memsafe.region_costs import halo_work, overhead

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jax.extend.core import JaxprEqn, Var

    from memsafe.candidates import Obstacle
    from memsafe.graph import Graph
    from memsafe.region import Region
    from memsafe.slice_body import Leaving

__all__ = ["LONG", "Loop", "Plan", "Whole"]

LONG = 500
"""The equations of a program from which each plan takes seconds to find and to compile.

A residual network of 1,402 equations takes 7 to 14 s to plan, and a decoder of 1,436 takes 7 to
12 s to compile in slices (2 cores, jax 0.10.2, 2026-11-26).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """An equation computed at once.

    Attributes:
        equation: Its index.
        sub_jaxprs: The plans of the programs that it runs, by name, where they differ from its own.
    """

    equation: int
    sub_jaxprs: Mapping[str, Plan] = field(default_factory=dict)

    def inside(self, graph: Graph) -> list[tuple[int, Plan]]:
        """The plans of the programs that it runs, and how often each runs."""
        turns: int = graph.equations[self.equation].params.get("length", 1)
        return [(turns, one) for one in self.sub_jaxprs.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A region computed slice by slice.

    Attributes:
        region: What is computed.
        length: The indices of one slice.
        leaving: The results that leave the loop.
        transient: Predicted bytes of one slice.
        inner: The plan of one slice, where it is split again.
    """

    region: Region
    length: int
    leaving: Leaving
    transient: float
    inner: Plan | None = None

    def inside(self, _: Graph) -> list[tuple[int, Plan]]:
        """The plan of one slice, where it is split again, and how many slices there are."""
        return [(self.count, self.inner)] if self.inner else []

    def halo_work(self, graph: Graph) -> float:
        """The operations of all its halos."""
        return halo_work(graph, self.region) * self.count

    @property
    def count(self) -> int:
        """How many slices there are."""
        return -(-self.region.size // self.length)

    @property
    def divides(self) -> bool:
        """Whether all slices are of one length, so that no index is computed twice."""
        return self.region.size % self.length == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a program is computed.

    Attributes:
        graph: The program.
        steps: What is computed, in order.
        predicted: Bytes that the program should need at once beside its arguments.
        live: The values alive at that moment, largest first.
        fullest: The step that runs at that moment.
        work: What it takes, in operations of matrix products; comparable within one program only.
        time: The same, where elements of slices count as what they take of others' time.
        traffic: Bytes that it reads and writes in memory.
        obstacles: Why values had to be kept that a better plan would not keep.
        written: The program that `graph` computes with some values computed again; None: itself.
        notes: What is computed again, a line each.
    """

    graph: Graph
    steps: tuple[Loop | Whole, ...]
    predicted: float
    live: tuple[Var, ...]
    fullest: Loop | Whole | None
    work: float
    time: float
    traffic: float
    obstacles: tuple[Obstacle, ...]
    written: Graph | None = None
    notes: tuple[str, ...] = ()

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops at this level."""
        return tuple(step for step in self.steps if isinstance(step, Loop))

    @property
    def operations(self) -> float:
        """Of matrix products and of touching elements, those computed again included."""
        return self.work - self.graph.model.byte * self.traffic

    @property
    def again(self) -> tuple[float, float]:
        """What it takes more than its program, each equation computed once; and the traffic."""
        own = (self.written or self.graph).costs
        return self.work - own.work, self.traffic - sum(own.traffic)

    @property
    def share_again(self) -> float:
        """The part of its program's work that it does in addition."""
        return self.again[0] / max((self.written or self.graph).costs.work, 1.0)

    @property
    def elapsed(self) -> float:
        """`time` and `overhead`."""
        return self.time + self.overhead

    @property
    def overhead(self) -> float:
        """What it takes to begin each step of its loops and of scans in them, and each kernel."""
        return sum(map(self._overhead, self.steps))

    def _overhead(self, step: Loop | Whole) -> float:
        graph = self.graph
        if isinstance(step, Loop):
            within = step.inner.overhead if step.inner else overhead(graph, step.region)
            return step.count * (graph.model.step + within)
        more = (
            turns * (one.overhead - one.graph.costs.overhead) for turns, one in step.inside(graph)
        )
        return graph.costs.overheads[step.equation] + sum(more)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is split, here or inside."""
        return not any(True for _ in self.all_loops())

    @property
    def is_as_written(self) -> bool:
        """Whether its program is computed as it is."""
        return self.is_plain and not self.graph.takes_turns

    def sub_jaxprs(self) -> Iterator[tuple[str, JaxprEqn, Plan]]:
        """The changed programs that equations run: the primitive, the equation, the plan."""
        for step in self.steps:
            if isinstance(step, Whole):
                equation = self.graph.equations[step.equation]
                for plan in step.sub_jaxprs.values():
                    yield equation.primitive.name, equation, plan

    def all_loops(self) -> Iterator[Loop]:
        """The loops at every level, outer ones first."""
        for step in self.steps:
            if isinstance(step, Loop):
                yield step
                if step.inner is not None:
                    yield from step.inner.all_loops()
            else:
                for plan in step.sub_jaxprs.values():
                    yield from plan.all_loops()
