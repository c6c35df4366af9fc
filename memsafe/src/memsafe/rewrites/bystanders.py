"""Results of loops and branches that are not sliced, computed by a loop or branch of their own.

Some results are equal for all slices of the others. JAX returns the weights that a branch reads,
together with the values that it keeps of the branch. A loop that carries activations may carry a
counter. Other results are sums over all slices: the gradient of a branch gives gradients of its
input, which are sliced, and of its weights, which are such sums. While one equation makes both, no
equation that reads the sliced results can be sliced with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsafe.jax_internals import bind
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted
from memsafe.rules.bodies import SUMMED, WHOLE
from memsafe.rules.control_flow import unsliced

if TYPE_CHECKING:
    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read, Replacement
    from memsafe.rules.bodies import Kind

__all__ = ["bystanders_apart", "sums_apart"]


def bystanders_apart(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with results that are equal for all slices computed apart, which is little work."""
    return _apart(closed, WHOLE, "since no slice changes it")


def sums_apart(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with sums over slices computed apart, and their operands a second time."""
    return _apart(closed, SUMMED, "since it is summed over slices of the rest")


def _apart(closed: ClosedJaxpr, kind: Kind, why: str) -> Rewritten:
    changes = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        apart = unsliced(equation, kind)
        if apart:
            what = f"{len(apart)} of what a {equation.primitive.name} gives computed apart, {why}"
            replacement = _replacement(equation, apart)
            changes[index] = Change(replacement=replacement, note=noted(equation, what))
    return applied(closed, changes)


def _replacement(equation: JaxprEqn, apart: frozenset[int]) -> Replacement:
    def replacement(read: Read) -> list[Array]:
        """The results of two copies; each copy keeps only the equations for its own results."""
        operands = [read(atom) for atom in equation.invars]
        sliced, others = bind(equation, operands), bind(equation, operands)
        return [others[at] if at in apart else each for at, each in enumerate(sliced)]

    return replacement
