"""Ranges of the integers of a program, as far as its equations show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from memsafe.jax_internals import aval_of
from memsafe.sub_jaxprs import as_closed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jax.extend.core import JaxprEqn

__all__ = ["CALLS", "Range", "limits_of", "range_of", "ranges_in"]

_KEEPING = frozenset(
    (
        "broadcast_in_dim",
        "convert_element_type",
        "copy",
        "dynamic_slice",
        "pvary",
        "reduce_max",
        "reduce_min",
        "reshape",
        "slice",
        "squeeze",
        "stop_gradient",
        "transpose",
    )
)
"""Primitives whose results are elements of their first operand."""

CALLS = frozenset(("jit",))
"""Primitives that only call a program."""


@dataclass(frozen=True, slots=True)
class Range:
    """The bounds, both inclusive, of every element of an array of integers."""

    low: int
    high: int

    def __neg__(self) -> Range:
        return Range(-self.high, -self.low)

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def within(self, limits: Range | None) -> bool:
        """Whether this range lies within `limits`; false for None."""
        return limits is not None and limits.low <= self.low and self.high <= limits.high


def ranges_in(program: ClosedJaxpr, given: Sequence[Range | None]) -> dict[Var, Range]:
    """The known ranges of variables of `program`, whose arguments lie in the ranges `given`."""
    jaxpr: Jaxpr = program.jaxpr
    known = {v: found for v, found in zip(jaxpr.invars, given, strict=True) if found}
    for variable, value in zip(jaxpr.constvars, program.consts, strict=True):
        if limits_of(variable) and not isinstance(value, jax.core.Tracer):
            known[variable] = _of_numbers(value)
    for equation in jaxpr.eqns:
        operands = [range_of(atom, known) for atom in equation.invars]
        made = zip(equation.outvars, _made(equation, operands), strict=True)
        # A sum that may overflow can be any number of its type.
        known.update((v, found) for v, found in made if found and found.within(limits_of(v)))
    return known


def range_of(atom: Var | Literal, known: Mapping[Var, Range]) -> Range | None:
    """The range of the integers in `atom`; None if its type is not an integer type."""
    if isinstance(atom, Literal):
        return _of_numbers(atom.val) if limits_of(atom) else None
    return known.get(atom) or limits_of(atom)


def limits_of(atom: Var | Literal) -> Range | None:
    """The range of the integer type of `atom`; None if its type is not an integer type."""
    dtype = getattr(aval_of(atom), "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.integer):
        return None
    numbers: Any = jnp.iinfo(dtype)  # type: ignore[no-untyped-call]
    return Range(int(numbers.min), int(numbers.max))


def _of_numbers(value: Any) -> Range:
    numbers = np.asarray(value)
    return Range(int(numbers.min()), int(numbers.max())) if numbers.size else Range(0, 0)


def _made(equation: JaxprEqn, operands: Sequence[Range | None]) -> Sequence[Range | None]:
    name = equation.primitive.name
    if name in CALLS:
        called = as_closed(equation.params["jaxpr"])
        known = ranges_in(called, operands)
        return [range_of(atom, known) for atom in called.jaxpr.outvars]
    if name == "select_n":
        operands = operands[1:]
    if name in _KEEPING:
        operands = operands[:1]
    is_empty = any(0 in getattr(atom.aval, "shape", ()) for atom in equation.invars)
    if not operands or None in operands or is_empty:
        return [None for _ in equation.outvars]
    return [_computed(name, cast("Sequence[Range]", operands)) for _ in equation.outvars]


def _computed(name: str, operands: Sequence[Range]) -> Range | None:
    first, last = operands[0], operands[-1]
    lows, highs = [each.low for each in operands], [each.high for each in operands]
    found = first if name in _KEEPING else None
    match name:
        case "min":
            found = Range(min(lows), min(highs))
        case "max":
            found = Range(max(lows), max(highs))
        case "clamp":
            low, value, high = operands
            above = _computed("max", (low, value))
            found = above and _computed("min", (above, high))
        case "add":
            found = first + last
        case "sub":
            found = first + -last
        case "mul":
            ends = [one * other for one in (lows[0], highs[0]) for other in (lows[-1], highs[-1])]
            found = Range(min(ends), max(ends))
        case "select_n":
            found = Range(min(lows), max(highs))
    return found
