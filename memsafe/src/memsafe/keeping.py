"""Which values a plan keeps whole: the sizes to try, and what is worth keeping again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsafe.candidates import Tangled, candidate
from memsafe.jax_internals import aval_of
from memsafe.region import bits
from memsafe.splitting import Splitting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax.extend.core import Var

    from memsafe.candidates import Candidate
    from memsafe.graph import Graph

__all__ = ["recomputed_groups", "thresholds", "untangled", "values_above"]

_WORTH = 0.01
"""The smallest share of a program's operations that must be saved by keeping a group of values."""


_PATIENCE = 60_000
_LEAST_PATIENCE = 4
"""Limits for one candidate's loops: equations visited over all rounds; fewest rounds allowed.

A training step of a decoder of 16 layers took 1 round at 9 thresholds. Two small thresholds, whose
loops compute four times as much, took 80: 84 s each instead of 1 s (jax 0.10.2, 2026-11-25).
"""


def thresholds(graph: Graph, budget: float) -> list[int]:
    """Sizes in bytes of values that can be split, the largest first.

    Sizes below a thousandth of `budget` are left out, and sizes within a fifth are one.
    """
    sizes = {
        graph.size[v] for v in graph.definition if v not in graph.views and v not in graph.outputs
    }
    found: list[int] = []
    for size in sorted((size for size in sizes if size * 1000 > budget), reverse=True):
        if not found or size * 1.2 < found[-1]:
            found.append(size)
        else:
            found[-1] = size
    return found


def untangled(graph: Graph, threshold: int) -> Candidate | None:
    """The candidate that keeps no value of `threshold` bytes or more; None if it is `Tangled`."""
    patience = max(_PATIENCE // len(graph.equations), _LEAST_PATIENCE)
    try:
        return candidate(graph, values_above(graph, threshold), patience=patience)
    except Tangled:
        return None


def values_above(graph: Graph, threshold: int) -> set[Var]:
    """The values of at least `threshold` bytes: all results of an equation, or none."""
    found: set[Var] = set()
    kept = graph.outputs | graph.views.keys()
    for equation in graph.equations:
        large = any(graph.size[value] >= threshold for value in equation.outvars)
        if large and kept.isdisjoint(equation.outvars):
            found.update(equation.outvars)
    return found


def recomputed_groups(each: Candidate, room: float) -> list[set[Var]]:
    """Groups of values of one shape that several loops compute, in the order to keep them.

    The group that saves most operations per byte comes first. A group holds all results of its
    equations, takes at most `room` bytes and saves at least 1 % of the program's operations.
    """
    times: dict[Var, int] = {}
    for region in each.regions:
        for value in region.axes:
            if value in each.split:
                times[value] = times.get(value, 0) + 1
    groups: dict[tuple[object, ...], set[Var]] = {}
    for value, count in times.items():
        if count > 1:
            maker = each.graph.equations[each.graph.definition[value]]
            key = (each.graph.size[value], maker.primitive.name, aval_of(value).shape)
            groups.setdefault(key, set()).update(maker.outvars)
    graph, cones = each.graph, Splitting(each.graph, each.split).cones
    rated = [(_saved(graph, cones, group), group) for group in groups.values()]
    worthy = [
        (saved / nbytes, group)
        for (saved, nbytes), group in rated
        if nbytes <= room and saved >= _WORTH * graph.costs.work
    ]
    return [group for _, group in sorted(worthy, key=lambda pair: -pair[0])]


def _saved(graph: Graph, cones: Sequence[int], group: set[Var]) -> tuple[float, int]:
    """The operations that keeping `group` saves, and the bytes that keeping it takes."""
    works = graph.costs.works
    saved = sum(works[at] for value in group for at in bits(cones[graph.definition[value]]))
    return saved, max(sum(graph.size[value] for value in group), 1)
