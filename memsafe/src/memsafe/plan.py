"""A plan: which equations are computed whole, which in loops, and the predicted costs."""

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
"""Number of equations above which each plan of a program takes seconds to find and to compile.

A residual network of 1,402 equations takes 7 to 14 s to plan, and a decoder of 1,436 takes 7 to
12 s to compile in slices (2 cores, jax 0.10.2, 2026-11-26).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """An equation computed at once.

    Attributes:
        equation: Its index.
        sub_jaxprs: Plans of the programs that it runs, by name, where a plan changes the program.
    """

    equation: int
    sub_jaxprs: Mapping[str, Plan] = field(default_factory=dict)

    def inside(self, graph: Graph) -> list[tuple[int, Plan]]:
        """How often each changed program of the equation runs, and its plan."""
        turns: int = graph.equations[self.equation].params.get("length", 1)
        return [(turns, one) for one in self.sub_jaxprs.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A region computed slice by slice.

    Attributes:
        region: What is computed.
        length: Number of indices in one slice.
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
        """The number of slices and the plan of one slice, if slices are split again."""
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
        predicted: Predicted peak in bytes, without the arguments.
        live: The values alive at the peak, largest first.
        fullest: The step that runs at the peak.
        work: Total work in operations of matrix products; comparable within one program only.
        time: Like `work`, but with elements of slices weighted by `DeviceModel.cached`.
        traffic: Bytes that it reads and writes in memory.
        obstacles: Why values had to be kept that a better plan would not keep.
        written: The program of which `graph` is a variant that recomputes values; None: `graph`.
        notes: Descriptions of what is recomputed, one line each.
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
        """Operations of products and of reading and writing elements, recomputation included."""
        return self.work - self.graph.model.byte * self.traffic

    @property
    def again(self) -> tuple[float, float]:
        """Extra work and traffic compared with the program as written."""
        own = (self.written or self.graph).costs
        return self.work - own.work, self.traffic - sum(own.traffic)

    @property
    def share_again(self) -> float:
        """Extra work as a share of the work of the program as written."""
        return self.again[0] / max((self.written or self.graph).costs.work, 1.0)

    @property
    def elapsed(self) -> float:
        """The sum of `time` and `overhead`."""
        return self.time + self.overhead

    @property
    def overhead(self) -> float:
        """Cost of starting all steps of loops and scans, and all kernels, in operations."""
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
        """Whether no value is split, in this program or in the programs that its equations run."""
        return not any(True for _ in self.all_loops())

    @property
    def is_as_written(self) -> bool:
        """Whether the program is computed as written: no loops, no equations that wait in turn."""
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
