"""One step of a loop: a region's equations on one slice."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from jax.extend.core import Literal

from memsafe.factors import Piece
from memsafe.jax_internals import bind
from memsafe.rules import rule_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn, Var

    from memsafe.factors import Axis, Factor
    from memsafe.graph import Graph
    from memsafe.region import Region

__all__ = ["Leaving", "sliced_results"]

Leaving = tuple[tuple[int, tuple["Var", ...]], ...]
"""The equations whose results leave a loop, with those results."""


def sliced_results(
    graph: Graph,
    region: Region,
    leaving: Leaving,
    piece: Piece,
    inputs: Sequence[Array],
) -> list[Array]:
    """What one slice adds to each result in `leaving`: its slices, or states to be merged."""
    slices = _Slices(region, piece, dict(zip(region.inputs(graph), inputs, strict=True)))
    results_of = dict(leaving)
    parts: list[Array] = []
    for index in sorted(region.factors):
        equation = graph.equations[index]
        for factor in region.versions(index):
            operands = [
                slices.read(atom, axis)
                for atom, axis in zip(equation.invars, factor.operands, strict=True)
            ]
            if factor.merge is None:
                slices.take(equation, factor, _on_slices(equation, factor, operands, piece))
            elif index in results_of:
                parts += factor.merge.part(equation, factor, operands, piece)
        if region.factors[index].merge is None:
            made = results_of.get(index, ())
            parts += [slices.made[value, region.axes[value]] for value in made]
    return parts


def _on_slices(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    rule = rule_of(equation)
    if rule is None or all(axis is None for axis in factor.results):
        return bind(equation, operands)
    return rule.apply(equation, factor, operands, piece)


class _Slices:
    """The values of one step."""

    def __init__(self, region: Region, piece: Piece, inputs: dict[Var, Array]) -> None:
        self.region, self.piece, self.inputs = region, piece, inputs
        self.made: dict[tuple[Var, Axis | None], Array] = {}
        self.cut: dict[tuple[Var, Axis], Array] = {}

    def take(self, equation: JaxprEqn, factor: Factor, results: Sequence[Array]) -> None:
        """Keeps the results of an equation on the slice."""
        for value, axis, result in zip(equation.outvars, factor.results, results, strict=True):
            self.made[value, axis] = result

    def read(self, atom: Var | Literal, axis: Axis | None) -> Array:
        """The value of an operand, sliced along `axis` where the equation carries one."""
        if isinstance(atom, Literal):
            return cast("Array", atom.val)
        if (atom, axis) in self.made:
            return self.made[atom, axis]
        if axis is None:
            return self.inputs[atom]
        if (atom, axis) not in self.cut:
            self.cut[atom, axis] = self.piece.of(self.inputs[atom], axis)
        return self.cut[atom, axis]
