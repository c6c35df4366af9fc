"""How long the slices of a loop are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsafe.region_costs import fixed_share, reread_bytes, slice_bytes

if TYPE_CHECKING:
    from memsafe.graph import Graph
    from memsafe.region import Region

__all__ = ["slice_length"]

_HALO = 8
"""Minimum work of a slice as a multiple of its fixed cost, where there is room."""

_FAR = 2
"""A slice over this multiple of the useful bytes is shortened: two indices predict it poorly."""


def slice_length(
    graph: Graph, region: Region, available: float, useful: float, *, fitting: bool
) -> int:
    """Number of indices of a slice that is as long as useful and fits.

    A slice may take `available` bytes; `useful` bytes keep the device busy. With `fitting`, the
    prediction for the slice itself keeps to `available`, not only that for a single index.
    """
    least = region.least
    one = slice_bytes(graph, region, least)
    room = max(available - one, 0.0)
    again = reread_bytes(graph, region)
    useful = max(min(useful, room), min(again / 4, room / 2), one / 32)
    more = slice_bytes(graph, region, 2 * least) - one
    if more <= 0 and region.size > least:  # What is fused may differ in slices so short.
        more = (slice_bytes(graph, region, region.size) - one) * least / (region.size - least)
    longer = _HALO * region.size * fixed_share(graph, region)
    useful = max(useful, min(room, longer * more / least))
    wished = least * (1 + useful / more) if more > 0 else region.size
    length = _length(graph, region, min(wished, region.size))
    taken = slice_bytes(graph, region, length) - one
    if taken > (max(room, useful) if fitting else _FAR * useful):
        wished = least + useful / taken * (length - least)
        length = _length(graph, region, wished)
    return length


def _length(graph: Graph, region: Region, wished: float) -> int:
    """About `wished` indices, equally many of each device where they lie over several."""
    devices, multiple = region.devices, graph.model.multiple
    size, least = region.size // devices, region.least // devices
    return devices * _rounded(size, least, int(wished) // devices, multiple)


def _rounded(size: int, least: int, wished: int, multiple: int) -> int:
    """About `wished` indices: a divisor of `size` where one is near, else a round number."""
    if wished >= size:
        return size
    near = [n for n in range(wished, max(least, wished // 2), -1) if size % n == 0]
    for length in near:
        if length % multiple == 0:
            return length
    if near:
        return near[0]
    return max(least, wished // multiple * multiple or wished)
