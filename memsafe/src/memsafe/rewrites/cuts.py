"""Equations that take a dimension of a value apart, or put it together.

A slice, a split, a pad (which may crop) and a concatenation have a *whole* on one side and *parts*
of it on the other, each at a window of indices. A loop over slices of the whole cannot continue
across a cut, because the parts have other indices, and fewer.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from jax import lax
from jax.extend.core import Literal, Var

from memsafe.jax_internals import bind
from memsafe.programs import shape_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    from memsafe.programs import Read

__all__ = ["Cut", "Window", "cuts_of"]

_LITTLE = 20
"""A border is small if it is at least this many times shorter than its dimension.

A halo is as long as the border, and is computed twice. The gradient of three convolutions, each
after a pad, at an eighth of its memory takes 1.21 times its operations with halos and 4.13 times in
blocks where the border is 1/98 of the dimension. Where the border is 1/26, it takes 1.31 and 1.41
times, where it is 1/18, 1.34 and 1.04 times (96 × 90, jax 0.10.2, 2026-11-29).
"""


class Window(NamedTuple):
    """Where a part lies: the whole's indices from `start` up to `stop`."""

    part: Var | Literal
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One dimension of a value that an equation takes apart or puts together.

    Attributes:
        equation: The equation.
        whole: The value.
        dim: Its dimension.
        windows: The parts that are not empty, in the order of the equation's operands or results.
            A pad has one part, with the padding around it.
    """

    equation: JaxprEqn
    whole: Var
    dim: int
    windows: tuple[Window, ...]

    @property
    def makes(self) -> bool:
        """Whether the equation puts the whole together; else it takes it apart."""
        return self.whole in self.equation.outvars

    @property
    def is_at_an_end(self) -> bool:
        """Whether it cuts off, or adds, so little at the ends that a loop continues with a halo.

        No loop continues across a split, because its parts are results of one equation.
        """
        if self.equation.primitive.name == "split":
            return False
        size = shape_of(self.whole)[self.dim]
        edges = {edge for window in self.windows for edge in (window.start, window.stop)}
        return all(_LITTLE * min(edge, size - edge) <= size for edge in edges)

    def block(self, read: Read, start: int, stop: int) -> Array:
        """The block of the whole from `start` up to `stop`; no window begins or ends inside it."""
        for part, first, last in self.windows:
            if first <= start and stop <= last:
                inside = read(part)
                if (first, last) != (start, stop):
                    inside = lax.slice_in_dim(inside, start - first, stop - first, axis=self.dim)
                return self._elsewhere(read, inside)
        shape = list(shape_of(self.whole))
        shape[self.dim] = stop - start
        return lax.broadcast(read(self.equation.invars[1]), shape)

    def parts(self, read: Read, blocks: Sequence[Array], bounds: Sequence[int]) -> list[Array]:
        """The results of an equation that takes the whole apart, made from blocks of the whole.

        `bounds` are the indices where blocks begin, and the end of the last block.
        """
        spans = list(zip(blocks, bounds[:-1], bounds[1:], strict=True))
        found = []
        for _, first, last in self.windows:
            within = [block for block, start, stop in spans if first <= start and stop <= last]
            joined = within[0] if len(within) == 1 else lax.concatenate(within, self.dim)
            found.append(self._elsewhere(read, joined))
        return found

    def _elsewhere(self, read: Read, along: Array) -> Array:
        """A block or a part, with the equation applied along its other dimensions."""
        params = self.equation.params
        match self.equation.primitive.name:
            case "slice":
                starts, limits = list(params["start_indices"]), list(params["limit_indices"])
                starts[self.dim], limits[self.dim] = 0, along.shape[self.dim]
                return lax.slice(along, starts, limits)
            case "pad":
                config = list(params["padding_config"])
                config[self.dim] = (0, 0, 0)
                operands = [along, read(self.equation.invars[1])]
                return bind(self.equation, operands, {"padding_config": tuple(config)})[0]
            case _:
                return along


def cuts_of(equation: JaxprEqn) -> tuple[Cut, ...]:
    """The cuts that an equation makes, one for each dimension; none where it has a stride."""
    found = _FINDERS.get(equation.primitive.name)
    if found is None or any(isinstance(atom, Literal) for atom in equation.invars[:1]):
        return ()
    return tuple(cut for cut in found(equation) if shape_of(cut.whole)[cut.dim] > 1)


def _of_slice(equation: JaxprEqn) -> list[Cut]:
    params, (whole,), (part,) = equation.params, equation.invars, equation.outvars
    assert isinstance(whole, Var)
    if any(stride != 1 for stride in params["strides"] or ()):
        return []
    windows = zip(params["start_indices"], params["limit_indices"], strict=True)
    return [
        Cut(equation=equation, whole=whole, dim=dim, windows=(Window(part, start, stop),))
        for dim, ((start, stop), size) in enumerate(zip(windows, shape_of(whole), strict=True))
        if start < stop and stop - start < size
    ]


def _of_split(equation: JaxprEqn) -> list[Cut]:
    (whole,), dim = equation.invars, equation.params["axis"]
    assert isinstance(whole, Var)
    windows = _side_by_side(equation.outvars, dim)
    all_there = len(windows) == len(equation.outvars)
    return [Cut(equation=equation, whole=whole, dim=dim, windows=windows)] if all_there else []


def _of_concatenation(equation: JaxprEqn) -> list[Cut]:
    (whole,), dim = equation.outvars, equation.params["dimension"]
    windows = _side_by_side(equation.invars, dim)
    return [Cut(equation=equation, whole=whole, dim=dim, windows=windows)]


def _of_pad(equation: JaxprEqn) -> list[Cut]:
    """A cut for each dimension that is padded, or cropped by negative padding."""
    (padded,), (operand, _) = equation.outvars, equation.invars
    assert isinstance(operand, Var)
    found = []
    for dim, (low, high, interior) in enumerate(equation.params["padding_config"]):
        size = shape_of(operand)[dim]
        if interior or low == high == 0 or not size or not shape_of(padded)[dim]:
            continue
        if low >= 0 and high >= 0:
            window = Window(operand, int(low), int(low) + size)
            found.append(Cut(equation=equation, whole=padded, dim=dim, windows=(window,)))
        elif low <= 0 and high <= 0:
            window = Window(padded, -int(low), size + int(high))
            found.append(Cut(equation=equation, whole=operand, dim=dim, windows=(window,)))
    return found


def _side_by_side(parts: Sequence[Var | Literal], dim: int) -> tuple[Window, ...]:
    ends = list(itertools.accumulate((shape_of(part)[dim] for part in parts), initial=0))
    windows = map(Window, parts, ends[:-1], ends[1:])
    return tuple(window for window in windows if window.start < window.stop)


_FINDERS = {
    "concatenate": _of_concatenation,
    "pad": _of_pad,
    "slice": _of_slice,
    "split": _of_split,
}
