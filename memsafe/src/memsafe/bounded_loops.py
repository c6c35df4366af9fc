"""Reverse-mode derivatives for each `while` of a program whose steps have a bound.

JAX has no such derivative, because it does not know how many steps it has to keep. `loop_bounds.py`
finds the bound, and `reversed_loops.py` has the derivative. This module finds these loops in a
program that is to be differentiated, and in the programs of its loops and branches.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.extend.core import Literal, Var

from memsafe.jax_internals import bind
from memsafe.loop_bounds import carried_arguments, most_steps, over_steps, shift_of
from memsafe.programs import evaluate, is_inexact, silently, traced_like
from memsafe.ranges import CALLS, limits_of, range_of, ranges_in
from memsafe.reversed_loops import with_derivative
from memsafe.sub_jaxprs import as_closed, rebuilt, sub_jaxprs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read, Replacement
    from memsafe.ranges import Range

__all__ = ["bounded_loops"]

_COMPUTED_AGAIN = frozenset(("remat2",))


def bounded_loops(
    program: ClosedJaxpr, varied: Sequence[bool], given: Sequence[Range | None] = ()
) -> dict[int, Replacement]:
    """Replacements, by index, for the equations that are a bounded `while` or run one.

    Only equations that depend on the `varied` arguments are replaced. The arguments lie in the
    ranges `given`. Equations that have a derivative rule of their own are left as they are.
    """
    if not _has_while(program):
        return {}
    jaxpr = program.jaxpr
    known = ranges_in(program, given or [None for _ in jaxpr.invars])
    active = {value for value, is_varied in zip(jaxpr.invars, varied, strict=True) if is_varied}
    found = {}
    for index, equation in enumerate(jaxpr.eqns):
        if equation.primitive.name == "stop_gradient" or active.isdisjoint(_variables(equation)):
            continue
        active.update(filter(is_inexact, equation.outvars))
        replacement = _replacement(equation, _Outside(known, active))
        if replacement is not None:
            found[index] = replacement
    return found


class _Outside(NamedTuple):
    """What is known of the variables of a program: ranges, and which have derivatives."""

    ranges: Mapping[Var, Range]
    active: set[Var]

    def given(self, atoms: Sequence[Any]) -> list[Range | None]:
        """The ranges of operands."""
        return [range_of(atom, self.ranges) for atom in atoms]

    def varied(self, atoms: Sequence[Any]) -> list[bool]:
        """Which operands have derivatives."""
        return [isinstance(atom, Var) and atom in self.active for atom in atoms]


def _replacement(equation: JaxprEqn, outside: _Outside) -> Replacement | None:
    name = equation.primitive.name
    most = most_steps(equation, outside.ranges) if name == "while" else None
    if name == "while" and most is None:
        return None
    programs = _programs_of(equation)
    inside = {at: _inside(equation, body, outside, most) for at, body in programs.items()}
    if most is None and not any(inside.values()):
        return None

    def replacement(read: Read) -> Sequence[Array]:
        operands = [read(atom) for atom in equation.invars]
        runs = {at: partial(_evaluated, body, inside[at]) for at, body in programs.items()}
        if most is not None:
            varied = outside.varied(equation.invars)
            return with_derivative(equation, runs["body_jaxpr"], varied, most)(*operands)
        if name in CALLS:
            changed = traced_like(runs["jaxpr"], programs["jaxpr"])  # Keeps the loops' rules.
            return bind(equation, operands, {**equation.params, "jaxpr": changed})
        if name in _COMPUTED_AGAIN:
            how = {key: equation.params[key] for key in ("policy", "prevent_cse")}
            again = jax.checkpoint(runs["jaxpr"], **how)
            return list(again(*operands))
        return rebuilt(equation, operands, runs)

    return replacement


def _evaluated(body: ClosedJaxpr, loops: dict[int, Replacement], *arguments: Array) -> list[Array]:
    return evaluate(body, arguments, replace=loops, calls=silently)


def _inside(
    equation: JaxprEqn, body: ClosedJaxpr, outside: _Outside, most: int | None
) -> dict[int, Replacement]:
    """The bounded loops in a program that `equation` runs."""
    if not _has_while(body):
        return {}
    operands: Sequence[Any] = equation.invars
    match equation.primitive.name:
        case "cond":
            operands = operands[1:]
        case "while":
            operands = operands[equation.params["cond_nconsts"] :]
    given, varied = outside.given(operands), outside.varied(operands)
    loop = carried_arguments(equation)
    if loop is not None:
        steps = equation.params["length"] if most is None else most
        for result, at in enumerate(loop):
            shifted = over_steps(given[at], shift_of(body, result, at), steps)
            is_exact = shifted is not None and shifted.within(limits_of(body.jaxpr.invars[at]))
            given[at] = shifted if is_exact else None  # Beyond its limits, an integer wraps.
        varied = [is_inexact(value) for value in body.jaxpr.invars]
    return bounded_loops(body, varied, given)


def _programs_of(equation: JaxprEqn) -> dict[str, ClosedJaxpr]:
    if equation.primitive.name in CALLS | _COMPUTED_AGAIN:
        return {"jaxpr": as_closed(equation.params["jaxpr"])}
    return sub_jaxprs_of(equation)


def _has_while(program: ClosedJaxpr) -> bool:
    return any(
        equation.primitive.name == "while" or any(map(_has_while, _programs_of(equation).values()))
        for equation in program.jaxpr.eqns
    )


def _variables(equation: JaxprEqn) -> Iterator[Var]:
    return (atom for atom in equation.invars if not isinstance(atom, Literal))
