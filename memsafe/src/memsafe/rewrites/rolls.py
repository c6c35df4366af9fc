"""Rolls, in which two parts of an array change places, as one equation.

JAX writes `jnp.roll` as two slices that are concatenated, and its gradient as two pads that are
added. A loop over slices would need both ends of the array for each slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jax.extend.core import Literal, Var

from memsafe.programs import shape_of
from memsafe.rewrites.cuts import Cut, cuts_of
from memsafe.rewrites.definitions import Definitions
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted
from memsafe.rules.rolls import ROLL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read

    Atom = Var | Literal

__all__ = ["rolls"]


class _Roll(NamedTuple):
    """See `ROLL`."""

    source: Var
    dim: int
    offset: int

    def made(self, read: Read) -> Sequence[Array]:
        """The roll, as one equation."""
        return [ROLL.bind(read(self.source), dim=self.dim, offset=self.offset)]


def rolls(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with each roll as one equation."""
    definitions = Definitions.of(closed.jaxpr)
    changes: dict[int, Change] = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        roll = _roll(definitions, equation)
        if roll is not None:
            note = f"roll of {list(shape_of(roll.source))} along {roll.dim} as one"
            changes[index] = Change(replacement=roll.made, note=noted(equation, note))
    return applied(closed, changes)


def _roll(definitions: Definitions, equation: JaxprEqn) -> _Roll | None:
    """The roll that `equation` completes: it puts the last part of the source before the first."""
    cuts = _joined(definitions, equation)
    if len({(cut.dim, shape_of(cut.whole)) for cut in cuts}) != 1:
        return None
    dim, size = cuts[0].dim, shape_of(cuts[0].whole)[cuts[0].dim]
    windows = sorted((each for cut in cuts for each in cut.windows), key=lambda each: each.start)
    sources = [_cut_off(definitions, window.part) for window in windows]
    match windows, sources:
        case [first, second], [Cut() as last, Cut() as before]:
            (offset, end), (begin, middle) = (
                next(each[1:] for each in cut.windows if each.part is window.part)
                for cut, window in ((last, first), (before, second))
            )
            fits = first.start == begin == 0 and first.stop == second.start
            fits = fits and second.stop == end == size and middle == offset
            alike = last.whole is before.whole and last.dim == before.dim == dim
            if fits and alike and shape_of(last.whole) == shape_of(cuts[0].whole):
                near = offset if 2 * offset <= size else offset - size
                return _Roll(last.whole, dim, near)
    return None


def _joined(definitions: Definitions, equation: JaxprEqn) -> list[Cut]:
    """The cuts by which `equation` joins parts: those of a concatenation, or of added pads."""
    name = equation.primitive.name
    if name == "concatenate":
        return list(cuts_of(equation))
    if name not in ("add", "add_any"):
        return []
    pads = [definitions.equation(atom) for atom in equation.invars]
    found = (cuts_of(pad) for pad in pads if pad is not None and _is_of_zeros(pad))
    return [cut for cuts in found for cut in cuts if cut.makes]


def _is_of_zeros(pad: JaxprEqn) -> bool:
    """Whether an equation pads exactly one dimension, with zeros."""
    if pad.primitive.name != "pad" or not isinstance(pad.invars[1], Literal):
        return False
    return pad.invars[1].val == 0 and sum(map(any, pad.params["padding_config"])) == 1


def _cut_off(definitions: Definitions, part: Atom) -> Cut | None:
    """The cut, along one dimension, that takes `part` from an array; None if there is none."""
    equation = definitions.equation(part)
    cuts = () if equation is None else cuts_of(equation)
    return cuts[0] if len(cuts) == 1 and not cuts[0].makes else None
