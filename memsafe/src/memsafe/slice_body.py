"""One step of a loop: a region's equations on one slice."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint
from jax.extend.core import Literal

from memsafe.jax_internals import bind
from memsafe.over_devices import on_each_device
from memsafe.rules import rule_of
from memsafe.storing import stored

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn, Var

    from memsafe.factors import Axis, Factor, Piece
    from memsafe.graph import Graph
    from memsafe.region import Region
    from memsafe.turns import Turns

__all__ = ["Leaving", "sliced_results"]

Leaving = tuple[tuple[int, tuple["Var", ...]], ...]
"""The equations whose results leave a loop, with those results."""


def sliced_results(
    graph: Graph,
    region: Region,
    leaving: Leaving,
    piece: Piece,
    inputs: Sequence[Array],
    turns: Turns,
    row_major: Collection[Var] = (),
) -> list[Array]:
    """What one slice adds to each result in `leaving`: a slice of it, or states to be merged.

    Slices of the inputs in `row_major` have a row-major layout, as arguments do.
    """
    slices = _Slices(graph, region, piece, inputs, row_major)
    results_of = dict(leaving)
    parts: list[Array] = []
    for index in sorted(region.factors):
        equation = graph.equations[index]
        for factor in region.versions(index):
            operands = [
                slices.read(atom, axis)
                for atom, axis in zip(equation.invars, factor.operands, strict=True)
            ]
            operands = turns.begun(index, operands)
            if factor.merge is None:
                made = _on_slices(equation, factor, operands, piece)
                slices.take(equation, factor, made)
                turns.ended(index, made)
            elif index in results_of:
                states = factor.merge.part(equation, factor, operands, piece)
                parts += states
                turns.ended(index, states)
        if region.factors[index].merge is None:
            leave = results_of.get(index, ())
            parts += [slices.read(value, region.axes[value].exact) for value in leave]
    return parts


def _on_slices(
    equation: JaxprEqn, factor: Factor, operands: Sequence[Array], piece: Piece
) -> list[Array]:
    rule = rule_of(equation)
    if rule is None or all(axis is None for axis in factor.results):
        return bind(equation, operands)
    if factor.devices > 1:
        return on_each_device(equation, factor, operands, piece)
    return rule.apply(equation, factor, operands, piece)


class _Slices:
    """The values of one step."""

    def __init__(
        self,
        graph: Graph,
        region: Region,
        piece: Piece,
        inputs: Sequence[Array],
        row_major: Collection[Var],
    ) -> None:
        self.piece, self.row_major = piece, row_major
        self.whole = dict(zip(region.inputs(graph), inputs, strict=True))
        self.made: dict[Var, dict[Axis | None, Array]] = {}
        self.windows = _windows(graph, region, self.whole)
        self.shifted, self.stored = _shifted(graph, region), graph.stored

    def take(self, equation: JaxprEqn, factor: Factor, results: Sequence[Array]) -> None:
        """Keeps the results of an equation on the slice."""
        for value, axis, result in zip(equation.outvars, factor.results, results, strict=True):
            kept = self.made.setdefault(value, {})
            if value in self.stored or value in self.shifted:
                kept[axis] = stored(result, everywhere=value in self.stored)
            else:
                kept[axis] = result

    def read(self, atom: Var | Literal, axis: Axis | None) -> Array:
        """The value of an operand, sliced along `axis`; whole if `axis` is None."""
        if isinstance(atom, Literal):
            return cast("Array", atom.val)
        made = self.made.setdefault(atom, {})
        if axis in made:
            return made[axis]
        if axis is None:
            return self.whole[atom]
        wide = next((one for one in made if one is not None and one.covers(axis)), None)
        if wide is None:
            wide = next(one for one in self.windows[atom] if one.covers(axis))
            cut = self.piece.of(self.whole[atom], wide)
            made[wide] = _in_row_major(cut) if atom in self.row_major else cut
        if (wide.before, wide.after) != (axis.before, axis.after):
            start = wide.before - axis.before
            stop = start + axis.width(self.piece.length)
            made[axis] = lax.slice_in_dim(made[wide], start, stop, axis=axis.dim)
            return made[axis]
        return made[wide]


def _in_row_major(value: Array) -> Array:
    laid_out: Array = with_layout_constraint(value, Layout(tuple(range(value.ndim))))
    return laid_out


def _windows(graph: Graph, region: Region, whole: Collection[Var]) -> dict[Var, list[Axis]]:
    """The axes along which slices of each whole input are cut; close windows are joined."""
    found: dict[Var, list[Axis]] = {}
    for index in region.factors:
        operands = graph.equations[index].invars
        for factor in region.versions(index):
            for atom, axis in zip(operands, factor.operands, strict=True):
                if axis is None or isinstance(atom, Literal) or atom not in whole:
                    continue
                cuts = found.setdefault(atom, [])
                for at, one in enumerate(cuts):
                    both = one.joined(axis)
                    if one.steps_with(axis) and both.halo <= region.size // 2:
                        cuts[at] = both
                        break
                else:
                    cuts.append(axis)
    return found


def _shifted(graph: Graph, region: Region) -> set[Var]:
    """The values that are read at several shifts."""
    read: dict[tuple[Var, Axis], set[Axis]] = {}
    for index in region.factors:
        operands = graph.equations[index].invars
        for factor in region.versions(index):
            for atom, axis in zip(operands, factor.operands, strict=True):
                if axis is not None and not isinstance(atom, Literal):
                    read.setdefault((atom, axis.exact), set()).add(axis)
    return {value for (value, _), shifts in read.items() if len(shifts) > 1}
