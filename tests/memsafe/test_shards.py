"""How values lie over devices: each device counts once, whichever dimensions lie over it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.extend.core import ClosedJaxpr
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from memsafe.factors import Axis, Piece
from memsafe.graph import Graph
from memsafe.over_devices import OverDevices
from memsafe.programs import evaluate, flattened
from memsafe.rules import factors_of
from memsafe.shards import Part, gathered, input_parts, padded_first

ROWS, COLUMNS = 8, 16
AXES = {"a": 2, "b": 4}


def differences(x: Array, y: Array) -> Array:
    return x[:, None] - y[None, :]


def program(function: Callable[..., Any] = differences, *sizes: int) -> ClosedJaxpr:
    shapes = [jax.ShapeDtypeStruct((size,), np.float32) for size in sizes or (ROWS, COLUMNS)]
    return jax.make_jaxpr(function)(*shapes)


def along(*axes: Any) -> NamedSharding:
    mesh = AbstractMesh(tuple(AXES.values()), tuple(AXES), axis_types=(AxisType.Auto,) * len(AXES))
    return NamedSharding(mesh, PartitionSpec(*axes))


def result_of(*places: NamedSharding) -> tuple[tuple[Part, ...], int]:
    """How the result of `differences` lies, and its bytes on one device."""
    closed = program()
    parts = tuple(
        input_parts(place, value.aval.shape)
        for place, value in zip(places, closed.jaxpr.invars, strict=True)
    )
    graph = Graph(closed, parts)
    (result,) = closed.jaxpr.outvars
    return graph.divided.get(result, ()), graph.size[result]


WHOLE = 4 * ROWS * COLUMNS

LIES = {
    "two axes": ("a", "b", (Part(0, 2, ("a",)), Part(1, 4, ("b",))), WHOLE // 8),
    "one axis for both": ("b", "b", (Part(1, 4, ("b",)),), WHOLE // 4),
    "both axes for one": (("a", "b"), None, (Part(0, 8, ("a", "b")),), WHOLE // 8),
    "one of two shared": (("a", "b"), "b", (Part(1, 4, ("b",)),), WHOLE // 4),
    "one side": ("a", None, (Part(0, 2, ("a",)),), WHOLE // 2),
    "nowhere": (None, None, (), WHOLE),
}


@pytest.mark.parametrize(("rows", "columns", "parts", "nbytes"), LIES.values(), ids=LIES)
def test_each_device_counts_once(rows: Any, columns: Any, parts: Any, nbytes: int) -> None:
    assert result_of(along(rows), along(columns)) == (parts, nbytes)


def test_a_dimension_along_an_axis_of_one_device_is_whole() -> None:
    mesh = AbstractMesh((1,), ("a",), axis_types=(AxisType.Auto,))
    assert input_parts(NamedSharding(mesh, PartitionSpec("a")), (ROWS,)) == ()


def test_loops_run_over_the_side_that_is_gathered() -> None:
    closed = program()
    same = tuple(input_parts(along("b"), value.aval.shape) for value in closed.jaxpr.invars)
    assert [[each.size for each in one] for one in Graph(closed, same).factors][-1] == [ROWS]
    assert [[each.size for each in one] for one in Graph(closed).factors][-1] == [ROWS, COLUMNS]


def made_whole(function: Callable[..., Any], *axes: str | None) -> list[tuple[int, ...]]:
    """Shapes of the values that `gathered` makes whole on every device first."""
    after = gathered(program(function), [along(axis) for axis in axes])
    equations = [each for each in after.jaxpr.eqns if each.primitive.name == "sharding_constraint"]
    return [each.outvars[0].aval.shape for each in equations]


def test_the_smaller_side_is_made_whole_first() -> None:
    assert made_whole(differences, "b", "b") == [(ROWS, 1)]
    assert made_whole(lambda x, y: x[:, None] * y[None, :] @ jnp.ones((COLUMNS, 2)), "b", "b")
    assert made_whole(lambda x, y: jnp.outer(y, x), "b", "b") == [(1, ROWS)]


def test_nothing_is_moved_without_need() -> None:
    for axes in (("a", "b"), ("a", None), (None, None)):
        assert made_whole(differences, *axes) == []
    assert made_whole(lambda x, y: (jnp.tanh(x), y.sum()), "b", "b") == []


def test_what_a_scan_carries_lies_as_its_body_leaves_it_and_stacks_in_rows() -> None:
    def steps(x: Array) -> tuple[Array, Array]:
        def step(x: Array, _: None) -> tuple[Array, Array]:
            there = jax.device_put(x, jax.memory.Space.Host)
            return jax.lax.with_sharding_constraint(2 * x, along("a", "b")), there

        return jax.lax.scan(step, x, None, length=5)

    closed = jax.make_jaxpr(steps)(jax.ShapeDtypeStruct((ROWS, COLUMNS), np.float32))
    graph = Graph(closed, ((Part(0, 2, ("a",)),),))
    carried, stacked = closed.jaxpr.outvars
    asked = {"is_asked": True}
    assert graph.divided[carried] == (Part(0, 2, ("a",), **asked), Part(1, 4, ("b",), **asked))
    assert graph.divided[stacked] == (Part(1, 2, ("a",), **asked), Part(2, 4, ("b",), **asked))
    assert (graph.size[carried], graph.size[stacked]) == (WHOLE // 8, 0)  # Host memory counts 0.


def layer(x: Array, weights: Array, *, asked: bool) -> Array:
    x = jax.lax.with_sharding_constraint(x, along("b")) if asked else x
    return x @ weights


def divided_by(*, asked: bool) -> tuple[Part, ...]:
    """How a layer's result lies, if few rows and many weights lie over the same devices."""
    shapes = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((ROWS, 4), (4, 8 * ROWS)))
    closed = jax.make_jaxpr(partial(layer, asked=asked))(*shapes)
    places = ((Part(0, 4, ("b",)),), (Part(1, 4, ("b",)),))
    return Graph(closed, places).divided[closed.jaxpr.outvars[0]]


def test_a_constraint_counts_more_than_larger_weights() -> None:
    assert divided_by(asked=True) == (Part(0, 4, ("b",), is_asked=True),)
    assert divided_by(asked=False) == (Part(1, 4, ("b",)),)


B = (Part(0, 4, ("b",)),)
SUMS = {
    "looked up in a table, both over the same devices": (
        lambda table, at: table[at],
        (((64, 4), np.float32), ((8, 2), np.int32)),
        (B, B),
        B,
    ),
    "many weights, both over the same devices": (
        jnp.matmul,
        (((8, 4), np.float32), ((4, 64), np.float32)),
        (B, B),
        B,
    ),
    "looked up in a table over other devices": (
        lambda table, at: table[at],
        (((64, 4), np.float32), ((8, 2), np.int32)),
        ((Part(0, 2, ("a",)),), B),
        B,
    ),
    "a table alone over devices": (
        lambda table, at: table[at],
        (((64, 4), np.float32), ((8, 2), np.int32)),
        (B, ()),
        (),
    ),
    "weights alone over devices": (
        jnp.matmul,
        (((8, 4), np.float32), ((4, 64), np.float32)),
        ((), B),
        (),
    ),
}
"""Sums of values that lie over devices: function, shapes, places, and how the result lies."""


@pytest.mark.parametrize(("function", "shapes", "places", "parts"), SUMS.values(), ids=SUMS)
def test_a_sum_leaves_its_result_where_another_operand_divides_it(
    function: Any, shapes: Any, places: tuple[tuple[Part, ...], ...], parts: Any
) -> None:
    given = [jax.ShapeDtypeStruct(*each) for each in shapes]
    closed = flattened(jax.make_jaxpr(function)(*given))
    assert Graph(closed, places).divided.get(closed.jaxpr.outvars[0], ()) == parts


def test_what_moves_least_is_made_whole_for_a_sum() -> None:
    def product(rows: int, columns: int) -> list[tuple[int, ...]]:
        shapes = [jax.ShapeDtypeStruct(each, np.float32) for each in ((rows, 8), (8, columns))]
        closed = gathered(jax.make_jaxpr(jnp.matmul)(*shapes), [along("b")] * 2)
        placed = (each for each in closed.jaxpr.eqns if "constraint" in each.primitive.name)
        return [each.outvars[0].aval.shape for each in placed]

    assert product(4, 64) == [(4, 8)]  # Rows and sums: 128 + 1,024 bytes; weights: 2,048.
    assert product(32, 64) == [(8, 64)]  # Rows and sums: 1,024 + 8,192 bytes.


def stepped(x: Array, weights: Array, moments: Array) -> Array:
    slopes = jax.grad(lambda weights: jnp.sum((x @ weights) ** 2))(weights)
    return 0.9 * moments + slopes


def test_a_gradient_lies_as_the_optimiser_reads_it() -> None:
    shapes = [jax.ShapeDtypeStruct(size, np.float32) for size in ((ROWS, 4), (4, 8), (4, 8))]
    closed = flattened(jax.make_jaxpr(stepped)(*shapes))
    batch, moments = (Part(0, 4, ("b",)),), (Part(1, 4, ("b",)),)
    (slopes,) = [each for each in closed.jaxpr.eqns if each.primitive.name == "transpose"]
    assert Graph(closed, (batch, (), moments)).divided[slopes.outvars[0]] == moments
    assert slopes.outvars[0] not in Graph(closed, (batch, (), ())).divided


def test_a_constraint_is_sliced_on_each_device_along_what_it_divides() -> None:
    def place(x: Array) -> Array:
        return jax.lax.with_sharding_constraint(x, along("b"))

    (equation,) = jax.make_jaxpr(place)(np.zeros((ROWS, COLUMNS))).jaxpr.eqns
    found = [(factor.size, factor.devices) for factor in factors_of(equation)]
    assert found == [(ROWS, 4), (COLUMNS, 1)]


def test_arguments_and_results_count_as_on_one_device() -> None:
    closed = program(lambda x, y: (x, y.sum()))
    whole, divided = Graph(closed), Graph(closed, ((Part(0, 4, ("b",)),), (Part(0, 4, ("b",)),)))
    assert whole.floor == 4 * (2 * ROWS + COLUMNS + 1)
    assert divided.floor == 4 * (2 * ROWS + COLUMNS) // 4 + 4


def totals(x: Array, moments: Array) -> Array:
    """A sum of rows, from values that are made before the loop; divided moments are added to it."""
    start = jnp.broadcast_to(x.sum(), moments.shape), 0.0
    (slopes, last), _ = jax.lax.scan(lambda total, row: ((total[0] + row, row[0]), None), start, x)
    return 0.9 * moments + slopes + last


def test_what_a_loop_begins_with_lies_as_what_it_ends_with() -> None:
    shapes = [jax.ShapeDtypeStruct(size, np.float32) for size in ((ROWS, 4), (4,))]
    closed = flattened(jax.make_jaxpr(totals)(*shapes))
    start, *_ = [each for each in closed.jaxpr.eqns if each.primitive.name == "broadcast_in_dim"]
    moments = (Part(0, 4, ("b",)),)
    assert Graph(closed, ((), moments)).divided[start.outvars[0]] == moments
    assert start.outvars[0] not in Graph(closed, ((), ())).divided


def test_a_slice_over_devices_has_as_many_rows_of_each() -> None:
    axis, rows = Axis(0, devices=2), jnp.arange(12)
    piece = Piece(start=np.int32(4), length=4, size=12)
    assert piece.of(rows, axis).tolist() == [2, 3, 8, 9]
    put = piece.put(jnp.zeros(12, int), jnp.array([1, 2, 3, 4]), axis)
    assert put.tolist() == [0, 0, 1, 2, 0, 0, 0, 0, 3, 4, 0, 0]
    wide = Piece(start=np.int32(0), length=2, size=4).of(rows, Axis(0, block=3, devices=2))
    assert wide.tolist() == [0, 1, 2, 6, 7, 8]


def looped(places: tuple[tuple[Part, ...], ...], *, across: bool) -> list[tuple[int, int]]:
    """Number of indices and of devices of each factor of a product of a batch and weights."""
    shapes = [jax.ShapeDtypeStruct(size, np.float32) for size in ((ROWS, 4), (4, 6))]
    closed = jax.make_jaxpr(lambda x, weights: x @ weights)(*shapes)
    (factors,) = Graph(closed, places, across=across).factors
    return [(each.size, each.devices) for each in factors]


def test_loops_run_across_devices_only_where_they_are_asked_to() -> None:
    batch = ((Part(0, 4, ("b",)),), ())
    assert looped(batch, across=True) == [(ROWS, 4), (6, 1), (4, 1)]
    assert looped(batch, across=False) == [(6, 1), (4, 1)]


def test_a_state_of_each_device_is_merged_at_once_where_the_result_is_divided() -> None:
    shapes = [jax.ShapeDtypeStruct(size, np.float32) for size in ((ROWS, 4), (4, 8), (4, 8))]
    closed = flattened(jax.make_jaxpr(stepped)(*shapes))
    batch, moments = (Part(0, 4, ("b",)),), (Part(1, 4, ("b",)),)
    for places, early in (((batch, (), moments), {0}), ((batch, (), ()), set())):
        graph = Graph(closed, places, across=True)
        merges = [
            factor.merge
            for equation, factors in zip(graph.equations, graph.factors, strict=True)
            for factor in factors
            if equation.primitive.name == "dot_general" and factor.devices == 4
        ]
        assert [merge.early for merge in merges if isinstance(merge, OverDevices)] == [early]


@pytest.mark.parametrize("config", [(-1, 2, 1), (1, -3, 2), (-2, -1, 1), (-9, 9, 1)])
def test_what_is_padded_between_elements_is_cropped_afterwards(
    config: tuple[int, int, int],
) -> None:
    def padded(x: Array, y: Array) -> tuple[Array, Array]:
        def step(carry: Array, row: Array) -> tuple[Array, Array]:
            return carry, lax.pad(row + carry, 0.5, (config,))

        cropped_alone = lax.pad(x, 1.0, ((-1, 2, 0),))
        return cropped_alone, lax.scan(step, y, differences(x, y))[1]

    written = program(padded)
    again = padded_first(written)
    assert "(-1, 2, 0)" in str(again)  # Only this pad is left.
    assert str(config) in str(written)
    assert str(config) not in str(again)
    x, y = jnp.arange(1.0, ROWS + 1), jnp.arange(1.0, COLUMNS + 1)
    for got, wanted in zip(evaluate(again, (x, y)), evaluate(written, (x, y)), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_program_that_crops_nothing_between_elements_is_left() -> None:
    written = program(lambda x, y: lax.pad(differences(x, y), 0.0, ((-1, 0, 0), (2, 2, 1))))
    assert padded_first(written) is written
