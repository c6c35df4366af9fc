"""Values that a loop only reads, computed in its body from small arrays.

JAX passes a loop its invariants (a causal mask, zeros for a `where`, a matrix of costs) as arrays.
They stay whole while the loop runs, and take memory however small the slices of its body are. If
the body computes them, they are split with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jax.extend.core import Var

from memsafe.costs import work
from memsafe.jax_internals import bind, scan_operands
from memsafe.programs import evaluate, nbytes
from memsafe.rewrites.definitions import size_of
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted
from memsafe.rules import rule_of
from memsafe.sub_jaxprs import rebuilt, sub_jaxprs_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

    from memsafe.programs import Read, Replacement

__all__ = ["loop_invariants"]

_LITTLE = 16
"""A value moves only if the arrays that it comes from are at least this many times smaller."""

_CHEAP = 64
"""Maximum operations for each element of a value that moves, because every step repeats them."""


def loop_invariants(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with loops that compute cheap invariants in their bodies, from small arrays."""
    definition = {v: at for at, each in enumerate(closed.jaxpr.eqns) for v in each.outvars}
    changes = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        origins = (
            (at, value, _origin(closed, definition, value))
            for at, value in enumerate(_invariants(equation))
            if isinstance(value, Var)
        )
        moved = {at: (value, origin) for at, value, origin in origins if origin}
        if moved:
            note = noted(equation, f"{len(moved)} of what a {equation.primitive.name} reads")
            replacement = _replacement(closed, equation, moved)
            changes[index] = Change(replacement=replacement, note=f"{note} made in its body")
    return applied(closed, changes)


def _invariants(equation: JaxprEqn) -> Sequence[Var | Literal]:
    """The operands that all steps of a loop read, in the order of its body's first arguments."""
    match equation.primitive.name:
        case "scan":
            return equation.invars[: scan_operands(equation)[0]]
        case "while":
            before = equation.params["cond_nconsts"]
            return equation.invars[before : before + equation.params["body_nconsts"]]
        case _:
            return ()


def _origin(closed: ClosedJaxpr, definition: Mapping[Var, int], value: Var) -> list[int] | None:
    """Indices, in order, of the equations that make `value` cheaply from small arrays, or None.

    Each of these equations can be split.
    """
    found: set[int] = set()
    waiting = [value]
    operations = 0.0
    while waiting:
        index = definition.get(waiting.pop())
        if index is None:
            return None
        if index in found:
            continue
        found.add(index)
        equation = closed.jaxpr.eqns[index]
        operations += work(equation)
        if rule_of(equation) is None or equation.effects or sub_jaxprs_of(equation):
            return None
        read = (atom for atom in equation.invars if isinstance(atom, Var))
        waiting += [atom for atom in read if _LITTLE * nbytes(atom) > nbytes(value)]
    return sorted(found) if operations <= _CHEAP * size_of(value) else None


def _replacement(
    closed: ClosedJaxpr, equation: JaxprEqn, moved: Mapping[int, tuple[Var, list[int]]]
) -> Replacement:
    """The loop with a body that computes those of its first arguments that are in `moved`."""
    ((name, body),) = sub_jaxprs_of(equation).items()

    def replacement(read: Read) -> Sequence[Array]:
        def run(*arguments: Array) -> list[Array]:
            given = list(arguments)
            for at, (value, origin) in moved.items():
                given[at] = _made(closed, value, origin, read)
            return evaluate(body, given)

        return rebuilt(equation, [read(atom) for atom in equation.invars], {name: run})

    return replacement


def _made(closed: ClosedJaxpr, value: Var, origin: Sequence[int], read: Read) -> Array:
    values: dict[Var, Array] = {}
    for index in origin:
        equation = closed.jaxpr.eqns[index]
        operands = [_read(atom, values, read) for atom in equation.invars]
        values.update(zip(equation.outvars, bind(equation, operands), strict=True))
    return values[value]


def _read(atom: Var | Literal, values: Mapping[Var, Array], read: Read) -> Array:
    return values[atom] if isinstance(atom, Var) and atom in values else read(atom)
