"""A loop rejects a sink before it grows only if growing to this sink would fail."""

import contextlib
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array, lax

from memsafe.factors import Axis, Factor
from memsafe.feasibility import Feasibility
from memsafe.graph import Graph
from memsafe.programs import flattened
from memsafe.region import Blocked, Region, TilingMismatch
from memsafe.splitting import Splitting
from tests.memsafe.random_programs import numbered

pytestmark = pytest.mark.exhaustive

SEEDS = 20
ROWS = Axis(0)
SQUARE = jax.ShapeDtypeStruct((8, 8), jnp.float32)


def three_sums(x: Array) -> tuple[Array, Array, Array]:
    y = jnp.exp(x)
    return y.sum(1), lax.sort(y, dimension=0).sum(1), (y * y).sum(1)


def shared(x: Array) -> tuple[Array, Array, Array]:
    y = jnp.exp(x)
    total = y.sum(1)
    kept = y * lax.broadcast_in_dim(total, (8, 8), (0,))
    return total, kept, (y * kept).sum(1)


def by_rows(splitting: Splitting, sink: int) -> tuple[Region, Feasibility]:
    region = splitting.grown(sink, splitting.seeds(sink)[0])
    return region, Feasibility(splitting=splitting, region=region)


def test_a_sink_that_needs_rows_of_sorted_columns_is_turned_away() -> None:
    graph = Graph(jax.make_jaxpr(three_sums)(SQUARE))
    split = {value for value in graph.definition if value not in graph.outputs}
    splitting = Splitting(graph, split)
    first, of_sorted, of_squares = splitting.sinks()
    region, feasibility = by_rows(splitting, first)
    rows = splitting.seeds(of_sorted)[0]
    assert not feasibility.may_take(of_sorted, rows)
    assert feasibility.hopeless == {(graph.equations[of_sorted].invars[0], ROWS)}
    with pytest.raises(Blocked):
        splitting.extend(region, of_sorted, rows)
    assert feasibility.may_take(of_squares, splitting.seeds(of_squares)[0])
    splitting.extend(region, of_squares, splitting.seeds(of_squares)[0])


@pytest.mark.parametrize("has_another_way", [False, True])
def test_a_sink_is_turned_away_for_good_only_where_there_is_no_other_way(
    *, has_another_way: bool
) -> None:
    graph = Graph(jax.make_jaxpr(shared)(SQUARE))
    first, kept, last = (graph.definition[value] for value in graph.closed.jaxpr.outvars)
    by_row, _ = graph.factors[kept]
    whole = replace(by_row, operands=(None, ROWS))  # Needs all of a value that is never whole.
    graph.factors[kept] = (whole, by_row) if has_another_way else (whole,)
    splitting = Splitting(graph, {v for v in graph.definition if v not in graph.outputs})
    region, feasibility = by_rows(splitting, first)
    rows = splitting.seeds(last)[0]
    assert feasibility.may_take(last, rows) == has_another_way
    with pytest.raises(Blocked):
        splitting.extend(region, last, rows)
    if has_another_way:
        splitting.extend(region, kept, by_row)
        assert feasibility.may_take(last, rows)
        splitting.extend(region, last, rows)


def split_at_random(seed: int) -> Splitting:
    """Splitting of a random program's gradient; the larger half of its values is never kept."""
    program = numbered(seed)
    derivative = jax.value_and_grad(program.loss, (0, 1, 2))
    graph = Graph(flattened(jax.make_jaxpr(derivative)(*program.arguments())))
    large = statistics.median(graph.size.values())
    return Splitting(
        graph,
        {
            value
            for equation in graph.equations
            if graph.outputs.isdisjoint(equation.outvars)
            and max(graph.size[value] for value in equation.outvars) >= large
            for value in equation.outvars
        },
    )


def grows(splitting: Splitting, region: Region, sink: int, factor: Factor) -> bool:
    try:
        splitting.extend(region, sink, factor)
    except (Blocked, TilingMismatch):
        return False
    return True


def asked(splitting: Splitting, region: Region) -> Iterator[tuple[bool, bool]]:
    """For each sink and factor in order: whether it is admitted, and whether `region` takes it."""
    feasibility = Feasibility(splitting=splitting, region=region)
    for sink in splitting.sinks():
        for finest in splitting.seeds(sink):
            if finest.size % region.size == 0:
                factor = finest.coarser(finest.size // region.size)
                whole = dict(splitting.ways(sink, region.size)).get(factor)
                is_possible = whole is not None and not any(
                    splitting.above[index] & region.owned for index in whole
                )
                let_through = is_possible and feasibility.may_take(sink, factor)
                yield let_through, grows(splitting, region, sink, factor)


def test_what_is_turned_away_could_not_have_grown() -> None:
    found: Counter[tuple[bool, bool]] = Counter()
    for seed in range(SEEDS):
        splitting = split_at_random(seed)
        for sink in splitting.sinks():
            for factor in splitting.seeds(sink):
                with contextlib.suppress(Blocked):
                    found.update(asked(splitting, splitting.grown(sink, factor)))
    assert found[False, False] > SEEDS  # Many are rejected,
    assert found[True, True] > SEEDS  # and many taken in,
    assert not found[False, True]  # but none of those that were rejected.


def test_a_loop_that_grows_leaves_the_next_one_from_its_sink_as_it_was() -> None:
    splitting = split_at_random(0)
    sinks = splitting.sinks()
    shared = 0
    for sink in sinks:
        for factor in splitting.seeds(sink):
            with contextlib.suppress(Blocked):
                first, second = splitting.grown(sink, factor), splitting.grown(sink, factor)
                assert first == second
                splitting.merge(first, [each for each in sinks if each != sink])
                shared += first != second
                assert second == splitting.grown(sink, factor)
    assert shared


def ways_of(splitting: Splitting) -> Any:
    """The ways to take each sink into a loop, for the size of each of its factors."""
    return {
        (sink, factor.size): splitting.ways(sink, factor.size)
        for sink in splitting.sinks()
        for factor in splitting.seeds(sink)
    }


def ways_kept_from_another(seed: int, seen: Callable[[Splitting], None]) -> bool:
    """Whether ways that another splitting left in the graph's cache equal those found without it.

    `seen` changes each splitting first.
    """
    before = split_at_random(seed)
    graph = before.graph
    makers = {graph.definition[value] for value in before.split}
    fewer = {value for at in sorted(makers)[::2] for value in graph.equations[at].outvars}
    after, alone = Splitting(graph, fewer), Splitting(graph, fewer)
    for splitting in (before, after, alone):
        seen(splitting)
    ways_of(before)
    found = ways_of(after)
    graph.ways.clear()
    return bool(found == ways_of(alone))


def test_ways_into_a_loop_are_kept_by_all_that_decides_them() -> None:
    assert all(ways_kept_from_another(seed, lambda _: None) for seed in range(SEEDS))


def test_the_control_ways_kept_by_less_are_those_of_other_loops() -> None:
    def forget(splitting: Splitting) -> None:
        splitting.cones = [0] * len(splitting.cones)

    assert not all(ways_kept_from_another(seed, forget) for seed in range(SEEDS))
