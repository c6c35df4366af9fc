"""Primitives that move elements: which dimension of the result each dimension becomes."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax import Array, lax

from memsafe.factors import Axis, Factor, Rule
from memsafe.rules import rule_of, shapes

from .pieces import (
    assert_pieces_give_the_whole,
    assert_stays_whole,
    last_equation,
)

pytestmark = pytest.mark.exhaustive

CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], list[Any]]] = {
    "broadcast_in_dim: of a scalar": (
        lambda: lax.broadcast_in_dim(3.0, (4, 2), ()),
        (),
        [((None,), (0,), False), ((None,), (1,), False)],
    ),
    "broadcast_in_dim: stretches and adds": (
        lambda x: lax.broadcast_in_dim(x, (3, 2, 4), (1, 2)),
        ((1, 4),),
        [((None,), (0,), False), ((None,), (1,), False), ((1,), (2,), False)],
    ),
    "reshape: merges": (lambda x: lax.reshape(x, (12,)), ((4, 3),), [((0,), ((0, 3),), False)]),
    "reshape: parts": (lambda x: lax.reshape(x, (4, 3)), ((12,),), [(((0, 3),), (0,), False)]),
    "reshape: merges beside others": (
        lambda x: lax.reshape(x, (3, 8, 5)),
        ((3, 4, 2, 5),),
        [((0,), (0,), False), ((1,), ((1, 2),), False), ((3,), (2,), False)],
    ),
    "reshape: regroups what is contiguous": (
        lambda x: lax.reshape(x, (3, 8)),
        ((6, 4),),
        [(((0, 2),), (0,), False)],
    ),
    "reshape: regroups blocks on both sides": (
        lambda x: lax.reshape(x, (4, 9)),
        ((6, 6),),
        [(((0, 3),), ((0, 2),), False)],
    ),
    "reshape: regroups nothing contiguous": (lambda x: lax.reshape(x, (3, 2)), ((2, 3),), []),
    "reshape: around ones": (
        lambda x: lax.reshape(x, (1, 4, 1, 3)),
        ((4, 1, 3, 1),),
        [((0,), (1,), False), ((2,), (3,), False)],
    ),
    "squeeze": (
        lambda x: lax.squeeze(x, (0, 2)),
        ((1, 4, 1, 2),),
        [((1,), (0,), False), ((3,), (1,), False)],
    ),
    "transpose": (
        lambda x: lax.transpose(x, (2, 0, 1)),
        ((4, 3, 2),),
        [((0,), (1,), False), ((1,), (2,), False), ((2,), (0,), False)],
    ),
    "iota": (
        lambda: lax.broadcasted_iota(jnp.int8, (3, 300), 1),
        (),
        [((), (0,), False), ((), (1,), False)],
    ),
    "iota: of a float that rounds": (
        lambda: lax.iota(jnp.bfloat16, 520),
        (),
        [((), (0,), False)],
    ),
    "concatenate": (
        lambda x, y: lax.concatenate([x, y, x], 1),
        ((4, 2), (4, 3)),
        [((0, 0, 0), (0,), False), ((None, None, None), (1,), False)],
    ),
    "pad": (
        lambda x: lax.pad(x, 7.0, ((0, 0, 0), (1, -1, 0), (0, 0, 1))),
        ((4, 3, 2),),
        [
            ((0, None), (0,), False),
            ((None, None), (1,), False),
            ((2, None), ((2, 2),), False),
        ],
    ),
    "slice": (
        lambda x: lax.slice(x, (0, 1, 0), (4, 3, 3), (1, 1, 2)),
        ((4, 3, 3),),
        [((0,), (0,), False), ((None,), (1,), False), ((None,), (2,), False)],
    ),
    "rev": (lambda x: lax.rev(x, (1,)), ((4, 3),), [((0,), (0,), False)]),
    "split": (
        lambda x: lax.split(x, (1, 2), 1),
        ((4, 3, 2),),
        [((0,), (0, 0), False), ((2,), (2, 2), False)],
    ),
    "stack": (
        lambda x, y: jnp.stack([x, y], axis=1),
        ((4, 3), (4, 3)),
        [((0, 0), (0,), False), ((1, 1), (2,), False)],
    ),
    "stack: last": (
        lambda x, y: jnp.stack([x, y], axis=-1),
        ((4, 3), (4, 3)),
        [((0, 0), (0,), False), ((1, 1), (1,), False)],
    ),
    "unstack": (
        lambda x: jnp.unstack(x, axis=1),
        ((4, 2, 3),),
        [((0,), (0, 0), False), ((2,), (1, 1), False)],
    ),
    "tile": (lambda x: jnp.tile(x, (1, 2)), ((4, 3),), [((0,), (0,), False)]),
}
"""A function, its arguments' shapes and its last equation's factors."""


@pytest.mark.parametrize("case", CASES)
def test_pieces_of_what_moves_elements_give_the_whole(case: str) -> None:
    function, operands, expect = CASES[case]
    arguments = [numbered(shape) for shape in operands]
    assert_pieces_give_the_whole(function, *arguments, expect=expect, primitive=primitive_of(case))


def test_every_shape_rule_is_tested() -> None:
    assert {primitive_of(case) for case in CASES} == shapes.RULES.keys()


def primitive_of(case: str) -> str:
    return case.partition(":")[0]


def test_keys_move_piece_by_piece() -> None:
    keys = jax.random.split(jax.random.key(0), (4, 3))
    assert_pieces_give_the_whole(
        lambda x: lax.reshape(x, (12,)), keys, expect=[((0,), ((0, 3),), False)]
    )


SIZES = st.lists(st.integers(1, 6), min_size=0, max_size=3)


@st.composite
def factorings(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes with the same number of elements."""
    primes = draw(st.lists(st.sampled_from((1, 2, 2, 3)), max_size=5))
    return tuple(_grouped(draw, primes)), tuple(_grouped(draw, draw(st.permutations(primes))))


def _grouped(draw: st.DrawFn, primes: list[int]) -> list[int]:
    cuts = sorted(draw(st.sets(st.integers(0, len(primes)))) | {0, len(primes)})
    return [math.prod(primes[start:end]) for start, end in itertools.pairwise(cuts)]


@settings(max_examples=12, derandomize=True)
@given(shapes_=factorings())
def test_pieces_of_any_reshape_give_the_whole(
    shapes_: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    before, after = shapes_
    x = numbered(before)

    def reshaped(x: Array) -> Array:
        return lax.reshape_p.bind(x, new_sizes=after, dimensions=None, sharding=None)

    assert_pieces_give_the_whole(reshaped, x, expect=_contiguous(before, after))


def _contiguous(before: tuple[int, ...], after: tuple[int, ...]) -> list[Any]:
    """Pairs of axes whose pieces hold the same elements, each with the most pieces; by trial."""
    finest: dict[tuple[int, int], tuple[Any, int]] = {}
    where = [np.arange(math.prod(shape)).reshape(shape) for shape in (before, after)]
    for one, other in itertools.product(range(len(before)), range(len(after))):
        for size in range(2, min(before[one], after[other]) + 1):
            if before[one] % size or after[other] % size:
                continue
            cuts = [np.split(at, size, dim) for at, dim in zip(where, (one, other), strict=True)]
            if all(np.array_equal(a.ravel(), b.ravel()) for a, b in zip(*cuts, strict=True)):
                axes = ((one, before[one] // size),), ((other, after[other] // size),), False
                finest[one, other] = (axes, size)
    return [axes for axes, _ in finest.values()]


@settings(max_examples=10, derandomize=True)
@given(data=st.data(), shape=SIZES)
def test_pieces_of_any_transpose_give_the_whole(data: st.DataObject, shape: list[int]) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    expect = [((dim,), (to,), False) for to, dim in enumerate(order) if shape[dim] > 1]

    def transposed(x: Array) -> Array:
        return lax.transpose_p.bind(x, permutation=tuple(order))

    assert_pieces_give_the_whole(transposed, numbered(tuple(shape)), expect=expect)


@settings(max_examples=10, derandomize=True)
@given(data=st.data(), shape=SIZES)
def test_pieces_of_any_broadcast_give_the_whole(data: st.DataObject, shape: list[int]) -> None:
    dims = sorted(data.draw(st.permutations(range(len(shape))))[: data.draw(st.integers(0, 3))])
    stretched = data.draw(st.sets(st.sampled_from(dims))) if dims else set()
    operand = tuple(1 if dim in stretched else shape[dim] for dim in dims)
    assume(operand != tuple(shape))  # jax traces no equation of it
    kept = {dim: at for at, dim in enumerate(dims) if operand[at] == shape[dim]}
    expect = [((kept.get(dim),), (dim,), False) for dim, size in enumerate(shape) if size > 1]

    def broadcast(x: Array) -> Array:
        return lax.broadcast_in_dim_p.bind(
            x, shape=tuple(shape), broadcast_dimensions=tuple(dims), sharding=None
        )

    assert_pieces_give_the_whole(broadcast, numbered(operand), expect=expect)


@pytest.mark.parametrize(
    ("function", "param", "asked"),
    [
        (lambda x: lax.reshape(x, (12,)), "sharding", object()),
        (lambda x: lax.reshape(x, (12,)), "dimensions", (1, 0)),
        (lambda x: lax.broadcast_in_dim(x, (2, 4, 3), (1, 2)), "sharding", object()),
        (lambda x: lax.iota(jnp.float32, 4) + x[:, 0], "sharding", object()),
    ],
    ids=["placed_reshape", "reordering_reshape", "placed_broadcast", "placed_iota"],
)
def test_what_asks_for_more_than_a_shape_stays_whole(
    function: Callable[[Array], Array], param: str, asked: object
) -> None:
    name = jax.make_jaxpr(function)(numbered((4, 3))).jaxpr.eqns[0].primitive.name
    equation = last_equation(function, numbered((4, 3)), primitive=name).equation
    rule = rule_of(equation)
    assert rule is not None
    assert rule.factors(equation)
    assert rule.factors(equation.replace(params={**equation.params, param: asked})) == ()


def test_an_array_without_elements_is_not_reshaped_in_pieces() -> None:
    assert_stays_whole(lambda x: lax.reshape(x, (0, 2)), jnp.ones((4, 0)))


def test_a_reshape_along_what_is_not_contiguous_is_caught() -> None:
    wrong = Factor(size=2, operands=(Axis(1, 2),), results=(Axis(1, 4),))
    with pytest.raises(AssertionError, match="Mismatched"):
        assert_pieces_give_the_whole(
            lambda x: lax.reshape(x, (2, 8)),
            numbered((4, 4)),
            expect=[(((1, 2),), ((1, 4),), False)],
            rule=Rule(factors=lambda _: (wrong,), apply=shapes.RULES["reshape"].apply),
        )


@pytest.mark.parametrize("dtype", [jnp.int4, jnp.uint8, jnp.float16, jnp.complex64])
def test_pieces_of_an_iota_past_the_end_of_its_type_give_the_whole(dtype: Any) -> None:
    assert_pieces_give_the_whole(lambda: lax.iota(dtype, 300), expect=[((), (0,), False)])


def test_an_iota_of_tiny_floats_is_not_counted_in_pieces() -> None:
    assert_pieces_give_the_whole(
        lambda: lax.broadcasted_iota(jnp.float8_e4m3fn, (3, 20), 1), expect=[((), (0,), False)]
    )


def test_an_iota_that_forgets_where_its_piece_starts_is_caught() -> None:
    right = shapes.RULES["iota"]
    wrong = Rule(factors=right.factors, apply=shapes.RULES["broadcast_in_dim"].apply)
    expect = [((), (0,), False)]
    assert_pieces_give_the_whole(lambda: lax.iota(jnp.int32, 6), expect=expect, rule=right)
    with pytest.raises(AssertionError, match="Mismatched"):
        assert_pieces_give_the_whole(lambda: lax.iota(jnp.int32, 6), expect=expect, rule=wrong)


def numbered(shape: tuple[int, ...]) -> Array:
    return jnp.arange(math.prod(shape), dtype=jnp.float32).reshape(shape)
