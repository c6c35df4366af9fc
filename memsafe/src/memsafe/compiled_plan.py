"""A compiled plan: the program that runs, and its cost relative to the program as written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsafe.emit import emitted
from memsafe.placement import constrained
from memsafe.programs import evaluate
from memsafe.recomputation import slowdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

    from memsafe.graph import Graph
    from memsafe.measure import Measured
    from memsafe.plan import Plan

__all__ = ["Fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A plan, compiled.

    Attributes:
        plan: How the program is computed.
        written: The program as written.
        plain: The program as written, compiled.
        result: The planned program, compiled.
        attempts: Number of plans compiled up to this one; 0 for the program as written.
        notes: What was rewritten before planning.
        moved: Bytes that go to the host's memory and come back, summed over all devices.
    """

    plan: Plan
    written: Graph
    plain: Measured
    result: Measured
    attempts: int
    notes: tuple[str, ...] = ()
    moved: float = 0.0

    @property
    def operations(self) -> float:
        """The operations of the plan as a multiple of the program's own."""
        own = sum(self.written.costs.operations)
        return self.plan.operations / own if own else 1.0

    @property
    def slowdown(self) -> float:
        """The predicted time of the plan as a multiple of the program's own."""
        return slowdown(self.plan, self.moved, self.written)

    @property
    def program(self) -> Callable[..., list[Array]]:
        """The planned program: the same arguments, the same results."""
        if not self.attempts:
            return lambda *arguments: evaluate(self.plan.graph.closed, arguments)
        return constrained(emitted(self.plan), self.result.places)
