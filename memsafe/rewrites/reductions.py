"""Reductions over a short last dimension as terms, for the CPU compiler.

`sum((x[:, None] - y[None]) ** 2, -1)` with few coordinates is slow there: XLA hands float sums,
maxima and minima to a library (YNNPACK), which goes over the last dimension, a few elements at a
time. `(x₀ - y₀)² + (x₁ - y₁)² + …` is elementwise, and vectorised along the points.

Measured on two cores of an AMD EPYC, `exp(-d / 2) @ v` of N points and N split by memsafe, before
and after: N = 20000 of 10 coordinates, 3.49 s and 0.56 s on jax 0.10.2, 4.19 s and 0.79 s on
0.12.0.1; N = 10000 of 24, 1.00 s and 0.36 s, 0.99 s and 0.36 s. It compiles 0.5 to 2.5 s longer.
Unsplit, 400 points and 2000: with 48 coordinates squares take 1.6 to 1.7 times as long and absolute
values about half, with 784 four to eight times. Integers, products and sums of 16 bits take the
same time whichever dimension is reduced, and are left alone.

To reduce over the first dimension instead is no way out: faster on 0.12, ten times slower and more
on 0.10, for a reason not looked into.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax
from jax.extend.core import Literal, Var

from memsafe.jax_internals import bind
from memsafe.rewrites.definitions import Definitions, shape_of, size_of, type_of
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted
from memsafe.rules.elementwise import NAMES, RULES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read

__all__ = ["reductions_outward"]

_COMBINED = {"reduce_sum": lax.add, "reduce_max": lax.max, "reduce_min": lax.min}

_MOST_TERMS = 24
"""Of exponentials, 24 are as fast as the library; all that was measured is faster with fewer."""

_MOST_EQUATIONS = 256
"""Of all terms together."""

_FEWEST_KEPT = 8
"""The last kept dimension, along which the terms are vectorised."""

_FEWEST_ELEMENTS = 1 << 16
"""Fewer are reduced in no time either way."""

_LITTLE = 8
"""What the terms are slices of is so many times smaller than what is reduced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """A reduction of what elementwise equations make from little.

    Attributes:
        reduction: The equation.
        inner: The elementwise equations, by their results; nothing else reads those.
        leaves: Broadcasts and iotas that they read, by their results.
    """

    reduction: JaxprEqn
    inner: Mapping[Var, JaxprEqn]
    leaves: Mapping[Var, JaxprEqn]

    def computed(self, read: Read) -> list[Array]:
        """The terms, combined in order."""
        shape, axes = shape_of(self.reduction.invars[0]), self.reduction.params["axes"]
        combined = _COMBINED[self.reduction.primitive.name]
        places = itertools.product(*(range(shape[axis]) for axis in axes))
        terms = (self._term(read, dict(zip(axes, place, strict=True))) for place in places)
        return [lax.squeeze(functools.reduce(combined, terms), axes)]

    def _term(self, read: Read, indices: Mapping[int, int]) -> Array:
        values: dict[Var, Array] = {}

        def value(atom: Var | Literal) -> Array:
            if isinstance(atom, Literal) or shape_of(atom) == ():
                return read(atom)
            if atom not in values:
                values[atom] = made(atom)
            return values[atom]

        def made(atom: Var) -> Array:
            if atom in self.leaves:
                return _leaf_slice(self.leaves[atom], read, indices)
            if atom in self.inner:
                equation = self.inner[atom]
                return bind(equation, [value(operand) for operand in equation.invars])[0]
            return _sliced(read(atom), indices)

        return value(self.reduction.invars[0])


def reductions_outward(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with float reductions over a short last dimension computed term by term.

    Sums stay the same to rounding; maxima and minima bit for bit, but for a NaN, that the library
    drops and the terms keep. Only what is made elementwise from little, and read by nothing else.
    """
    definitions = Definitions.of(closed.jaxpr)
    changes = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        terms = _terms(equation, definitions) if _is_slow(equation) else None
        if terms is not None:
            shape, axes = shape_of(equation.invars[0]), list(equation.params["axes"])
            text = f"{equation.primitive.name} of {list(shape)} over {axes} term by term"
            changes[index] = Change(replacement=terms.computed, note=noted(equation, text))
    return applied(closed, changes)


def _is_slow(equation: JaxprEqn) -> bool:
    """Whether it reduces a short last dimension of floats, and keeps one to vectorise along."""
    if equation.primitive.name not in _COMBINED or equation.params.get("out_sharding") is not None:
        return False
    operand, axes = equation.invars[0], equation.params["axes"]
    shape, kind = shape_of(operand), type_of(operand)
    if kind not in (jnp.float32, jnp.float64) or size_of(operand) < _FEWEST_ELEMENTS:
        return False
    wide = [dim for dim, size in enumerate(shape) if size != 1]
    kept = [dim for dim in wide if dim not in axes]
    terms = math.prod(shape[axis] for axis in axes)
    return (
        1 < terms <= _MOST_TERMS
        and wide[-1] in axes
        and bool(kept)
        and shape[kept[-1]] >= _FEWEST_KEPT
    )


def _terms(reduction: JaxprEqn, definitions: Definitions) -> _Terms | None:
    """`reduction` with the equations that make what it reduces, or None where they do not fit."""
    operand, axes = reduction.invars[0], reduction.params["axes"]
    terms = math.prod(shape_of(operand)[axis] for axis in axes)
    inner: dict[Var, JaxprEqn] = {}
    leaves: dict[Var, JaxprEqn] = {}
    sliced: set[Var] = set()
    waiting = [operand]
    while waiting:
        atom = waiting.pop()
        if isinstance(atom, Literal) or shape_of(atom) == () or atom in inner:
            continue
        equation = definitions.equation(atom)
        if equation is not None and _is_leaf(equation):
            leaves[atom] = equation
            sliced |= _sliced_sources(equation, axes)
        elif _LITTLE * size_of(atom) <= size_of(operand):
            sliced.add(atom)
        elif equation is not None and _is_elementwise(equation):
            inner[atom] = equation
            waiting += equation.invars
        else:
            return None
        if terms * (len(inner) + len(leaves)) > _MOST_EQUATIONS:
            return None
    little = _LITTLE * sum(map(size_of, sliced)) <= size_of(operand)
    if not (little and inner and _unread_elsewhere(inner, operand, definitions)):
        return None
    return _Terms(reduction=reduction, inner=inner, leaves=leaves)


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
    """Whether it is an iota or a broadcast, of shapes known by now and placed by nobody."""
    name, operands = equation.primitive.name, len(equation.invars)
    known = (name, operands) in {("iota", 0), ("broadcast_in_dim", 1)}
    return known and equation.params.get("sharding") is None


def _sliced_sources(leaf: JaxprEqn, axes: tuple[int, ...]) -> set[Var]:
    """What a term reads a slice of, to make its own of `leaf`."""
    places = leaf.params.get("broadcast_dimensions", ())
    sources = (atom for atom in leaf.invars if isinstance(atom, Var))
    return {atom for atom in sources if set(places) & set(axes)}


def _leaf_slice(leaf: JaxprEqn, read: Read, indices: Mapping[int, int]) -> Array:
    """The slice of an iota's or a broadcast's result, made without the whole."""
    whole = shape_of(leaf.outvars[0])
    shape = tuple(1 if dim in indices else size for dim, size in enumerate(whole))
    if leaf.primitive.name == "iota":
        dim, kind = leaf.params["dimension"], leaf.params["dtype"]
        if dim in indices:
            return lax.full(shape, indices[dim] if whole[dim] > 1 else 0, kind)
        return lax.broadcasted_iota(kind, shape, dim)
    places = leaf.params["broadcast_dimensions"]
    own = {place: indices[dim] for place, dim in enumerate(places) if dim in indices}
    return lax.broadcast_in_dim(_sliced(read(leaf.invars[0]), own), shape, places)


def _sliced(values: Array, indices: Mapping[int, int]) -> Array:
    """`values` at `indices` of some dimensions, which stay with size one."""
    at = {dim: index for dim, index in indices.items() if values.shape[dim] > 1}
    if not at:
        return values
    starts = [at.get(dim, 0) for dim in range(values.ndim)]
    ends = [at[dim] + 1 if dim in at else size for dim, size in enumerate(values.shape)]
    return lax.slice(values, starts, ends)
