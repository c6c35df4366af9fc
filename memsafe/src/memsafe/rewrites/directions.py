"""Values whose maximum or minimum is taken along several dimensions, computed once for each.

The derivative of a maximum or minimum asks which elements equal it, and must see the same bits. So
it has to be in the loop that finds the maximum. If distances are reduced in both directions, as in
a Chamfer loss, no loop can do that for both, and the distances stay whole. Here they are computed
twice, and each copy has its own derivative and its own loop. The derivatives are added at the end,
because all equations between are linear in them. This trades work for memory, so it is done only if
nothing else keeps the budget.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal, Var

from memsafe.jax_internals import bind
from memsafe.programs import shape_of
from memsafe.rewrites.definitions import Definitions, size_of, type_of
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted
from memsafe.rules import rule_of
from memsafe.sub_jaxprs import sub_jaxprs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read

    Atom = Var | Literal

__all__ = ["one_direction_each"]

_EXTREMES = ("reduce_max", "reduce_min")

_MOVES = ("broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze")

_SUMS = ("add", "add_any", "sub")

_LINEAR = frozenset((*_MOVES, "cumsum", "neg", "reduce_sum", "rev", "slice", "transpose"))
"""Linear primitives of one operand: the result of a sum is the sum of the results."""

_PRODUCTS = ("mul", "dot_general")

_LITTLE = 4
"""Values at least this many times smaller than the reduced value are computed once and kept."""

_MOST = 8
"""Maximum number of values of one program that are computed once for each direction."""


def one_direction_each(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with values that have extremes in several directions computed once for each."""
    notes: list[str] = []
    for _ in range(_MOST):
        found = next(_directions(closed), None)
        if found is None:
            break
        rewritten = applied(closed, dict(found.changes()))
        closed = rewritten.program
        notes += rewritten.notes
    return Rewritten(program=closed, notes=tuple(notes))


class _Entangled(Exception):
    """The derivatives of two directions are not added, but multiplied or combined otherwise."""


def _directions(closed: ClosedJaxpr) -> Iterator[_Directions]:
    """The values that can be computed once for each direction, the largest first."""
    definitions = Definitions.of(closed.jaxpr)
    reductions: dict[Var, dict[tuple[int, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, equation in enumerate(closed.jaxpr.eqns):
        operand = equation.invars[0] if equation.primitive.name in _EXTREMES else None
        if isinstance(operand, Var):
            reductions[operand][tuple(equation.params["axes"])].append(index)
    places = {out: index for index, each in enumerate(closed.jaxpr.eqns) for out in each.outvars}
    for value in sorted(reductions, key=size_of, reverse=True):
        if len(reductions[value]) > 1 and _is_made(value, definitions):
            found = _Directions(
                closed=closed,
                definitions=definitions,
                places=places,
                value=value,
                reductions=list(reductions[value].values()),
            )
            with contextlib.suppress(_Entangled):
                found.follow()
                if len(found.directions) > 1:
                    yield found


def _is_made(atom: Atom, definitions: Definitions) -> bool:
    """Whether the equation that makes `atom` can be computed in slices, and so again."""
    equation = definitions.equation(atom)
    if equation is None or equation.effects or sub_jaxprs_of(equation):
        return False
    return rule_of(equation) is not None


@dataclass(slots=True, kw_only=True)
class _Directions:
    """A value, and the equations that depend on which of its elements are extremes.

    A direction has a number. For the first one that is compared, the program's values are used.

    Attributes:
        closed: The program.
        definitions: The definitions of the program.
        places: The index of the equation that makes each of the program's values.
        value: The value.
        reductions: The indices of the equations that reduce the value, for each direction.
        compared: The direction of each equation that compares the value with its extremes.
        behind: The directions whose comparisons a large value depends on.
        sinks: The equations that compute small results from such values.
        made: The results of an equation for one direction, by index and direction.
    """

    closed: ClosedJaxpr
    definitions: Definitions
    places: dict[Var, int]
    value: Var
    reductions: list[list[int]]
    compared: dict[int, int] = field(default_factory=dict)
    behind: dict[Var, frozenset[int]] = field(default_factory=dict)
    sinks: list[int] = field(default_factory=list)
    made: dict[tuple[int, int], list[Array]] = field(default_factory=dict)

    def follow(self) -> None:
        """Finds what depends on comparisons; raises _Entangled if it is no sum over directions."""
        for index, equation in enumerate(self.closed.jaxpr.eqns):
            direction = self._compared(equation)
            if direction is not None:
                self.compared[index] = direction
                self.behind[equation.outvars[0]] = frozenset((direction,))
                continue
            behind = self._behind(equation)
            if not behind:
                continue
            if equation.effects or sub_jaxprs_of(equation) or not self._is_sum(equation, behind):
                raise _Entangled
            if any(map(self._is_large, equation.outvars)):
                self.behind.update(dict.fromkeys(equation.outvars, behind))
            else:
                self.sinks.append(index)
        if any(isinstance(out, Var) and out in self.behind for out in self.closed.jaxpr.outvars):
            raise _Entangled

    def _compared(self, equation: JaxprEqn) -> int | None:
        """The direction whose extremes an equation compares the value with, or None.

        Raises _Entangled if it does something else with both, which may depend on a bit as well.
        """
        if self.value not in equation.invars:
            return None
        found = {self._extremes(atom) for atom in equation.invars} - {None}
        if found and equation.primitive.name != "eq":
            raise _Entangled
        return next(iter(found), None)

    def _extremes(self, atom: Atom) -> int | None:
        """The direction whose extremes `atom` holds, or None."""
        source = self.definitions.equation(atom)
        while source is not None and source.primitive.name in _MOVES:
            source = self.definitions.equation(source.invars[0])
        for direction, indices in enumerate(self.reductions):
            if any(self.closed.jaxpr.eqns[index] is source for index in indices):
                return direction
        return None

    def _is_large(self, atom: Atom) -> bool:
        return _LITTLE * size_of(atom) > size_of(self.value)

    def _behind(self, equation: JaxprEqn) -> frozenset[int]:
        return frozenset[int]().union(*(self._of(atom) for atom in equation.invars))

    def _of(self, atom: Atom) -> frozenset[int]:
        """The directions that a value is a sum over; empty if the value is the same for all."""
        return frozenset() if isinstance(atom, Literal) else self.behind.get(atom, frozenset())

    def _is_sum(self, equation: JaxprEqn, behind: frozenset[int]) -> bool:
        """Whether the result of an equation is the sum of its results for each direction."""
        name, operands = equation.primitive.name, equation.invars
        parts = [bool(self._of(atom)) for atom in operands]
        if len(behind) == 1:
            return True
        if not jnp.issubdtype(type_of(equation.outvars[0]), jnp.inexact):
            return False
        if name == "select_n":
            cases = zip(operands[1:], parts[1:], strict=True)
            return not parts[0] and all(part or self._is_zero(case) for case, part in cases)
        if name == "pad":
            return self._is_zero(operands[1])
        return (
            name in _SUMS
            or (name in _LINEAR and len(operands) == 1)
            or (name in _PRODUCTS and sum(parts) == 1)
            or (name == "div" and not parts[1])
        )

    def _is_zero(self, atom: Atom) -> bool:
        number = self.definitions.uniform(atom)
        return number is not None and not np.any(np.asarray(number.val))

    @property
    def directions(self) -> list[int]:
        """The directions in which the value is compared with its extremes."""
        return sorted(set(self.compared.values()))

    def changes(self) -> Iterator[tuple[int, Change]]:
        """Changes to the sinks, and to the reductions of all directions but the first, by index."""
        _, *others = self.directions
        apart = {index: [each] for each in others for index in self.reductions[each]}
        for index in self.sinks:
            apart[index] = sorted(self._behind(self.closed.jaxpr.eqns[index]))
        for index, directions in apart.items():
            note = self._note() if index == min(apart) else ""
            computed = partial(self._added_up, index, directions)
            yield index, Change(replacement=computed, note=note)

    def _note(self) -> str:
        count = len(self.directions)
        text = f"{list(shape_of(self.value))} made {count} times, for its extremes {count} ways"
        return noted(self.closed.jaxpr.eqns[self.reductions[0][0]], text)

    def _added_up(self, index: int, directions: list[int], read: Read) -> list[Array]:
        each = [self._made(index, direction, read) for direction in directions]
        return [reduce(lax.add, results) for results in zip(*each, strict=True)]

    def _made(self, index: int, direction: int, read: Read) -> list[Array]:
        """The results of an equation for one direction."""
        if (index, direction) not in self.made:
            equation = self.closed.jaxpr.eqns[index]
            operands = [self._read(atom, direction, read) for atom in equation.invars]
            behind = self._behind(equation)
            if equation.primitive.name in _SUMS and len(behind) > 1 and direction != min(behind):
                for at, atom in enumerate(equation.invars):  # Shared operands count once.
                    operands[at] = operands[at] if self._of(atom) else _zeros(atom)
            self.made[index, direction] = bind(equation, operands)
        return self.made[index, direction]

    def _read(self, atom: Atom, direction: int, read: Read) -> Array:
        """The array that `atom` is for one direction."""
        of = self._of(atom)
        if of and direction not in of:
            return _zeros(atom)
        as_it_is = direction == self.directions[0] and of <= {direction}
        if as_it_is or not self._is_large(atom) or not _is_made(atom, self.definitions):
            return read(atom)
        assert isinstance(atom, Var)
        index = self.places[atom]
        at = self.closed.jaxpr.eqns[index].outvars.index(atom)
        made: Array = self._made(index, direction, read)[at]
        return made


def _zeros(atom: Atom) -> Array:
    zeros: Array = jnp.zeros(shape_of(atom), type_of(atom))
    return zeros
