"""Finds which values of an equation's programs are sliced, summed or whole, if some are sliced."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax.extend.core import Literal, Var

from memsafe import rules
from memsafe.factors import Axis
from memsafe.jax_internals import aval_of
from memsafe.merges import SUM
from memsafe.programs import is_inexact
from memsafe.rules.bodies import ADDED, SUMMED, WHOLE, Division

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jax.extend.core import JaxprEqn

    from memsafe.factors import Factor
    from memsafe.rules.bodies import Body, Kind

__all__ = ["Bodies", "Indivisible"]

_NAMES = """
    broadcast_in_dim copy imag neg real reduce_sum reshape rev slice squeeze transpose
"""
_RESHAPED = frozenset(_NAMES.split())
"""Primitives whose results on the parts of a sum add up to the result on the sum."""

_OVER_DEVICES = frozenset(("psum", "psum_invariant"))
"""Sums over devices; the same holds for them if they have one operand."""

_SCALED = {"div": (0,), "dot_general": (0, 1), "dynamic_slice": (0,), "mul": (0, 1)}
"""By primitive, the operands of which one may be a part if all other operands are whole.

A part may be zero, or two parts may have opposite signs. Divided by zero or multiplied by infinity,
such parts add up to NaN, where their sum gives infinity. README.md says so.
"""


class Indivisible(Exception):
    """The programs cannot be computed piece by piece along this axis."""


class Bodies:
    """The programs of one equation; finds how they run on pieces."""

    def __init__(self, bodies: Sequence[Body]) -> None:
        self.bodies = bodies
        self.equations = [body.closed.jaxpr.eqns for body in bodies]
        self.makers: list[dict[Var, tuple[int, int]]] = [
            {
                value: (index, at)
                for index, e in enumerate(own)
                for at, value in enumerate(e.outvars)
            }
            for own in self.equations
        ]
        self.readers: list[dict[Var, list[int]]] = []
        for own in self.equations:
            found: dict[Var, list[int]] = {}
            for index, equation in enumerate(own):
                for value in {v for v in equation.invars if not isinstance(v, Literal)}:
                    found.setdefault(value, []).append(index)
            self.readers.append(found)
        self.known: dict[tuple[int, int], tuple[Factor, ...]] = {}

    def divided(self, slots: Mapping[int, Axis]) -> Division:
        """The division that follows from slicing these slots. Raises Indivisible."""
        return _Search(self).found(slots)

    def factors_of(self, number: int, index: int) -> tuple[Factor, ...]:
        """The factors of an equation of a body."""
        if (number, index) not in self.known:
            equation = self.equations[number][index]
            self.known[number, index] = rules.unshifted_factors_of(equation)
        return self.known[number, index]


class _Search:
    """Follows sliced values to all values that must be sliced with them."""

    def __init__(self, bodies: Bodies) -> None:
        self.of = bodies
        self.slots: dict[int, Kind] = {}
        self.axes: list[dict[Var, Axis]] = [{} for _ in bodies.bodies]
        self.factors: list[dict[int, Factor]] = [{} for _ in bodies.bodies]
        self.waiting: list[tuple[int, Var]] = []
        self.kinds: list[dict[Var, Kind]] = []

    def found(self, slots: Mapping[int, Axis]) -> Division:
        for slot, axis in slots.items():
            self._slice_slot(slot, axis)
        while self.waiting:
            self._follow(*self.waiting.pop())
        while self._summed():
            pass
        return Division(
            bodies=self.of.bodies, slots=self.slots, factors=self.factors, kinds=self.kinds
        )

    def _slice_slot(self, slot: int, axis: Axis) -> None:
        if slot in self.slots:
            if self.slots[slot] != axis:
                raise Indivisible
            return
        self.slots[slot] = axis
        for number, body in enumerate(self.of.bodies):
            for own, value in body.ends():
                if own == slot:
                    self._slice(number, value, axis)

    def _slice(self, number: int, value: Var | Literal, axis: Axis) -> None:
        if isinstance(value, Literal):
            raise Indivisible
        if value not in self.axes[number]:
            self.axes[number][value] = axis
            self.waiting.append((number, value))
        elif self.axes[number][value] != axis:
            raise Indivisible

    def _follow(self, number: int, value: Var) -> None:
        """Slices a value's maker and readers. If the maker cannot, the value is cut when used."""
        axis, body = self.axes[number][value], self.of.bodies[number]
        if value in self.of.makers[number]:
            if not self._made(number, *self.of.makers[number][value], axis):
                return
        elif value in body.closed.jaxpr.constvars:
            return
        for own, end in body.ends():
            if end is value:
                self._slice_slot(own, axis)
        for index in self.of.readers[number].get(value, ()):
            self._read(number, index)

    def _made(self, number: int, index: int, at: int, axis: Axis) -> bool:
        """Whether an equation makes its result in slices along `axis`."""
        if index in self.factors[number]:
            if self.factors[number][index].results[at] != axis:
                raise Indivisible
            return True
        found = (each.carrying(at, axis) for each in self.of.factors_of(number, index))
        known = self._known(number, index)
        fitting = [each for each in found if each is not None and _agrees(each, known)]
        if fitting:
            self._take(number, index, fitting[0])
        elif any(axis is not None for axis in known):
            raise Indivisible
        return bool(fitting)

    def _read(self, number: int, index: int) -> None:
        known = self._known(number, index)
        if index in self.factors[number]:
            if not _agrees(self.factors[number][index], known):
                raise Indivisible
            return
        at, axis = next((at, axis) for at, axis in enumerate(known) if axis is not None)
        for each in self.of.factors_of(number, index):
            factor = each.reading(at, axis)
            if factor is not None and _agrees(factor, known):
                self._take(number, index, factor)
                return
        raise Indivisible

    def _take(self, number: int, index: int, factor: Factor) -> None:
        equation = self.of.equations[number][index]
        if factor.merge is not None and not _is_sum(equation, factor):
            raise Indivisible
        self.factors[number][index] = factor
        pairs = (
            *zip(equation.invars, factor.operands, strict=True),
            *zip(equation.outvars, factor.results, strict=True),
        )
        for value, axis in pairs:
            if axis is not None:
                self._slice(number, value, axis)

    def _known(self, number: int, index: int) -> list[Axis | None]:
        """The axes along which the operands of an equation are made in slices."""
        axes, makers, factors = self.axes[number], self.of.makers[number], self.factors[number]
        fixed = self.of.bodies[number].closed.jaxpr.constvars
        return [
            None
            if isinstance(v, Literal) or v in fixed or (v in makers and makers[v][0] not in factors)
            else axes.get(v)
            for v in self.of.equations[number][index].invars
        ]

    def _summed(self) -> bool:
        """Computes the state of every value; returns whether the state of any slot changed."""
        before = dict(self.slots)
        self.kinds = []
        for number, body in enumerate(self.of.bodies):
            kinds = _Kinds(slots=self.slots, factors=self.factors[number]).found(body)
            self.kinds.append(kinds)
            for slot in body.inputs:
                self.slots.setdefault(slot, WHOLE)
            for slot, value in zip(body.results, body.closed.jaxpr.outvars, strict=True):
                kind = WHOLE if isinstance(value, Literal) else kinds[value]
                if isinstance(self.slots.setdefault(slot, WHOLE), Axis):
                    if kind is SUMMED:
                        raise Indivisible
                elif kind is SUMMED:
                    self.slots[slot] = SUMMED
                elif kind is not WHOLE:
                    raise Indivisible
        return self.slots != before


@dataclass(slots=True, kw_only=True)
class _Kinds:
    """The state of every value of one body."""

    slots: Mapping[int, Kind]
    factors: Mapping[int, Factor]
    kinds: dict[Var, Kind] = field(default_factory=dict)

    def found(self, body: Body) -> dict[Var, Kind]:
        jaxpr = body.closed.jaxpr
        self.kinds = dict.fromkeys(jaxpr.constvars, WHOLE)
        for slot, value in zip(body.inputs, jaxpr.invars, strict=True):
            self.kinds[value] = self.slots.get(slot, WHOLE)
        for index, equation in enumerate(jaxpr.eqns):
            factor = self.factors.get(index)
            if factor is None:
                kind = self._whole_or_summed(equation)
                self.kinds.update(dict.fromkeys(equation.outvars, kind))
                continue
            if any(self.of(operand) is SUMMED for operand in equation.invars):
                raise Indivisible
            for value, axis in zip(equation.outvars, factor.results, strict=True):
                self.kinds[value] = SUMMED if axis is None else axis
        return self.kinds

    def of(self, atom: Var | Literal) -> Kind:
        return WHOLE if isinstance(atom, Literal) else self.kinds[atom]

    def _whole_or_summed(self, equation: JaxprEqn) -> Kind:
        kinds = [self.of(operand) for operand in equation.invars]
        if any(isinstance(kind, Axis) for kind in kinds):
            raise Indivisible
        if not any(kinds):
            return WHOLE
        if not _keeps_sums(equation, kinds):
            raise Indivisible
        return SUMMED


def _keeps_sums(equation: JaxprEqn, kinds: Sequence[Kind]) -> bool:
    """Whether an equation's results on the parts of a sum add up to its result on the sum."""
    name = equation.primitive.name
    made = aval_of(equation.outvars[0]).dtype
    pairs = zip(equation.invars, kinds, strict=True)
    if not all(_holds(made, aval_of(atom).dtype) for atom, kind in pairs if kind is SUMMED):
        return False
    if name in _OVER_DEVICES:
        return len(kinds) == 1
    if name in _RESHAPED or name == "convert_element_type" or _pads_with_zeros(equation):
        return True
    if name in ADDED:
        added = range(len(kinds))[ADDED[name]]
        return all(at in added for at, kind in enumerate(kinds) if kind is SUMMED)
    if name == "div" and not is_inexact(equation.outvars[0]):  # It drops a remainder.
        return False
    places = [at for at, kind in enumerate(kinds) if kind is SUMMED]
    return len(places) == 1 and places[0] in _SCALED.get(name, ())


def _pads_with_zeros(equation: JaxprEqn) -> bool:
    if equation.primitive.name != "pad":
        return False
    filler = equation.invars[1]
    return isinstance(filler, Literal) and not filler.val


def _is_sum(equation: JaxprEqn, factor: Factor) -> bool:
    """Whether parts are added in a type that can hold each of them; half precision may overflow."""
    types = (aval_of(value).dtype for value in equation.outvars)
    return factor.merge is SUM and all(
        not jnp.issubdtype(dtype, jnp.inexact) or _reach(dtype) >= _reach(jnp.float32)
        for dtype in types
    )


def _holds(made: Any, part: Any) -> bool:
    """Whether parts of a sum add up in the type `made` as in their own type.

    Integers of another type wrap at another value. A part may be too large for half precision
    although the sum fits. Parts of over 1e38 are not considered.
    """
    if made == part:
        return True
    if not (jnp.issubdtype(made, jnp.inexact) and jnp.issubdtype(part, jnp.inexact)):
        return False
    return _reach(made) >= min(_reach(part), _reach(jnp.float32))


def _reach(dtype: Any) -> int:
    """The exponent of the smallest power of two that is infinite in this type."""
    limits: Any = jnp.finfo
    return int(limits(dtype).maxexp)


def _agrees(factor: Factor, known: Iterable[Axis | None]) -> bool:
    """Whether a factor slices each operand that is known to be sliced, along the same axis."""
    pairs = zip(factor.operands, known, strict=True)
    return all(axis is None or axis == own for own, axis in pairs)
