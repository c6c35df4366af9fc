"""What a program takes on a device, equation by equation, in operations of matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from memsafe.costs import elementwise_work, gives_its_operands, traffic, work
from memsafe.memory import stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax.extend.core import Var

    from memsafe.device_model import DeviceModel
    from memsafe.graph import Graph

__all__ = ["Costs"]


@dataclass(frozen=True)
class Costs:
    """What each equation of a program takes, by its index.

    Attributes:
        graph: The program.
        model: The device.
    """

    graph: Graph
    model: DeviceModel

    @cached_property
    def operations(self) -> list[float]:
        """Operations of products, and those of touching elements."""
        return [
            work(each) + self._inside(at, lambda one: sum(one.operations))
            for at, each in enumerate(self.graph.equations)
        ]

    @cached_property
    def elementwise(self) -> list[float]:
        """Those of touching elements alone, of what each equation itself does."""
        return list(map(elementwise_work, self.graph.equations))

    @cached_property
    def traffic(self) -> list[float]:
        """Bytes read and written in memory."""
        return [
            traffic(each, self._fused) + self._inside(at, lambda one: sum(one.traffic))
            for at, each in enumerate(self.graph.equations)
        ]

    @cached_property
    def works(self) -> list[float]:
        """Both: the operations, and what the traffic takes."""
        byte = self.model.byte
        pairs = zip(self.operations, self.traffic, strict=True)
        return [operations + byte * moved for operations, moved in pairs]

    @cached_property
    def work(self) -> float:
        """The same of the program, each equation computed once."""
        return sum(self.works)

    @cached_property
    def kernels(self) -> list[float]:
        """How many kernels each starts: one, or those of the programs that it runs."""
        return [
            self._inside(at, lambda one: sum(one.kernels))
            if at in self.graph.bodies
            else float(not gives_its_operands(each) and not self._fused.issuperset(each.outvars))
            for at, each in enumerate(self.graph.equations)
        ]

    @cached_property
    def overheads(self) -> list[float]:
        """What kernels of each take to start, and the steps of scans in it.

        How often a `while` turns is not known: it counts as one turn.
        """
        steps = [
            each.params["length"] if each.primitive.name == "scan" else 0
            for each in self.graph.equations
        ]
        return [
            self.model.step * count + self._inside(at, lambda one: one.overhead)
            if at in self.graph.bodies
            else self.model.kernel * self.kernels[at]
            for at, count in enumerate(steps)
        ]

    @cached_property
    def overhead(self) -> float:
        """The same of the program."""
        return sum(self.overheads)

    @property
    def elapsed(self) -> float:
        """All that the program takes."""
        return self.work + self.overhead

    def _inside(self, index: int, of: Callable[[Costs], float]) -> float:
        """The sum of what the programs take that an equation runs, in all their turns."""
        turns: int = self.graph.equations[index].params.get("length", 1)
        return turns * sum(of(body.costs) for body in self.graph.bodies.get(index, ()))

    @cached_property
    def _fused(self) -> frozenset[Var]:
        """The values that have no memory of their own where nothing is in loops."""
        graph = self.graph
        kept = stored(graph.units, graph.size.__getitem__, graph.outputs)
        return frozenset(value for value in graph.definition if value not in kept)
