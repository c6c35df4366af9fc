"""What a pass gives back: the program, and what it changed."""

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
        program: What it is now; the one that came in, where nothing changed.
        notes: One line per change, with the user's source line.
        moved: Bytes that it sends to the host's memory and fetches back.
        products: Products are kept, and what comes of them is computed again.
        across: Its loops may run along what lies over several devices.
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
        replacement: Computes it.
        note: The line that tells the user; empty for a part of what another line tells.
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
    """`text` after the user's line that made `equation`, where it is known."""
    line = source_line(equation)
    return f"{line}: {text}" if line else text
