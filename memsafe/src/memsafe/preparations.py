"""Equivalent programs: rewritten for slices, or with values computed again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from memsafe.budget import has_host_memory
from memsafe.graph import Graph
from memsafe.jax_internals import under_named_axes
from memsafe.rewrites import (
    Rewritten,
    checkpointed_loops,
    has_loops_to_cut,
    offloaded,
    recomputed,
    segmented_loops,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jax import Device
    from jax.extend.core import ClosedJaxpr

    from memsafe.options import Known, Options
    from memsafe.shards import Parts

__all__ = ["checkpointed_steps", "deepest", "for_slices", "recomputing"]

_LOOPS = (*((1, 2 ** (-step / 2)) for step in range(1, 8)), (1, 0.0), (2, 0.0))
"""How often loops are computed again for gradients, and the share that they keep; least first.

From one share to the next, recomputation grows by at most 0.21 of a forward pass.
"""

_LOOPS_OF_A_STEP = ((1, 0.5), (1, 0.0), (2, 0.0))
"""`_LOOPS` for steps of loops over slices. Steps are many, and each takes 0.1 s to trace."""

_DEEPEST = 3
"""How often loops are computed again if all else is refused.

The gradient of 60 steps of a wave, each of which keeps three cubes, takes 0.29 of its memory with
two levels, and 0.22 with three. The predicted times are 1.23 and 1.50 times its own (CPU, jax
0.10.2, 2026-11-30).
"""

_SEGMENTS = ((2, 1), (3, 1), (4, 1), (6, 1), (8, 1), (16, 1), (4, 2), (4, 4))
"""Number of segments of a forward pass, and of parts in each segment; least work first.

A residual network in 2, 3, 4 and 8 segments takes 0.74, 0.51, 0.40 and 0.28 of its memory, for
1.10, 1.18, 1.23 and 1.29 times its operations. In 4 segments of 2 and of 4 parts it takes 0.23 and
0.20, for 1.41 and 1.49 times (16 blocks, compiled for an H100, jax 0.10.2, 2026-11-26).
"""

_KEEPING = (4, 16)
"""Number of segments of a forward pass if products are kept.

A decoder of 8 layers takes 0.61 of its memory in 4 segments and 0.66 in 16, for 1.01 times its
operations. A ResNet of 18 layers takes 0.83 in 4, and 1.05 in 16 (compiled for an H100, jax 0.10.2,
2026-11-26).
"""

_KEPT_ON_HOST = (1, 2, 4, 8)
"""Lengths of segments in steps: one carry of each is on the host, the others are computed again."""


def for_slices(
    options: Options, closed: ClosedJaxpr, platform: str, known: Known | None = None
) -> list[Rewritten]:
    """The forms of a program for slices: rewritten; with rewrites that take work; loops in pairs.

    Later forms are left out if they equal the first. If loops stay in pairs, a step of a loop over
    slices may compute again what its own loops keep. Rewrites in `known` are not done again, and
    others are added to it.
    """
    known = {} if known is None else known
    ways = [options.prepared, options.prepared_at_last]
    if "checkpoints" in options.rewrites and has_loops_to_cut(closed):
        ways.append(options.prepared_as_written)
    first, *others = (way(closed, platform, known) for way in ways)
    return [first, *(each for each in others if each.notes != first.notes)]


_LARGE = 0.5
"""Share of the room above which no whole value is kept for the gradient: no two of them fit."""


def recomputing(
    options: Options,
    closed: ClosedJaxpr,
    device: Device,
    parts: tuple[Parts, ...] = (),
    room: float = float("inf"),
    known: Known | None = None,
) -> Iterator[Rewritten]:
    """`closed` with values computed again for gradients; of each kind, the least work first.

    `parts` says how the arguments lie over several devices. `room` is the bytes that one device has
    beside the arguments. `known` is as in `for_slices`.

    First, loops are computed again; then what is outside of loops; then both. At last, what loops
    keep waits in the host's memory: of all steps, or of some steps with the others computed again.
    """
    first = again = options.prepared_as_written(closed, device.platform, known)
    if "checkpoints" in options.rewrites:
        ways = (checkpointed_loops(first.program, *each) for each in _LOOPS)
        for again in _after(first, ways):
            yield again
    # The zero of `hidden` differs between devices, and so would values that are equal on all.
    is_mapped = under_named_axes()
    if "segments" in options.rewrites:
        hidden = device.platform == "cpu" and not is_mapped
        for start in (first, again) if again is not first else (first,):
            size = Graph(start.program, parts).size.__getitem__
            most = _LARGE * room
            cut = partial(recomputed, start.program, hidden=hidden, size=size, most=most)
            yield from _after(start, (cut(each, products=True) for each in _KEEPING))
            yield from _after(start, (cut(*each) for each in _SEGMENTS))
    if "offload" in options.rewrites and has_host_memory(device) and not is_mapped:
        ways = (segmented_loops(first.program, length) for length in _KEPT_ON_HOST)
        for start in (first, *_after(first, ways)):
            yield from _after(start, [offloaded(start.program)])


def deepest(
    options: Options, closed: ClosedJaxpr, device: Device, known: Known | None = None
) -> Iterator[Rewritten]:
    """`closed` with loops computed again more often than in `recomputing`; `known` is as there."""
    if "checkpoints" in options.rewrites:
        first = options.prepared_as_written(closed, device.platform, known)
        yield from _after(first, [checkpointed_loops(first.program, _DEEPEST)])


def checkpointed_steps(step: ClosedJaxpr) -> Iterator[Rewritten]:
    """A step of a loop that computes again what its own loops keep; the least work comes first."""
    if has_loops_to_cut(step):
        ways = (checkpointed_loops(step, *each) for each in _LOOPS_OF_A_STEP)
        yield from _after(Rewritten(program=step, notes=()), ways)


def _after(first: Rewritten, ways: Iterable[Rewritten]) -> Iterator[Rewritten]:
    """The rewrites `ways` of `first` that change anything, with the notes of `first` put first."""
    seen = {first.notes}
    for way in ways:
        if (notes := (*first.notes, *way.notes)) not in seen:
            seen.add(notes)
            yield replace(way, notes=notes)
