"""The result of a pass: the program, and notes on what changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsafe.jax_internals import source_line
from memsafe.programs import retraced

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Replacement

__all__ = ["Change", "Rewritten", "applied", "noted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A program after a pass.

    Attributes:
        program: The program after the pass; the given program if nothing changed.
        notes: One line per change, with the user's source line.
        moved: Bytes that the program sends to host memory and fetches back.
        products: Whether products are kept, and values computed from them are computed again.
        across: Whether loops may run along dimensions that are divided over several devices.
    """

    program: ClosedJaxpr
    notes: tuple[str, ...]
    moved: int = 0
    products: bool = False
    across: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Another way to compute one equation.

    Attributes:
        replacement: Computes the results of the equation.
        note: The line for the user; empty if the line of another change covers this one.
    """

    replacement: Replacement
    note: str


def applied(closed: ClosedJaxpr, changes: Mapping[int, Change]) -> Rewritten:
    """`closed` with each change made to the equation of its index."""
    if not changes:
        return Rewritten(program=closed, notes=())
    program = retraced(closed, {index: change.replacement for index, change in changes.items()})
    notes = (changes[index].note for index in sorted(changes))
    return Rewritten(program=program, notes=tuple(note for note in notes if note))


def noted(equation: JaxprEqn, text: str) -> str:
    """`text` after the user's source line of `equation`, if that line is known."""
    line = source_line(equation)
    return f"{line}: {text}" if line else text
