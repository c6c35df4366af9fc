"""Reductions over a short last dimension, computed by XLA's own loops on a CPU.

XLA:CPU passes sums, maxima and minima of floats to a library (YNNPACK). The library goes over the
last dimension, a few elements at a time. That is slow if the dimension is short, as in
`sum((x[:, None] - y[None]) ** 2, -1)` with few coordinates. XLA unrolls its own loops over so few
elements, and vectorises them along the points. The library takes only operations that it
recognises. An operation that also rounds an operand to a wider type stays with XLA, and the
rounding changes no bit.

Values that elementwise equations compute from much smaller arrays, such as those coordinates, are
computed with the reduced dimensions first. Neighbours in memory are then points, not the
coordinates of one point.

Times relative to the library's, on two cores of an AMD EPYC with jax 0.10.2 and 0.12.0.1:

- sums of squares or absolute values of 400 × 2000 pairs: 0.1 to 0.3 with 2 or 4 coordinates, 0.2 to
  0.3 with 8, 0.4 to 0.7 with 16 or 24
- sums of their exponentials: 0.2 to 1.0, in double precision 0.4 to 1.4
- over the rows, of up to 16, of an array of 400,000: 0.2 to 1.2
- in a loop, where its operands are laid out once: a product with the kernel of 20,000 and 20,000
  points of 10 coordinates, 0.2

Integers, products and sums of 16 bits take the same time whichever dimension is reduced, and are
not changed.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal, Var

from memsafe.jax_internals import bind
from memsafe.programs import shape_of
from memsafe.rewrites.definitions import Definitions, size_of, type_of
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted
from memsafe.rules.elementwise import NAMES, RULES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read

__all__ = ["short_reductions"]

_MOST_TERMS = 24
"""Maximum number of terms of each result.

With 32, sums of exponentials take longer; with 48, whose loop is not unrolled, all do.
"""

_MOST_AS_THEY_LIE = 16
"""Maximum number without a new layout; with more, squares of a large array take longer."""

_FEWEST_ELEMENTS = 1 << 16
"""Minimum number of elements; reducing fewer takes little time either way."""

_LITTLE = 8
"""Arrays that are laid out again are this many times smaller than the operand, or more."""


def _added(left: Array, right: Array) -> Array:
    return lax.add(left, _unrecognised(right))


def _larger(left: Array, right: Array) -> Array:
    return lax.max(left, _unrecognised(right))


def _smaller(left: Array, right: Array) -> Array:
    return lax.min(left, _unrecognised(right))


def _unrecognised(number: Array) -> Array:
    """`number`, rounded to IEEE 754 binary128: the same, but no compiler looks for this case."""
    return lax.reduce_precision(number, exponent_bits=15, mantissa_bits=112)


_OPERATIONS = {
    "reduce_sum": (_added, 0.0),
    "reduce_max": (_larger, -np.inf),
    "reduce_min": (_smaller, np.inf),
}
"""The operation of each reduction, and the number that it starts with."""


def short_reductions(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with float reductions over a short last dimension kept from the library.

    Sums stay the same up to rounding. Maxima and minima stay the same bit for bit, except for a
    NaN, which the library drops and XLA keeps.
    """
    definitions = Definitions.of(closed.jaxpr)
    changes = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        if _is_slow(equation):
            shape, axes = shape_of(equation.invars[0]), list(equation.params["axes"])
            text = f"{equation.primitive.name} of {list(shape)} over {axes} by XLA's own loops"
            made = _made_from_little(equation, definitions)
            if made is not None or _terms(equation) <= _MOST_AS_THEY_LIE:
                change = made.reduced if made else partial(_reduced, equation)
                changes[index] = Change(replacement=change, note=noted(equation, text))
    return applied(closed, changes)


def _terms(equation: JaxprEqn) -> int:
    shape = shape_of(equation.invars[0])
    return math.prod(shape[axis] for axis in equation.params["axes"])


def _is_slow(equation: JaxprEqn) -> bool:
    """Whether each result of it reduces a few floats that are adjacent in memory."""
    if equation.primitive.name not in _OPERATIONS:
        return False
    if equation.params.get("out_sharding") is not None:
        return False
    operand, axes = equation.invars[0], equation.params["axes"]
    shape, kind = shape_of(operand), type_of(operand)
    if kind not in (jnp.float32, jnp.float64) or size_of(operand) < _FEWEST_ELEMENTS:
        return False
    last = max(dim for dim, size in enumerate(shape) if size != 1)
    return last in axes and 1 < _terms(equation) <= _MOST_TERMS


def _reduced(equation: JaxprEqn, read: Read) -> list[Array]:
    return _over(equation, read(equation.invars[0]), equation.params["axes"])


def _over(equation: JaxprEqn, operand: Array, axes: tuple[int, ...]) -> list[Array]:
    operation, start = _OPERATIONS[equation.primitive.name]
    return [lax.reduce(operand, np.asarray(start, operand.dtype), operation, axes)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A reduction of a value that elementwise equations compute from small arrays.

    Attributes:
        reduction: The equation.
        inner: The elementwise equations, by their results, which no other equation reads.
        leaves: Broadcasts and iotas that they read, by their results.
    """

    reduction: JaxprEqn
    inner: Mapping[Var, JaxprEqn]
    leaves: Mapping[Var, JaxprEqn]

    @property
    def order(self) -> tuple[int, ...]:
        """The dimensions of the reduction's operand, the reduced dimensions first."""
        dims, axes = range(len(shape_of(self.reduction.invars[0]))), self.reduction.params["axes"]
        return (*axes, *(dim for dim in dims if dim not in axes))

    def reduced(self, read: Read) -> list[Array]:
        """The reduction of its operand, which is computed with its dimensions in `order`."""
        values: dict[Var, Array] = {}

        def value(atom: Var | Literal) -> Array:
            if isinstance(atom, Literal) or shape_of(atom) == ():
                return read(atom)
            if atom not in values:
                values[atom] = made(atom)
            return values[atom]

        def made(atom: Var) -> Array:
            if atom in self.leaves:
                return _in_order(self.leaves[atom], read, self.order)
            if atom in self.inner:
                equation = self.inner[atom]
                return bind(equation, [value(operand) for operand in equation.invars])[0]
            return lax.transpose(read(atom), self.order)

        axes = tuple(range(len(self.reduction.params["axes"])))
        return _over(self.reduction, value(self.reduction.invars[0]), axes)


def _made_from_little(reduction: JaxprEqn, definitions: Definitions) -> _Made | None:
    """`reduction` with the equations that compute its operand, or None where they do not fit."""
    operand, axes = reduction.invars[0], reduction.params["axes"]
    inner: dict[Var, JaxprEqn] = {}
    leaves: dict[Var, JaxprEqn] = {}
    read: set[Var] = set()
    waiting = [operand]
    while waiting:
        atom = waiting.pop()
        if isinstance(atom, Literal) or shape_of(atom) == () or atom in inner:
            continue
        equation = definitions.equation(atom)
        if equation is not None and _is_leaf(equation):
            leaves[atom] = equation
            read |= _laid_out_anew(equation, axes)
        elif _LITTLE * size_of(atom) <= size_of(operand):
            read.add(atom)
        elif equation is not None and _is_elementwise(equation):
            inner[atom] = equation
            waiting += equation.invars
        else:
            return None
    little = _LITTLE * sum(map(size_of, read)) <= size_of(operand)
    if not (little and inner and _unread_elsewhere(inner, operand, definitions)):
        return None
    return _Made(reduction=reduction, inner=inner, leaves=leaves)


def _unread_elsewhere(
    inner: Mapping[Var, JaxprEqn], operand: Var | Literal, definitions: Definitions
) -> bool:
    atoms = [atom for equation in inner.values() for atom in equation.invars]
    reads = Counter(atom for atom in (*atoms, operand) if not isinstance(atom, Literal))
    return all(reads[value] == definitions.uses[value] for value in inner)


def _is_elementwise(equation: JaxprEqn) -> bool:
    name = equation.primitive.name
    return name in NAMES and len(equation.outvars) == 1 and bool(RULES[name].factors(equation))


def _is_leaf(equation: JaxprEqn) -> bool:
    """Whether it is an iota or a broadcast with a static shape and without a sharding."""
    name, operands = equation.primitive.name, len(equation.invars)
    known = (name, operands) in {("iota", 0), ("broadcast_in_dim", 1)}
    return known and equation.params.get("sharding") is None


def _laid_out_anew(leaf: JaxprEqn, axes: tuple[int, ...]) -> set[Var]:
    """The operand of a broadcast, if it has a reduced dimension; others keep their order."""
    if not set(leaf.params.get("broadcast_dimensions", ())) & set(axes):
        return set()
    return {atom for atom in leaf.invars if isinstance(atom, Var)}


def _in_order(leaf: JaxprEqn, read: Read, order: tuple[int, ...]) -> Array:
    """The result of an iota or a broadcast, made with its dimensions in `order`."""
    whole = shape_of(leaf.outvars[0])
    shape = tuple(whole[dim] for dim in order)
    if leaf.primitive.name == "iota":
        return lax.broadcasted_iota(
            leaf.params["dtype"], shape, order.index(leaf.params["dimension"])
        )
    places = [order.index(dim) for dim in leaf.params["broadcast_dimensions"]]
    own = sorted(range(len(places)), key=places.__getitem__)
    return lax.broadcast_in_dim(lax.transpose(read(leaf.invars[0]), own), shape, sorted(places))
