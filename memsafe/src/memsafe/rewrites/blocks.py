"""Values that are cut along all their dimensions, computed in blocks.

Cuts are, for example, the slices `k[:n, :n]`, `k[n:, n:]` and `k[:n, n:]`, the pads and sums of
their backward pass, and a matrix put together from four. No loop over slices can run along a
dimension past such a cut. If a value has no dimension left for a loop, one dimension is given up:
all values that carry it are computed block by block, between its cuts. The equations that take the
value apart then take blocks, and each block can be sliced along that dimension by itself. Values
stay the same up to the order of additions, and no value is computed twice.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import lax
from jax.extend.core import Literal, Var

from memsafe.factors import Axis, Piece
from memsafe.programs import shape_of
from memsafe.rewrites.cuts import cuts_of
from memsafe.rewrites.definitions import size_of
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted
from memsafe.rules import rule_of, unshifted_factors_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.factors import Factor
    from memsafe.programs import Read
    from memsafe.rewrites.cuts import Cut

    Atom = Var | Literal

__all__ = ["computed_in_blocks"]

_FEW = 16
"""Maximum number of slices along dimensions without a cut, for a value to be put in blocks."""

_LITTLE = 4
"""A value over this many times smaller than the cut value is kept whole, and read in blocks."""

_MOST = 8
"""Maximum number of blocks of one value, because each block is an equation of its own."""

_COPIED = 0.5
"""Maximum share of the cut value's elements that blocks keep whole, copy or add up again."""

_ROUNDS = 4
"""Maximum number of dimensions of a value that are given up, one after the other."""


def computed_in_blocks(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with values that are cut along all their dimensions computed block by block."""
    notes: list[str] = []
    for _ in range(_ROUNDS):
        found = _Program(closed).blocks()
        if not found:
            break
        rewritten = applied(closed, {at: one for each in found for at, one in each.changes()})
        closed = rewritten.program
        notes += rewritten.notes
    return Rewritten(program=closed, notes=tuple(notes))


class _Program:
    """A program, and where values are cut."""

    def __init__(self, closed: ClosedJaxpr) -> None:
        self.equations = closed.jaxpr.eqns
        self.outputs = {atom for atom in closed.jaxpr.outvars if isinstance(atom, Var)}
        self.given = sum(map(size_of, (*closed.jaxpr.invars, *closed.jaxpr.outvars)))
        self.definition: dict[Var, int] = {}
        self.readers: dict[Var, list[int]] = defaultdict(list)
        self.cuts: dict[tuple[Var, int], dict[int, Cut]] = defaultdict(dict)
        self.ends: set[tuple[Var, int, int]] = set()  # A part, its dimension, index of its cut.
        self._cut: dict[tuple[Var, int], bool] = {}
        self._factors: dict[int, tuple[Factor, ...]] = {}
        for index, equation in enumerate(self.equations):
            self.definition.update(dict.fromkeys(equation.outvars, index))
            for atom in {atom for atom in equation.invars if isinstance(atom, Var)}:
                self.readers[atom].append(index)
            for cut in cuts_of(equation):
                self.cuts[cut.whole, cut.dim][index] = cut
                self.ends |= {
                    (window.part, cut.dim, index)
                    for window in cut.windows
                    if isinstance(window.part, Var) and not cut.is_at_an_end
                }

    def blocks(self) -> list[_Blocks]:
        """The blocks of large values that are cut along all their dimensions; no two overlap."""
        chosen: list[_Blocks] = []
        taken: set[int] = set()
        for whole in self._stuck():
            tried = [_Blocks.grown(self, whole, dim) for dim in range(len(shape_of(whole)))]
            found = [blocks for blocks in tried if blocks.worthwhile()]
            best = min(found, key=lambda blocks: len(blocks.bounds), default=None)
            if best is not None and taken.isdisjoint(best.equations):
                chosen.append(best)
                taken |= best.equations
        return chosen

    def _stuck(self) -> list[Var]:
        """Large values without a dimension for a loop, largest first, without much smaller ones."""
        dims = defaultdict(set)
        for (whole, dim), cuts in self.cuts.items():
            if not all(cut.is_at_an_end for cut in cuts.values()):
                dims[whole].add(dim)
        large = sorted((v for v in dims if size_of(v) >= self.given), key=size_of, reverse=True)
        found = [whole for whole in large if self._uncut(whole, dims[whole]) <= _FEW]
        return [whole for whole in found if _LITTLE * size_of(whole) >= size_of(found[0])]

    def _uncut(self, whole: Var, cut: set[int]) -> int:
        """Maximum number of slices of `whole` along dimensions where a loop meets no cut."""
        sizes = shape_of(whole)
        others = [dim for dim in range(len(sizes)) if dim not in cut]
        most = math.prod(sizes[dim] for dim in others)
        if most <= _FEW:
            return most
        return math.prod(sizes[dim] for dim in others if not self._is_cut(whole, dim))

    def _is_cut(self, value: Var, dim: int) -> bool:
        """Whether a loop along the dimension meets a cut."""
        if (value, dim) not in self._cut:
            blocks = _Blocks.grown(self, value, dim)
            cut = blocks.ended or not all(cut.is_at_an_end for cut in blocks.cuts.values())
            self._cut.update(dict.fromkeys(blocks.axes.items(), cut))
        return self._cut[value, dim]

    def around(self, value: Var) -> Iterator[int]:
        """The equations that make or read a value."""
        if value in self.definition:
            yield self.definition[value]
        yield from self.readers[value]

    def factor(self, index: int, value: Var, dim: int) -> Factor | None:
        """The factor that an equation's operand or result `value` carries along `dim`, or None."""
        if index not in self._factors:
            self._factors[index] = unshifted_factors_of(self.equations[index])
        equation = self.equations[index]
        for factor in self._factors[index]:
            carried = [*zip(equation.invars, factor.operands, strict=True)]
            carried += zip(equation.outvars, factor.results, strict=True)
            if factor.finest_block() == 1 and (value, Axis(dim)) in carried:
                return factor
        return None


@dataclass(slots=True, kw_only=True)
class _Blocks:
    """The values and equations that carry one dimension of a value, up to much smaller values.

    Attributes:
        program: The program that computes the value.
        whole: The value.
        dim: Its dimension.
        axes: The dimension of each value that is read or made in blocks.
        factors: The factor of each equation that is computed in blocks.
        cuts: The equations that take such a value apart or put it together, by index.
        ended: Whether such a value is itself a part of another value along the dimension.
    """

    program: _Program
    whole: Var
    dim: int
    axes: dict[Var, int] = field(default_factory=dict)
    factors: dict[int, Factor] = field(default_factory=dict)
    cuts: dict[int, Cut] = field(default_factory=dict)
    ended: bool = False

    @classmethod
    def grown(cls, program: _Program, whole: Var, dim: int) -> _Blocks:
        """The blocks of `whole` along `dim`."""
        found = cls(program=program, whole=whole, dim=dim, axes={whole: dim})
        waiting = [whole]
        while waiting:
            value = waiting.pop()
            for index in program.around(value):
                reached = found._take(index, value)
                waiting += [each for each in reached if _LITTLE * size_of(each) >= size_of(whole)]
        return found

    def _take(self, index: int, value: Var) -> list[Var]:
        """Adds an equation that makes or reads `value`; returns other values with the dimension."""
        dim, program = self.axes[value], self.program
        if index in self.factors or index in self.cuts:
            return []
        if cut := program.cuts.get((value, dim), {}).get(index):
            self.cuts[index] = cut
            return []
        if (value, dim, index) in program.ends:
            self.ended = True
            return []
        factor = program.factor(index, value, dim)
        if factor is None:
            return []
        self.factors[index] = factor
        reached = {
            atom: axis.dim
            for atom, axis in self._carried(index)
            if axis is not None and isinstance(atom, Var) and atom not in self.axes
        }
        self.axes.update(reached)
        return list(reached)

    def _carried(self, index: int) -> list[tuple[Atom, Axis | None]]:
        equation, factor = self.program.equations[index], self.factors[index]
        operands = zip(equation.invars, factor.operands, strict=True)
        return [*operands, *zip(equation.outvars, factor.results, strict=True)]

    @property
    def bounds(self) -> tuple[int, ...]:
        """The indices where blocks begin, and the end of the last block."""
        edges = {0, shape_of(self.whole)[self.dim]}
        for cut in self.cuts.values():
            edges.update(edge for window in cut.windows for edge in (window.start, window.stop))
        return tuple(sorted(edges))

    def worthwhile(self) -> bool:
        """Whether blocks are few, long enough for their factors, and need few elements copied."""
        bounds = self.bounds
        if not 2 < len(bounds) <= _MOST + 1:  # noqa: PLR2004 — two bounds are one block.
            return False
        shortest = min(stop - start for start, stop in pairwise(bounds))
        if any(factor.least > shortest for factor in self.factors.values()):
            return False
        return sum(self._copied(bounds)) <= _COPIED * size_of(self.whole)

    def _copied(self, bounds: Sequence[int]) -> Iterator[int]:
        """Number of elements of each array that is kept whole, copied, or added up once more."""
        program = self.program
        made = {out for index in self._making() for out in program.equations[index].outvars}
        for value in self.axes:
            if value not in made or value in program.outputs or self._is_read_whole(value):
                yield size_of(value)
        for index, factor in self.factors.items():
            if factor.merge is not None:
                results = program.equations[index].outvars
                yield (len(bounds) - 2) * sum(map(size_of, results))
        for cut in self.cuts.values():
            for part, start, stop in cut.windows:
                if any(start < bound < stop for bound in bounds):
                    yield size_of(part)

    def _making(self) -> list[int]:
        """The equations whose results are made in blocks."""
        computed = [index for index, factor in self.factors.items() if factor.merge is None]
        return computed + [index for index, cut in self.cuts.items() if cut.makes]

    def _is_read_whole(self, value: Var) -> bool:
        return any(self._reads_whole(index, value) for index in self.program.readers[value])

    def _reads_whole(self, index: int, value: Var) -> bool:
        if index in self.cuts:
            return self.cuts[index].whole is not value
        if index not in self.factors:
            return True
        axis = Axis(self.axes[value])
        return any(atom is value and own != axis for atom, own in self._carried(index))

    @property
    def equations(self) -> set[int]:
        """The equations that make or read blocks."""
        return {*self.factors, *self.cuts}

    def changes(self) -> Iterator[tuple[int, Change]]:
        """A change for each equation that makes or reads blocks, by index."""
        making = _Making(blocks=self, bounds=self.bounds)
        for index in self.equations:
            note = self._note() if index == min(self.cuts) else ""
            yield index, Change(replacement=partial(making.computed, index), note=note)

    def _note(self) -> str:
        count = len(self.bounds) - 1
        text = f"{list(shape_of(self.whole))} in {count} blocks along dimension {self.dim}"
        return noted(self.cuts[min(self.cuts)].equation, f"{text}, where it is cut")


@dataclass(slots=True, kw_only=True)
class _Making:
    """The blocks that are made while the changed program is traced.

    Attributes:
        blocks: The values and equations that are computed in blocks.
        bounds: The indices where blocks begin, and the end of the last block.
        made: The blocks made so far, by value and dimension.
    """

    blocks: _Blocks
    bounds: tuple[int, ...]
    made: dict[tuple[Var, int], list[Array]] = field(default_factory=dict)

    @property
    def pieces(self) -> list[Piece]:
        starts: Any = np.asarray(self.bounds, np.int32)  # No traced numbers: they stay literals.
        lengths = (stop - start for start, stop in pairwise(self.bounds))
        return [Piece(start=at, length=n) for at, n in zip(starts, lengths, strict=False)]

    def computed(self, index: int, read: Read) -> Sequence[Array]:
        """The results of an equation; blocks are also put together, for readers of whole values."""
        equation = self.blocks.program.equations[index]
        if index in self.blocks.factors:
            return self._by_factor(equation, self.blocks.factors[index], read)
        cut = self.blocks.cuts[index]
        if not cut.makes:
            whole = self._blocks_of(cut.whole, Axis(cut.dim), read)
            return cut.parts(read, whole, self.bounds)
        blocks = [cut.block(read, *span) for span in pairwise(self.bounds)]
        return [self._kept(cut.whole, cut.dim, blocks)]

    def _by_factor(self, equation: JaxprEqn, factor: Factor, read: Read) -> Sequence[Array]:
        operands = [
            self._blocks_of(atom, axis, read)
            for atom, axis in zip(equation.invars, factor.operands, strict=True)
        ]
        turns = [*zip(self.pieces, *operands, strict=True)]
        if factor.merge is None:
            rule = rule_of(equation)
            assert rule is not None
            results = [rule.apply(equation, factor, given, piece) for piece, *given in turns]
            return [
                self._kept(value, axis.dim, list(blocks))
                for value, axis, blocks in zip(
                    equation.outvars, factor.results, zip(*results, strict=True), strict=True
                )
                if axis is not None
            ]
        state = factor.merge.start(equation)
        for number, (piece, *given) in enumerate(turns):
            part = factor.merge.part(equation, factor, given, piece)
            first: Any = np.asarray(number == 0)
            state = factor.merge.combine(state, part, first=first)
        whole = [
            read(atom) if axis is None else None
            for atom, axis in zip(equation.invars, factor.operands, strict=True)
        ]
        return factor.merge.finish(equation, state, whole)

    def _kept(self, value: Var, dim: int, blocks: list[Array]) -> Array:
        self.made[value, dim] = blocks
        return lax.concatenate(blocks, dim)

    def _blocks_of(self, atom: Atom, axis: Axis | None, read: Read) -> Sequence[Array]:
        """For each block, its part of a value, or the whole value if `axis` is None."""
        if axis is None:
            return [read(atom)] * len(self.pieces)
        if isinstance(atom, Literal):
            return self._sliced(read(atom), axis)
        if (atom, axis.dim) not in self.made:
            self.made[atom, axis.dim] = self._sliced(read(atom), axis)
        return self.made[atom, axis.dim]

    def _sliced(self, whole: Array, axis: Axis) -> list[Array]:
        spans = pairwise(self.bounds)
        return [lax.slice_in_dim(whole, start, stop, axis=axis.dim) for start, stop in spans]
