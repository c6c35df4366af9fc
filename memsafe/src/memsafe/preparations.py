"""Programs that compute the same: rewritten for slices, or with values computed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsafe.jax_internals import under_named_axes
from memsafe.rewrites import checkpointed_loops, recomputed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jax.extend.core import ClosedJaxpr

    from memsafe.options import Options

__all__ = ["Preparation", "for_slices", "recomputing"]

_LOOPS = (*((1, 2 ** (-step / 2)) for step in range(1, 8)), (1, 0.0), (2, 0.0))
"""How often loops are computed again for gradients, and the share that they keep; least first.

From one share to the next, what is computed again grows by at most 0.21 of a forward pass.
"""

_SEGMENTS = (3, 4, 6, 8, 12, 16)
"""Into how many segments a forward pass is cut.

Two keep as much as one: while the first is computed again, what was kept of the second is not gone
(1.00 of a ResNet's memory, and 0.57, 0.46, 0.37 and 0.30 with 3, 4, 6 and 8 segments: CPU, jax
0.10.2, 2026-11-25).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A program that computes the same.

    Attributes:
        program: The program.
        notes: What was rewritten.
    """

    program: ClosedJaxpr
    notes: tuple[str, ...]


def for_slices(options: Options, closed: ClosedJaxpr, platform: str) -> list[Preparation]:
    """The program as it is sliced; then rewritten by what takes work, where that changes it."""
    found: dict[tuple[str, ...], Preparation] = {}
    for rewritten in (options.prepared, options.prepared_at_last):
        program, notes = rewritten(closed, platform)
        found.setdefault(notes, Preparation(program=program, notes=notes))
    return list(found.values())


def recomputing(options: Options, first: Preparation, platform: str) -> Iterator[Preparation]:
    """`first` with values computed again for gradients, the least operations and bytes kept first.

    Loops first; then what is outside of them; then both.
    """
    loops, seen = first, {first.notes}
    for levels, share in _LOOPS if "checkpoints" in options.rewrites else ():
        again = checkpointed_loops(first.program, levels, share)
        if (notes := (*first.notes, *again.notes)) not in seen:
            seen.add(notes)
            loops = Preparation(program=again.program, notes=notes)
            yield loops
    starts = (first,) if loops is first else (first, loops)
    # The unknown zero differs between devices, and so would what is the same on all of them.
    hidden = platform == "cpu" and not under_named_axes()
    for start in starts if "segments" in options.rewrites else ():
        for count in _SEGMENTS:
            again = recomputed(start.program, count, hidden=hidden)
            if (notes := (*start.notes, *again.notes)) not in seen:
                seen.add(notes)
                yield Preparation(program=again.program, notes=notes)
