"""The programs with values computed again, in the order in which a search tries them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from memsafe.costs import HOST_BYTE
from memsafe.programs import signature

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from memsafe.plan import Plan
    from memsafe.rewrites import Rewritten
    from memsafe.search import Fit, Search

__all__ = ["Attempt", "Recomputation", "cost"]

_HOPELESS = 2
"""How many programs are compiled of those that should not fit, by prediction."""

_FEWER = 2
"""How often these are planned in slices: others keep less."""


class Attempt(NamedTuple):
    """A program to be planned.

    Attributes:
        program: The program.
        target: What its plan may need, in bytes by prediction.
        tries: How often it may be compiled.
    """

    program: Rewritten
    target: float
    tries: int


@dataclass(slots=True, kw_only=True)
class Recomputation:
    """Programs with values computed again, each of which is tried once without slices.

    Attributes:
        search: The search that tries them.
        programs: Those not looked at yet.
        target: What a plan may need, in bytes.
        scale: What is needed of what is predicted. Each plan that is compiled corrects it, but for
            what libraries hold, which no prediction knows.
        compiled: All that the search compiled.
        others: Those that should not fit, with what they need by prediction.
        moving: Those that send values to the host, with their cost and plan.
    """

    search: Search
    programs: Iterator[Rewritten]
    target: float
    scale: float
    compiled: list[Fit] = field(default_factory=list)
    others: list[tuple[float, Rewritten]] = field(default_factory=list)
    moving: list[tuple[float, Rewritten, Plan]] = field(default_factory=list)

    def whole(self, limit: float) -> Iterator[Attempt]:
        """Those that should keep the target without slices, for fewer operations than `limit`."""
        seen: set[Hashable] = set()
        for each in self.programs:
            key = signature(each.program)
            if key in seen:  # In loops of few steps, two levels of segments are one.
                continue
            seen.add(key)
            plan = self.search.planner.plan(each.program, float("inf"), self.search.parts)
            if each.moved:
                self.moving.append((cost(plan, each.moved), each, plan))
            else:
                yield from self._tried(each, plan, limit)

    def on_the_host(self, limit: float) -> Iterator[Attempt]:
        """The same of those that send values to the host, the cheapest first."""
        for _, each, plan in sorted(self.moving, key=lambda other: other[0]):
            yield from self._tried(each, plan, limit)

    def in_slices(self) -> Iterator[Attempt]:
        """Those that need the least of all that did not fit."""
        for _, each in sorted(self.others, key=lambda other: other[0])[:_HOPELESS]:
            yield Attempt(each, self.target / self.scale, _FEWER)

    def _tried(self, program: Rewritten, plan: Plan, limit: float) -> Iterator[Attempt]:
        if self.scale * plan.predicted > self.target or plan.work >= limit:
            self.others.append((plan.predicted, program))
            return
        yield Attempt(program, self.target / self.scale, 1)
        search = self.search
        result = self.compiled[-1].result
        if not result.keeps(search.budget):
            needed = result.nbytes - result.library_bytes - search.plain.argument_bytes
            if needed < float("inf"):
                self.scale = max(self.scale, needed / max(plan.predicted, 1.0))
            self.others.append((plan.predicted, program))


def cost(plan: Plan, moved: float) -> float:
    """What a plan takes, in operations; transfers to and from the host overlap with them."""
    return max(plan.time, 2 * moved * HOST_BYTE)
