"""How the programs that one equation runs are computed on a piece of a factor.

Each value of such a program is *sliced* along an axis, *summed* (pieces make parts that are added
at the end) or *whole* (every piece makes all of it). A whole value can be sliced where that is
needed, and can stand for a part: all of it in the first piece, zeros in the others. GSPMD (Xu et
al. 2021, section 3) and Shardy propagate the same three states over devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import jax.numpy as jnp
from jax.extend.core import Literal, Var

from memsafe import rules
from memsafe.factors import Axis
from memsafe.jax_internals import bind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.factors import Factor, Piece

__all__ = ["ADDED", "SUMMED", "WHOLE", "Body", "Division", "Kind"]

Kind = Axis | bool
"""How a value is computed on a piece: sliced along an axis, `SUMMED` or `WHOLE`."""

WHOLE, SUMMED = False, True

_ALL = slice(None)
ADDED: Mapping[str, slice] = MappingProxyType(
    {
        **dict.fromkeys(("add", "add_any", "concatenate", "sub"), _ALL),
        "dynamic_update_slice": slice(2),
        "select_n": slice(1, None),
    }
)
"""By primitive, the operands that may be parts; the result is then a part. Others are whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """One program, and the slot of each of its inputs and results.

    Values of one slot have the same state: the values that branches share, or the input and the
    result of a value that a loop carries.
    """

    closed: ClosedJaxpr
    inputs: tuple[int, ...]
    results: tuple[int, ...]

    def ends(self) -> Iterator[tuple[int, Var | Literal]]:
        """Pairs of a slot and an input or result in it."""
        yield from zip(self.inputs, self.closed.jaxpr.invars, strict=True)
        yield from zip(self.results, self.closed.jaxpr.outvars, strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How bodies run on a piece of a factor.

    Attributes:
        bodies: The programs.
        slots: The state of each slot.
        factors: For each body the factor of each equation that is split, by its index.
        kinds: For each body the state of each value.
    """

    bodies: Sequence[Body]
    slots: Mapping[int, Kind]
    factors: Sequence[Mapping[int, Factor]]
    kinds: Sequence[Mapping[Var, Kind]]

    @property
    def least(self) -> int:
        """The fewest indices of a piece."""
        found = (factor.least for factors in self.factors for factor in factors.values())
        return max(found, default=1)

    def run(self, number: int, inputs: Sequence[Array], piece: Piece) -> list[Array]:
        """The results of a body on a piece, each in the state of its slot."""
        return _Run(division=self, number=number, piece=piece).results(inputs)

    def begun(self, slot: int, value: Array, piece: Piece) -> Array:
        """The initial value of a loop's carry; of a summed value, the first piece has all."""
        return _first_alone(value, piece) if self.slots[slot] is SUMMED else value


@dataclass(slots=True, kw_only=True)
class _Run:
    """A body on one piece."""

    division: Division
    number: int
    piece: Piece
    values: dict[Var, Array] = field(default_factory=dict)

    def results(self, inputs: Sequence[Array]) -> list[Array]:
        body, slots = self.division.bodies[self.number], self.division.slots
        jaxpr = body.closed.jaxpr
        self.values.update(zip(jaxpr.constvars, body.closed.consts, strict=True))
        self.values.update(zip(jaxpr.invars, inputs, strict=True))
        for index, equation in enumerate(jaxpr.eqns):
            self._compute(equation, self.division.factors[self.number].get(index))
        leaving = zip(body.results, jaxpr.outvars, strict=True)
        return [self._leaving(value, slots[slot]) for slot, value in leaving]

    def _compute(self, equation: JaxprEqn, factor: Factor | None) -> None:
        if factor is None:
            made = bind(equation, self._operands(equation))
        else:
            pairs = zip(equation.invars, factor.operands, strict=True)
            made = self._on_piece(equation, factor, [self._sliced(*pair) for pair in pairs])
        self.values.update(zip(equation.outvars, made, strict=True))

    def _operands(self, equation: JaxprEqn) -> list[Array]:
        """The operands of an equation; a whole one that is added to parts becomes a part."""
        operands = [self._value(operand) for operand in equation.invars]
        kinds = [self._kind(operand) for operand in equation.invars]
        if equation.primitive.name not in ADDED or SUMMED not in kinds:
            return operands
        added = range(len(operands))[ADDED[equation.primitive.name]]
        return [
            _first_alone(value, self.piece) if at in added and kind is WHOLE else value
            for at, (value, kind) in enumerate(zip(operands, kinds, strict=True))
        ]

    def _on_piece(
        self, equation: JaxprEqn, factor: Factor, operands: Sequence[Array]
    ) -> list[Array]:
        if factor.merge is not None:
            part = factor.merge.part(equation, factor, operands, self.piece)
            return factor.merge.finish(equation, part, operands)
        rule = rules.rule_of(equation)
        assert rule is not None
        return rule.apply(equation, factor, operands, self.piece)

    def _kind(self, atom: Var | Literal) -> Kind:
        return WHOLE if isinstance(atom, Literal) else self.division.kinds[self.number][atom]

    def _value(self, atom: Var | Literal) -> Array:
        return cast("Array", atom.val) if isinstance(atom, Literal) else self.values[atom]

    def _sliced(self, atom: Var | Literal, axis: Axis | None) -> Array:
        value = self._value(atom)
        if axis is None or isinstance(self._kind(atom), Axis):
            return value
        return self.piece.of(value, axis)

    def _leaving(self, atom: Var | Literal, kind: Kind) -> Array:
        if isinstance(kind, Axis):
            return self._sliced(atom, kind)
        if kind is SUMMED and self._kind(atom) is WHOLE:
            return _first_alone(self._value(atom), self.piece)
        return self._value(atom)


def _first_alone(value: Array, piece: Piece) -> Array:
    """A whole value as a part: all of it in the first piece, zeros in the others."""
    return jnp.where(piece.start == 0, value, jnp.zeros((), jnp.result_type(value)))
