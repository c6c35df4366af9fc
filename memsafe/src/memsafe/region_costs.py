"""Costs of a loop: bytes of a slice, and operations of its slices and steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memsafe.costs import SOLVE_CALL
from memsafe.jax_internals import aval_of
from memsafe.memory import usage
from memsafe.programs import nbytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax.extend.core import Var

    from memsafe.graph import Graph
    from memsafe.memory import Unit
    from memsafe.region import Region

__all__ = [
    "fixed_share",
    "halo_work",
    "overhead",
    "region_work",
    "reread_bytes",
    "slice_bytes",
    "step_work",
    "total",
]


def slice_bytes(graph: Graph, region: Region, length: int) -> float:
    """Bytes alive at once in a slice of `length` indices."""
    if length not in region.slices:
        region.slices[length] = _slice_bytes(graph, region, length)
    return region.slices[length]


def _slice_bytes(graph: Graph, region: Region, length: int) -> float:
    size, axes = graph.size, region.axes

    times = {
        v: 1 + len(more) for at, more in region.again.items() for v in graph.equations[at].outvars
    }

    def sliced(value: Var) -> float:
        share = 1.0
        if value in axes:
            share = axes[value].width(length) / aval_of(value).shape[axes[value].dim]
        return size[value] * share * times.get(value, 1)

    units = [_sliced_unit(graph, region, index, length) for index in sorted(region.factors)]
    kept = [v for index in region.sinks for v in graph.equations[index].outvars]
    return usage(units, sliced, kept).peak().nbytes


def _sliced_unit(graph: Graph, region: Region, index: int, length: int) -> Unit:
    """An equation on a slice; a library holds bytes in proportion to the slice of the image."""
    unit = graph.units[index]
    axis = region.factors[index].operands[0] if unit.held else None
    if axis is None:
        return unit
    image = aval_of(graph.equations[index].invars[0])
    return replace(unit, held=unit.held * axis.width(length) / image.shape[axis.dim])


def halo_work(graph: Graph, region: Region) -> float:
    """Operations that each slice repeats because of its halos."""
    found = 0.0
    for index in region.factors if graph.has_stencils else ():
        for factor in region.versions(index):
            halo = max((axis.halo for axis in factor.results if axis is not None), default=0.0)
            found += graph.costs.works[index] * halo / region.size
    return found


def reread_bytes(graph: Graph, region: Region) -> float:
    """Bytes of whole operands that every slice reads again, such as those of products."""
    found = 0.0
    for index, factor in region.factors.items():
        equation = graph.equations[index]
        if not graph.units[index].absorbs:
            pairs = zip(equation.invars, factor.operands, strict=True)
            found += sum(nbytes(atom) for atom, axis in pairs if axis is None)
    return found


def step_work(graph: Graph, region: Region) -> float:
    """What each step of a loop costs in addition to its slice, in operations."""
    waits = sum(
        graph.equations[index].primitive.name == "triangular_solve" and factor.operands[0] is None
        for index in region.factors
        for factor in region.versions(index)
    )
    model = graph.model
    begun = model.step + model.kernel * total(graph.costs.kernels, region)
    again = max(model.byte, 1.0) * reread_bytes(graph, region) + halo_work(graph, region)
    return begun + SOLVE_CALL * waits + again


def fixed_share(graph: Graph, region: Region) -> float:
    """Fixed cost of a slice (halos, kernels, steps of scans) as a share of the work of the loop."""
    fixed = halo_work(graph, region) + overhead(graph, region)
    return fixed / max(region_work(graph, region), 1.0)


def region_work(graph: Graph, region: Region) -> float:
    """Work of a loop without its halos."""
    return total(graph.costs.works, region)


def overhead(graph: Graph, region: Region) -> float:
    """Cost of starting the kernels of one slice and the steps of its scans."""
    return total(graph.costs.overheads, region)


def total(each: Sequence[float], region: Region) -> float:
    """The sum of `each` over a loop's equations, once for each factor they are computed along."""
    once = sum(map(each.__getitem__, region.factors))
    return once + sum(each[index] * len(more) for index, more in region.again.items())
