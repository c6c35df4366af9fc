"""Scans over the rows of a transposed argument, which read each row from the argument itself.

A recurrent network of batches of sequences is `lax.scan(step, start, jnp.swapaxes(x, 0, 1))`. The
transpose is a second array as large as `x`, alive from the first step to the gradient's last. Here
the scan counts its steps and takes row `i` of `x` itself.

Only for a GPU. On a CPU, slices of the batch are faster, because they stay in the caches.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from jax import lax
from jax.extend.core import Var

from memsafe.jax_internals import scan_operands
from memsafe.programs import evaluate
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted
from memsafe.sub_jaxprs import rebuilt, sub_jaxprs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read

    _Transposed = Mapping[int, JaxprEqn]
    """The equations that transpose an argument, by their positions among a scan's operands."""

__all__ = ["rows_in_place"]


def rows_in_place(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with scans that read rows of an argument itself if only scans read its transpose."""
    transposes = _transposes(closed)
    changes = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        rows = {at: transposes[atom] for at, atom in _scanned(equation) if atom in transposes}
        if rows:
            note = noted(equation, f"a scan takes rows of {len(rows)} arrays where they lie")
            changes[index] = Change(replacement=partial(_taken, equation, rows), note=note)
    return applied(closed, changes)


def _transposes(closed: ClosedJaxpr) -> dict[Var, JaxprEqn]:
    """The equations that transpose an argument, by result, if only scans read the rows of it."""
    found: dict[Var, JaxprEqn] = {}
    arguments = set(closed.jaxpr.invars)
    elsewhere = {atom for atom in closed.jaxpr.outvars if isinstance(atom, Var)}
    for equation in closed.jaxpr.eqns:
        rows = dict(_scanned(equation))
        others = (atom for at, atom in enumerate(equation.invars) if at not in rows)
        elsewhere.update(atom for atom in others if isinstance(atom, Var))
        if equation.primitive.name == "transpose" and equation.invars[0] in arguments:
            found[equation.outvars[0]] = equation
    return {value: equation for value, equation in found.items() if value not in elsewhere}


def _scanned(equation: JaxprEqn) -> Iterator[tuple[int, Var]]:
    """The operands of which a scan reads one row in each step, with their positions."""
    if equation.primitive.name == "scan":
        first = sum(scan_operands(equation))
        operands = enumerate(equation.invars[first:], first)
        yield from ((at, atom) for at, atom in operands if isinstance(atom, Var))


def _taken(equation: JaxprEqn, rows: _Transposed, read: Read) -> Sequence[Array]:
    """The results of the scan, with a body that reads rows by their number."""
    ((name, body),) = sub_jaxprs_of(equation).items()

    def run(*given: Array) -> list[Array]:
        return evaluate(
            body, [_row(rows[at], one, read) if at in rows else one for at, one in enumerate(given)]
        )

    numbers = lax.iota("int32", equation.params["length"])
    operands = [numbers if at in rows else read(atom) for at, atom in enumerate(equation.invars)]
    return rebuilt(equation, operands, {name: run})


def _row(transpose: JaxprEqn, number: Array, read: Read) -> Array:
    """One row of the transposed array, read from the array before the transpose."""
    dim, *others = transpose.params["permutation"]
    argument = read(transpose.invars[0])
    row = lax.dynamic_index_in_dim(
        argument, number, dim, keepdims=False, allow_negative_indices=False
    )
    return lax.transpose(row, [other - (other > dim) for other in others])
