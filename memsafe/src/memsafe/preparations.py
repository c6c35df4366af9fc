"""Programs that compute the same: rewritten for slices, or with values computed again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from memsafe.budget import has_host_memory
from memsafe.graph import Graph
from memsafe.jax_internals import under_named_axes
from memsafe.rewrites import checkpointed_loops, offloaded, recomputed, segmented_loops

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jax import Device
    from jax.extend.core import ClosedJaxpr

    from memsafe.options import Options
    from memsafe.rewrites import Rewritten
    from memsafe.shards import Parts

__all__ = ["for_slices", "recomputing"]

_LOOPS = (*((1, 2 ** (-step / 2)) for step in range(1, 8)), (1, 0.0), (2, 0.0))
"""How often loops are computed again for gradients, and the share that they keep; least first.

From one share to the next, what is computed again grows by at most 0.21 of a forward pass.
"""

_SEGMENTS = (3, 4, 6, 8, 12, 16)
"""Into how many segments a forward pass is cut.

Of a ResNet's memory, 3, 4, 6 and 8 segments keep 0.51, 0.41, 0.41 and 0.41 (8 blocks, compiled for
an H100, jax 0.10.2, 2026-11-25). Two keep 0.72, and are not tried.
"""

_KEPT_ON_HOST = (1, 2, 4, 8)
"""Of how many steps one carry is sent to the host, where the others are computed again."""


def for_slices(options: Options, closed: ClosedJaxpr, platform: str) -> list[Rewritten]:
    """The program as it is sliced; then rewritten by what takes work, where that changes it."""
    first, last = (ways(closed, platform) for ways in (options.prepared, options.prepared_at_last))
    return [first] if first.notes == last.notes else [first, last]


_LARGE = 0.5
"""The share of the budget above which no value waits for the gradient: no two of them fit."""


def recomputing(
    options: Options,
    closed: ClosedJaxpr,
    device: Device,
    parts: tuple[Parts, ...] = (),
    room: float = float("inf"),
) -> Iterator[Rewritten]:
    """`closed` with values computed again for gradients, the least operations and bytes kept first.

    `parts` says how the arguments lie over several devices, `room` the bytes of one beside them.

    Loops first; then what is outside of them; then both. At last what loops keep waits in the
    host's memory: of all steps, or of some of them where the others are computed again.
    """
    first = again = options.prepared_as_written(closed, device.platform)
    if "checkpoints" in options.rewrites:
        ways = (checkpointed_loops(first.program, *each) for each in _LOOPS)
        for again in _after(first, ways):
            yield again
    # The unknown zero differs between devices, and so would what is the same on all of them.
    is_mapped = under_named_axes()
    if "segments" in options.rewrites:
        hidden = device.platform == "cpu" and not is_mapped
        for start in (first, again) if again is not first else (first,):
            size = Graph(start.program, parts).size.__getitem__
            most = _LARGE * room
            cut = partial(recomputed, start.program, hidden=hidden, size=size, most=most)
            ways = (cut(count) for count in _SEGMENTS)
            yield from _after(start, ways)
    if "offload" in options.rewrites and has_host_memory(device) and not is_mapped:
        ways = (segmented_loops(first.program, length) for length in _KEPT_ON_HOST)
        for start in (first, *_after(first, ways)):
            yield from _after(start, [offloaded(start.program)])


def _after(first: Rewritten, ways: Iterable[Rewritten]) -> Iterator[Rewritten]:
    """`first`, rewritten once more in each of these ways that changes anything."""
    seen = {first.notes}
    for way in ways:
        if (notes := (*first.notes, *way.notes)) not in seen:
            seen.add(notes)
            yield replace(way, notes=notes)
