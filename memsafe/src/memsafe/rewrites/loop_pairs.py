"""Pairs of loops in opposite directions: only the second one reads what the first one keeps.

The gradient of a `scan` is such a second scan. It reads what the first scan keeps of every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jax.extend.core import Var

from memsafe.jax_internals import has_effects, scan_operands
from memsafe.programs import nbytes
from memsafe.rewrites.definitions import type_of
from memsafe.sub_jaxprs import as_closed, draws_anew

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jax.extend.core import ClosedJaxpr, JaxprEqn

__all__ = ["Pair", "Scan", "loop_pairs"]


class Scan:
    """The parts of a scan."""

    def __init__(self, equation: JaxprEqn) -> None:
        self.equation = equation
        self.operands = list(equation.invars)
        self.constants, self.carries = scan_operands(equation)
        self.body = as_closed(equation.params["jaxpr"])
        self.unroll = equation.params["unroll"]

    @property
    def before(self) -> int:
        """How many operands come before the rows."""
        return self.constants + self.carries

    @property
    def rows(self) -> Sequence[object]:
        """The operands of which each step reads one row."""
        return self.operands[self.before :]

    @property
    def carried(self) -> Sequence[Var]:
        """The results that are carried."""
        return self.equation.outvars[: self.carries]

    @property
    def stacked(self) -> Sequence[Var]:
        """The results of which each step makes one row."""
        return self.equation.outvars[self.carries :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A loop, and the loop in the other direction that reads what the first one keeps.

    Attributes:
        equations: Both loops.
        forward: The index of the first.
        backward: The index of the second.
        kept: The stacked results of the first loop that only the second loop reads, by position,
            with their positions among the rows of the second loop.
    """

    equations: tuple[JaxprEqn, JaxprEqn]
    forward: int
    backward: int
    kept: dict[int, tuple[int, ...]]

    @property
    def steps(self) -> int:
        """Number of steps of each loop."""
        count: int = self.equations[0].params["length"]
        return count

    @property
    def nbytes(self) -> int:
        """Bytes that the first loop keeps of all its steps for the second loop."""
        stacked = Scan(self.equations[0]).stacked
        return sum(nbytes(stacked[at]) for at in self.kept)


def loop_pairs(closed: ClosedJaxpr) -> Iterator[Pair]:
    """The pairs of loops among the equations of `closed`, in the order of the first loops."""
    equations = closed.jaxpr.eqns
    readers: dict[Var, set[int]] = {}
    for index, equation in enumerate(equations):
        for atom in equation.invars:
            if isinstance(atom, Var):
                readers.setdefault(atom, set()).add(index)
    results = {atom for atom in closed.jaxpr.outvars if isinstance(atom, Var)}
    for index, equation in enumerate(equations):
        if not _is_plain_scan(equation):
            continue
        only: dict[int, set[int]] = {}
        for at, value in enumerate(Scan(equation).stacked):
            if value not in results and len(readers.get(value, ())) == 1:
                (reader,) = readers[value]
                only.setdefault(reader, set()).add(at)
        for backward, positions in only.items():
            if _are_opposite(equation, equations[backward]):
                both = equation, equations[backward]
                kept = dict(_kept(*both, positions))
                yield Pair(equations=both, forward=index, backward=backward, kept=kept)


def _is_plain_scan(equation: JaxprEqn) -> bool:
    """Whether it is a scan that can run again, and makes no keys, whose form only jax knows."""
    return (
        equation.primitive.name == "scan"
        and not has_effects(equation)
        and not draws_anew(equation)
        and all(isinstance(type_of(value), np.dtype) for value in equation.outvars)
    )


def _are_opposite(first: JaxprEqn, second: JaxprEqn) -> bool:
    """Whether the second loop takes as many steps as the first, in the other direction."""
    return (
        _is_plain_scan(second)
        and first.params["reverse"] != second.params["reverse"]
        and first.params["length"] == second.params["length"]
    )


def _kept(
    first: JaxprEqn, second: JaxprEqn, positions: set[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The items of `Pair.kept`, without stacked results that the second loop reads whole."""
    stacked, other = Scan(first).stacked, Scan(second)
    for at in sorted(positions):
        if stacked[at] not in other.operands[: other.before]:
            yield at, tuple(to for to, row in enumerate(other.rows) if row is stacked[at])
