"""A way to compute a program: which values are never kept, and the loops that follow from it."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from memsafe.graph import Graph
from memsafe.memory import Unit, Usage, usage
from memsafe.region import Blocked, Region, bits
from memsafe.region_costs import region_work, total
from memsafe.splitting import Splitting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax.extend.core import Var

    from memsafe.factors import Factor
    from memsafe.ties import Tie

__all__ = [
    "Candidate",
    "Obstacle",
    "Tangled",
    "candidate",
    "usage_of",
    "wanted_from",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a value had to be kept.

    Attributes:
        value: The value.
        equation: The index of the equation that stood in the way.
        why: What is wrong with it.
    """

    value: Var
    equation: int
    why: str


@dataclass(slots=True, kw_only=True)
class Candidate:
    """Loops for the values of `split`, and the equations outside of loops, in a valid order.

    Attributes:
        graph: The program.
        split: The values that exist only in slices.
        regions: The loops.
        order: Indices of equations computed whole, and regions, in the order in which they run.
        obstacles: Why values of `split` had to be kept.
        work: Work of all equations, recomputation included; see `Costs.works`.
        in_slices: The part of `work` that reads and writes elements of slices.
        traffic: Bytes that it reads and writes in memory.
    """

    graph: Graph
    split: set[Var]
    regions: list[Region]
    order: list[int | Region]
    obstacles: list[Obstacle]
    work: float = field(default=0)
    in_slices: float = field(default=0)
    traffic: float = field(default=0)

    def reads(self, item: int | Region) -> list[Var]:
        """What an equation or a loop reads."""
        return _reads(self.graph, item)

    @property
    def in_loops(self) -> int:
        """Number of equations in its loops, counted once for each loop and axis."""
        return sum(len(one.versions(at)) for one in self.regions for at in one.factors)

    def wanted(self) -> set[Var]:
        """The values that some item reads, or the program returns."""
        read = {value for item in self.order for value in self.reads(item)}
        return read | self.graph.outputs


class Tangled(Exception):
    """Too many rounds meet values that cannot be split: their loops are not worth it."""


def candidate(
    graph: Graph, split: set[Var], way: int | None = None, patience: float = float("inf")
) -> Candidate:
    """The candidate that keeps no value of `split`, except where an obstacle forces it.

    `way` limits how much a loop takes in to be shared, see `Splitting`. Raises Tangled if obstacles
    require more than `patience` rounds.
    """
    obstacles: list[Obstacle] = []
    split = split - graph.unread  # If these were split, no loop would run their equations.
    rounds = 0
    while True:
        rounds += 1
        if rounds > patience:
            raise Tangled
        splitting = Splitting(graph, split, way)
        regions, found = _cover(splitting)
        found = found or _untied(splitting, regions)
        if not found:
            break
        obstacles += found
        for obstacle in found:
            split.difference_update(graph.equations[graph.definition[obstacle.value]].outvars)
    order = _ordered(graph, splitting, regions)

    def sum_of(each: Sequence[float]) -> float:
        whole = sum(each[item] for item in order if not isinstance(item, Region))
        return whole + sum(total(each, region) for region in regions)

    return Candidate(
        graph=graph,
        split=split,
        regions=regions,
        order=order,
        obstacles=obstacles,
        work=sum_of(graph.costs.works),
        in_slices=sum(total(graph.costs.elementwise, region) for region in regions),
        traffic=sum_of(graph.costs.traffic),
    )


def usage_of(each: Candidate) -> Usage:
    """The memory in use while each item of a candidate runs."""
    wanted, graph = each.wanted(), each.graph
    units = []
    for item in each.order:
        if isinstance(item, Region):
            made = [v for _, values in wanted_from(item, graph, wanted) for v in values]
            units.append(Unit(reads=tuple(item.inputs(graph)), makes=tuple(made)))
        else:
            units.append(graph.units[item])
    return usage(units, graph.size.__getitem__, graph.outputs)


def wanted_from(region: Region, graph: Graph, wanted: set[Var]) -> list[tuple[int, list[Var]]]:
    """The equations whose results leave a loop, and which of their results do."""
    found = []
    for index in bits(region.owned):
        leaving = [value for value in graph.equations[index].outvars if value in wanted]
        if leaving:
            found.append((index, leaving))
    return found


def _untied(splitting: Splitting, regions: Sequence[Region]) -> list[Obstacle]:
    """Values to keep because a loop would compare them with something made of them elsewhere.

    The derivative of a maximum asks which elements equal the maximum. If the elements are computed
    again and rounded in another way, none does.
    """
    found = []
    for tie in splitting.graph.ties:
        value = tie.value
        if value not in splitting.split:
            continue
        for region in regions:
            if tie.comparison in region.factors and not _is_whole(splitting, region, tie):
                why = "it is compared with what another loop makes of it"
                found.append(Obstacle(value=value, equation=tie.comparison, why=why))
                break
    return found


def _is_whole(splitting: Splitting, region: Region, tie: Tie) -> bool:
    """Whether the loop that compares a value also makes the value and what it is compared with."""
    graph = splitting.graph
    return all(
        index in region.factors
        and index not in region.again
        and (region.owned >> index & 1 or set(graph.equations[index].outvars) <= splitting.split)
        for index in tie.between
    )


def _cover(splitting: Splitting) -> tuple[list[Region], list[Obstacle]]:
    """Regions for all sinks, and the values to keep for the sinks without a region."""
    regions: list[Region] = []
    obstacles: list[Obstacle] = []
    todo = splitting.sinks()
    while todo:
        sink, *rest = todo
        region, blocked = _best(splitting, sink, rest)
        if region is None:
            obstacles += _cheapest(splitting, sink, blocked)
            todo = rest
            continue
        splitting.close(region)
        regions.append(region)
        todo = [each for each in rest if each not in region.factors]
    return regions, obstacles


def _best(
    splitting: Splitting, sink: int, later: Sequence[int]
) -> tuple[Region | None, list[Blocked]]:
    """The best region for `sink` and the later sinks that can share it; and the obstacles met."""
    best, best_score, blocked = None, None, []
    for factor in splitting.seeds(sink):
        try:
            region = splitting.grown(sink, factor)
        except Blocked as obstacle:
            blocked.append(obstacle)
            continue
        complete = splitting.merge(region, [each for each in later if each not in region.factors])
        score = _score(splitting.graph, region, factor)
        if best_score is None or score > best_score:
            best, best_score = region, score
        if complete and factor.merge is None:
            break  # No other loop shares more; the outermost dimension comes first.
    return best, blocked


def _score(graph: Graph, region: Region, factor: Factor) -> tuple[float, ...]:
    """The score of a region: more sinks, fewer bytes merged, less work, then an outer dimension.

    Slices of an outer dimension lie together in memory. A slice that is too large is split again
    along an inner dimension.
    """
    merged = sum(
        graph.size[value]
        for index, each in region.factors.items()
        if each.merge is not None
        for value in graph.equations[index].outvars
    )
    dimension = min(axis.dim for axis in factor.operands if axis is not None)
    return (len(region.sinks), -merged, -region_work(graph, region), -dimension)


def _cheapest(splitting: Splitting, sink: int, blocked: Sequence[Blocked]) -> list[Obstacle]:
    """The smallest set of values whose keeping removes an obstacle."""
    graph = splitting.graph
    own = [value for value in dict.fromkeys(graph.reads[sink]) if value in splitting.split]
    why, at = _no_factor(graph, sink), sink
    if blocked:
        why, at = blocked[0].why, blocked[0].equation
    choices = [
        [Obstacle(value=each.value, equation=each.equation, why=each.why)]
        for each in blocked
        if each.value is not None
    ]
    choices.append([Obstacle(value=value, equation=at, why=why) for value in own])
    return min(choices, key=lambda group: sum(graph.size[each.value] for each in group))


def _no_factor(graph: Graph, sink: int) -> str:
    return f"{graph.equations[sink].primitive.name} cannot be split along any dimension of it"


def _ordered(graph: Graph, splitting: Splitting, regions: list[Region]) -> list[int | Region]:
    """Loops and whole equations, each after all that it reads, close to the program's order."""
    looped = {index: region for region in regions for index in bits(region.owned)}
    items: list[int | Region] = [
        index
        for index, equation in enumerate(graph.equations)
        if index not in looped and not any(value in splitting.split for value in equation.outvars)
    ]
    items += regions
    maker: dict[int, int] = {}
    for number, item in enumerate(items):
        made = bits(item.owned) if isinstance(item, Region) else [item]
        maker.update(dict.fromkeys(made, number))
    needs = [
        {
            maker[graph.definition[value]]
            for value in _reads(graph, item)
            if value in graph.definition
        }
        for item in items
    ]
    for before, after in pairwise(sorted(graph.ordered)):
        needs[maker[after]].add(maker[before])
    places = [i.owned.bit_length() - 0.5 if isinstance(i, Region) else float(i) for i in items]
    return [items[number] for number in _sorted(needs, places)]


def _reads(graph: Graph, item: int | Region) -> list[Var]:
    if isinstance(item, Region):
        return item.inputs(graph)
    return list(graph.reads[item])


def _sorted(needs: list[set[int]], places: list[float]) -> list[int]:
    """Numbers in an order where each follows its needs; of those ready, the lowest place first."""
    followers: list[list[int]] = [[] for _ in needs]
    missing = [len(before) for before in needs]
    for number, before in enumerate(needs):
        for other in before:
            followers[other].append(number)
    ready = [(places[number], number) for number, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    done: list[int] = []
    while ready:
        _, number = heapq.heappop(ready)
        done.append(number)
        for other in followers[number]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (places[other], other))
    if len(done) != len(needs):
        raise AssertionError("got loops that need each other; wanted an order among them")
    return done
