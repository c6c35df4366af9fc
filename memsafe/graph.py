"""A program as a graph: who defines, what depends on what, and each equation's factors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.extend.core import Literal, Var

from memsafe.costs import work
from memsafe.memory import Unit, equation_unit
from memsafe.programs import nbytes
from memsafe.rules import factors_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.factors import Factor

__all__ = ["Graph", "variables"]


def variables(equation: JaxprEqn) -> Iterator[Var]:
    """The operands of `equation` that are not written into it, each as often as it is used."""
    return (atom for atom in equation.invars if not isinstance(atom, Literal))


@dataclass(frozen=True)
class Graph:
    """The equations of one program, in its order.

    Sets of equations are bit masks: bit i stands for equation i.
    """

    closed: ClosedJaxpr

    @cached_property
    def equations(self) -> list[JaxprEqn]:
        """All equations."""
        return list(self.closed.jaxpr.eqns)

    @cached_property
    def definition(self) -> dict[Var, int]:
        """The equation that defines each value that is no input."""
        return {value: index for index, each in enumerate(self.equations) for value in each.outvars}

    @cached_property
    def uses(self) -> dict[Var, list[int]]:
        """The equations that use each value."""
        found: dict[Var, list[int]] = {}
        for index, equation in enumerate(self.equations):
            for value in set(variables(equation)):
                found.setdefault(value, []).append(index)
        return found

    @cached_property
    def factors(self) -> list[tuple[Factor, ...]]:
        """What each equation can be split along."""
        return [
            tuple(factor for factor in factors_of(equation) if factor.size > 1)
            if all(_is_of_numbers(atom) for atom in (*equation.invars, *equation.outvars))
            else ()
            for equation in self.equations
        ]

    @cached_property
    def units(self) -> list[Unit]:
        """Each equation computed by itself, for the memory model."""
        return [equation_unit(equation) for equation in self.equations]

    @cached_property
    def works(self) -> list[float]:
        """The operations of each equation."""
        return [work(equation) for equation in self.equations]

    @cached_property
    def work(self) -> float:
        """The operations of the program, each equation computed once."""
        return sum(self.works)

    @cached_property
    def inputs(self) -> frozenset[Var]:
        """The program's arguments and constants."""
        return frozenset((*self.closed.jaxpr.invars, *self.closed.jaxpr.constvars))

    @cached_property
    def outputs(self) -> frozenset[Var]:
        """The program's results."""
        return frozenset(a for a in self.closed.jaxpr.outvars if not isinstance(a, Literal))

    @cached_property
    def size(self) -> dict[Var, int]:
        """Bytes of every value."""
        return {value: nbytes(value) for value in (*self.inputs, *self.definition)}

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """For each equation, the equations that it depends on, itself among them."""
        found: list[int] = []
        for index, equation in enumerate(self.equations):
            mask = 1 << index
            for value in variables(equation):
                if value in self.definition:
                    mask |= found[self.definition[value]]
            found.append(mask)
        return tuple(found)


def _is_of_numbers(atom: Any) -> bool:
    """Whether an array can be cut and filled with zeros: random keys cannot."""
    return isinstance(getattr(atom.aval, "dtype", None), np.dtype)
