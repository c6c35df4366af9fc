"""Results of loops and branches that no slice makes, computed by a loop or branch of their own.

JAX hands on with what it keeps of a branch the weights that the branch reads, and a loop that
carries activations may carry a counter. The one is the same for every slice of the others: alone
it takes little, and together nothing that comes of the others could be sliced with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsafe.jax_internals import bind
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted
from memsafe.rules.control_flow import unsliced

if TYPE_CHECKING:
    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read, Replacement

__all__ = ["bystanders_apart"]


def bystanders_apart(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with the results of loops and branches that no slice makes computed apart."""
    changes = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        apart = unsliced(equation)
        if apart:
            what = f"{len(apart)} of what a {equation.primitive.name} gives"
            note = noted(equation, f"{what} computed apart, since no slice changes it")
            changes[index] = Change(replacement=_replacement(equation, apart), note=note)
    return applied(closed, changes)


def _replacement(equation: JaxprEqn, apart: frozenset[int]) -> Replacement:
    def replacement(read: Read) -> list[Array]:
        """Each of the two keeps only what makes its own results."""
        operands = [read(atom) for atom in equation.invars]
        sliced, others = bind(equation, operands), bind(equation, operands)
        return [others[at] if at in apart else each for at, each in enumerate(sliced)]

    return replacement
