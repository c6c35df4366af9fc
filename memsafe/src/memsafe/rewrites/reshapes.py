"""Reshapes that merge dimensions, moved after the equations that compute on the merged array.

Attention over scores reshaped from `[b, h, s, s]` to `[b * h, s, s]` computes the same on four
dimensions, and these can be split one by one. So the reshape moves past elementwise equations,
broadcasts, reductions, transposes and products, as far as possible. Values stay the same bit for
bit: nothing is added up in another order. A reshape that splits a dimension stays where it is,
because moving it would merge dimensions in the equations that follow.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jax
from jax.extend.core import Var

from memsafe.jax_internals import bind
from memsafe.programs import shape_of
from memsafe.rewrites.definitions import Definitions, size_of
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted
from memsafe.rewrites.separate import is_reshape, separated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read
    from memsafe.rewrites.separate import Separate, Step

__all__ = ["reshape_sinking"]


@dataclass(slots=True)
class _Region:
    """Steps that read each other's results: all are taken or none."""

    steps: dict[int, Step] = field(default_factory=dict)
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)

    def worthwhile(self) -> bool:
        """Whether a reshape moves, and neither large reshapes nor reshaped elements increase.

        A reshape is large if it has at least the elements of the smallest reshape that is removed.
        """
        moved = any(step.params is not None for step in self.steps.values())
        if not moved or not self.before:
            return False
        large = [elements for elements in self.after if elements >= min(self.before)]
        return len(large) <= len(self.before) and sum(self.after) <= sum(self.before)

    def changes(self, separate: Separate) -> dict[int, Change]:
        first = min(self.steps)
        return {
            index: Change(
                replacement=_replacement(step, separate),
                note=self._note() if index == first else "",
            )
            for index, step in self.steps.items()
        }

    def _note(self) -> str:
        entry = self.steps[min(self.steps)]
        moved = sum(step.params is not None for step in self.steps.values())
        shapes = [list(shape_of(atom)) for atom in (entry.equation.invars[0], entry.result())]
        text = f"reshape of {shapes[0]} to {shapes[1]} moved past equations: {moved}"
        return noted(entry.equation, text)


def reshape_sinking(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with reshapes that merge dimensions moved toward its outputs, bit for bit the same.

    Large arrays are never reshaped more often than before.
    """
    definitions = Definitions.of(closed.jaxpr)
    steps: dict[Var, Step] = {}
    found: dict[int, Step] = {}
    changes: dict[int, Change] = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        if (scalar := _scalar_reshaped(equation, definitions)) is not None:
            changes[index] = scalar
        elif (step := separated(equation, steps, definitions)) is not None:
            found[index] = step
            if step.merged():
                steps[step.result()] = step
    separate: Separate = {}
    for region in _regions(closed, found, steps):
        if region.worthwhile():
            changes.update(region.changes(separate))
    return applied(closed, changes)


def _replacement(step: Step, separate: Separate) -> Callable[[Read], list[Array]]:
    def computed(read: Read) -> list[Array]:
        out = step.result()
        separate[out] = step.computed(read, separate)
        return [jax.lax.reshape(separate[out], shape_of(out)) if step.merged() else separate[out]]

    return computed


def _regions(
    closed: ClosedJaxpr, found: dict[int, Step], steps: dict[Var, Step]
) -> Iterable[_Region]:
    """The steps by region, with the elements of each reshape before and after."""
    leader: dict[Var, Var] = {}

    def lead(variable: Var) -> Var:
        while (above := leader.setdefault(variable, variable)) is not variable:
            leader[variable] = leader[above]
            variable = above
        return variable

    regions: dict[Var, _Region] = defaultdict(_Region)
    for step in found.values():
        for operand in step.operands:
            if operand.region is not None:
                leader[lead(operand.region)] = lead(step.result())
    for index, step in found.items():
        region = regions[lead(step.result())]
        region.steps[index] = step
        if step.params is None:
            region.before.append(size_of(step.result()))
        region.after += [operand.reshaped for operand in step.operands if operand.reshaped]
    for variable in _read_merged(closed, found):
        if variable in steps:
            regions[lead(variable)].after.append(size_of(variable))
    return regions.values()


def _read_merged(closed: ClosedJaxpr, found: dict[int, Step]) -> set[Var]:
    """The variables read in merged form, by outputs, equations that are no steps, or steps."""
    equations = [eqn for index, eqn in enumerate(closed.jaxpr.eqns) if index not in found]
    atoms = [*closed.jaxpr.outvars, *(atom for eqn in equations for atom in eqn.invars)]
    wholes = (operand.whole for step in found.values() for operand in step.operands)
    return {atom for atom in (*atoms, *wholes) if isinstance(atom, Var)}


def _scalar_reshaped(equation: JaxprEqn, definitions: Definitions) -> Change | None:
    """A reshape of a broadcast scalar as a broadcast to the other shape."""
    source = definitions.equation(equation.invars[0]) if is_reshape(equation) else None
    if source is None or source.primitive.name != "broadcast_in_dim":
        return None
    if shape_of(source.invars[0]) != () or source.params.get("sharding") is not None:
        return None
    params = {**source.params, "shape": shape_of(equation.outvars[0])}
    return Change(
        replacement=lambda read: bind(source, [read(source.invars[0])], params),
        note=noted(equation, "reshape of a broadcast scalar as a broadcast"),
    )
