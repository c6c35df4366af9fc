"""Costs of a program on a device, for each equation, in operations of matrix products."""

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
    """Costs of each equation of a program, by its index.

    Attributes:
        graph: The program.
        model: Cost model of the device.
    """

    graph: Graph
    model: DeviceModel

    @cached_property
    def operations(self) -> list[float]:
        """Operations of products, and of reading and writing elements."""
        return [
            work(each) + self._inside(at, lambda one: sum(one.operations))
            for at, each in enumerate(self.graph.equations)
        ]

    @cached_property
    def elementwise(self) -> list[float]:
        """Operations of reading and writing elements, without the programs that equations run."""
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
        """Work of each equation: its operations, and the cost of its traffic."""
        byte = self.model.byte
        pairs = zip(self.operations, self.traffic, strict=True)
        return [operations + byte * moved for operations, moved in pairs]

    @cached_property
    def work(self) -> float:
        """Work of the program, each equation computed once."""
        return sum(self.works)

    @cached_property
    def kernels(self) -> list[float]:
        """Number of kernels that each equation starts, itself or in the programs that it runs."""
        return [
            self._inside(at, lambda one: sum(one.kernels))
            if at in self.graph.bodies
            else float(not gives_its_operands(each) and not self._fused.issuperset(each.outvars))
            for at, each in enumerate(self.graph.equations)
        ]

    @cached_property
    def overheads(self) -> list[float]:
        """Cost of starting the kernels of each equation and the steps of its scans.

        The number of iterations of a `while` is not known: it counts as one.
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
        """Cost of starting all kernels and all steps of scans of the program."""
        return sum(self.overheads)

    @property
    def elapsed(self) -> float:
        """The sum of `work` and `overhead`."""
        return self.work + self.overhead

    def _inside(self, index: int, of: Callable[[Costs], float]) -> float:
        """The sum of `of` over the programs that an equation runs, in all their iterations."""
        turns: int = self.graph.equations[index].params.get("length", 1)
        return turns * sum(of(body.costs) for body in self.graph.bodies.get(index, ()))

    @cached_property
    def _fused(self) -> frozenset[Var]:
        """The values that have no memory of their own if no equation is in a loop."""
        graph = self.graph
        kept = stored(graph.units, graph.size.__getitem__, graph.outputs)
        return frozenset(value for value in graph.definition if value not in kept)
