"""Large arrays keep their separate dimensions, bit for bit the same."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsafe.rewrites import redundant, reshape_sinking
from memsafe.rewrites.groups import merging
from tests.memsafe.rewrites.reading import largest, names, program, reshapes, same_bits

pytestmark = pytest.mark.exhaustive

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 3, 8, 4)).astype(np.float32)
Q, K, V = RANDOM.standard_normal((3, 2, 3, 8, 4)).astype(np.float32)


def assert_bits_kept(function: Any, *arguments: Any) -> Any:
    before = program(function, *arguments)
    after = reshape_sinking(before)
    assert same_bits(before, after.program, *arguments)
    assert bool(after.notes) == (after.program is not before)
    assert no_more_large_reshapes(before, after.program)
    return before, after.program


def no_more_large_reshapes(before: Any, after: Any) -> Any:
    ours, theirs = reshapes(after), reshapes(before)
    smallest = min(theirs, default=0)
    return sum(ours) <= sum(theirs) and (sum(size >= smallest for size in ours) <= len(theirs))


def merged(*arrays: Any) -> Any:
    return [x.reshape(-1, *x.shape[2:]) for x in arrays]


def attention(q: Any, k: Any, v: Any) -> Any:
    q, k, v = merged(q, k, v)
    scores = q @ k.transpose(0, 2, 1) / 2.0
    mask = jnp.tril(jnp.ones((8, 8), bool))
    return (jax.nn.softmax(jnp.where(mask, scores, -1e9)) @ v).reshape(2, 3, 8, 4)


def test_attention_on_merged_heads_is_attention_on_separate_ones() -> None:
    before, after = assert_bits_kept(attention, Q, K, V)
    assert largest(before) == (6, 8, 8)
    assert largest(after) == (2, 3, 8, 8)
    assert reshapes(after) == []


def test_softmax_of_merged_scores_runs_on_separate_ones() -> None:
    scores = RANDOM.standard_normal((2, 3, 8, 8)).astype(np.float32)
    _, after = assert_bits_kept(lambda x: jax.nn.softmax(x.reshape(6, 8, 8)), scores)
    assert names(after)[-1] == "reshape"
    assert reshapes(after) == [scores.size]


def gradient(*arrays: Any) -> Any:
    return jax.grad(lambda *arrays: jnp.sum(attention(*arrays) ** 2), (0, 1, 2))(*arrays)


def test_the_gradient_of_attention_keeps_its_heads_apart() -> None:
    before = redundant(program(gradient, Q, K, V)).program
    after = reshape_sinking(before).program
    assert same_bits(before, after, Q, K, V)
    assert no_more_large_reshapes(before, after)
    shapes = {out.aval.shape for equation in after.jaxpr.eqns for out in equation.outvars}
    assert (2, 3, 8, 8) in shapes
    assert (6, 8, 8) not in shapes


SUNK = {
    "elementwise": lambda x: jnp.exp(x.reshape(6, 8, 4)),
    "two operands": lambda x: x.reshape(6, 8, 4) * jnp.sin(x).reshape(6, 8, 4),
    "a scalar": lambda x: x.reshape(6, 8, 4) * 2.0,
    "a broadcast scalar": lambda x: x.reshape(6, 8, 4) * jnp.full((6, 8, 4), x[0, 0, 0, 0]),
    "a row": lambda x: x.reshape(6, 8, 4) + jnp.arange(4.0),
    "a condition": lambda x: jnp.where((y := x.reshape(6, 32)) > 0, y, jnp.exp(y)),
    "another type": lambda x: x.reshape(48, 4).astype(np.int32) + 1,
    "a transpose": lambda x: jnp.exp(x.reshape(6, 8, 4)).transpose(2, 0, 1),
    "a reduction": lambda x: jnp.sum(jnp.exp(x.reshape(6, 8, 4)), 2),
    "a reduction over the merged": lambda x: jnp.max(jnp.exp(x.reshape(6, 8, 4)), 0),
    "a dimension of one left out": lambda x: jnp.exp(x[:, :1].reshape(2, 8, 4)),
    "a free dimension": lambda x: jnp.exp(x).reshape(48, 4) @ x[0, 0, :4, :2],
    "kept sums": lambda x: (y := x.reshape(6, 8, 4)) / jnp.sum(y, -1, keepdims=True),
}


@pytest.mark.parametrize("function", SUNK.values(), ids=SUNK.keys())
def test_a_reshape_moves_past(function: Any) -> None:
    before, after = assert_bits_kept(function, X)
    assert before is not after
    left = names(after)
    assert "reshape" not in left or left.index("reshape") > names(before).index("reshape")


def test_the_same_reshape_on_both_sides_leaves_none() -> None:
    _, after = assert_bits_kept(lambda x: jnp.exp(x.reshape(6, 8, 4)).reshape(2, 3, 8, 4), X)
    assert names(after) == ["exp"]


STAYS = {
    "is summed over by a product": lambda x: jax.lax.dot_general(
        x[..., 0, :2].reshape(6, 2), x[..., 1, :2].reshape(6, 2), (((0,), (0,)), ((), ()))
    ),
    "inserts a dimension that a broadcast lacks": lambda x: (
        x.reshape(6, 8, 4).reshape(6, 1, 8, 4) + jnp.broadcast_to(x[:1, :1], (6, 1, 8, 4))
    ),
    "gives a larger array": lambda x: jnp.exp(x).reshape(48, 4) @ x[0, 0].T,
    "splits": lambda x: jnp.exp(x.reshape(2, 3, 2, 4, 4)),
    "mixes": lambda x: jnp.exp(x.reshape(4, 3, 4, 4)),
    "another merge beside it": lambda x: (
        x.reshape(6, 8, 4) + x.transpose(1, 0, 2, 3).reshape(6, 8, 4)[::-1]
    ),
    "a sum over the merged": lambda x: jnp.sum(x.reshape(6, 8, 4), 0),
    "a product over the merged": lambda x: x.reshape(6, 32) @ x.reshape(32, 6),
    "order along the merged": lambda x: jnp.cumsum(x.reshape(6, 8, 4), 0),
    "a barrier": lambda x: jax.lax.optimization_barrier(x.reshape(6, 8, 4)),
    "more reshapes after": lambda x: (
        jnp.cumsum(jnp.sin(y := x.reshape(6, 8, 4)), 0)
        + jnp.cumsum(jnp.cos(y), 0)
        + jnp.cumsum(y, 0)
    ),
}


@pytest.mark.parametrize("function", STAYS.values(), ids=STAYS.keys())
def test_a_reshape_stays_where_it(function: Any) -> None:
    before, after = assert_bits_kept(function, X)
    assert after is before


def test_a_reshape_of_a_broadcast_scalar_is_a_broadcast() -> None:
    def function(x: Any) -> Any:
        return jnp.broadcast_to(x[0, 0, 0, 0], (6, 4)).reshape(24) * 2

    _, after = assert_bits_kept(function, X)
    assert "reshape" not in names(after)


def test_two_groups_of_equations_are_judged_each_by_itself() -> None:
    def function(x: Any) -> Any:
        y, z = x.reshape(6, 8, 4), jnp.tan(x).reshape(6, 32)
        return jnp.exp(y), jnp.cumsum(jnp.sin(z), 0), jnp.cumsum(jnp.cos(z), 0)

    before, after = assert_bits_kept(function, X)
    shapes = {eqn.primitive.name: eqn.outvars[0].aval.shape for eqn in after.jaxpr.eqns}
    assert shapes["exp"] == X.shape
    assert shapes["sin"] == (6, 32)
    assert len(reshapes(after)) == len(reshapes(before))


def test_more_small_reshapes_than_before_are_not_paid_for_by_a_large_one() -> None:
    def function(x: Any, weights: Any) -> Any:
        sums = jnp.sum(x.reshape(6, 8, 4) * weights.reshape(6, 8)[..., None], -1)
        return [jnp.cumsum(change(sums), 0) for change in (jnp.sin, jnp.cos, jnp.tan)]

    before, after = assert_bits_kept(function, X, X[..., 0])
    assert after is before


def test_a_factor_read_both_ways_is_not_reshaped_twice() -> None:
    def function(x: Any) -> Any:
        factor = x[0, 0, :4, :2]
        return x.reshape(48, 4) @ factor, jnp.cumsum(jnp.sin(factor), 0)

    _, after = assert_bits_kept(function, X)
    assert sorted(reshapes(after)) == [8, 96]


def test_the_note_has_the_line_of_the_reshape() -> None:
    (note,) = reshape_sinking(program(SUNK["elementwise"], X)).notes
    place, text = note.split(": ", 1)
    assert "test_reshape_sinking.py:" in place
    assert text == "reshape of [2, 3, 8, 4] to [6, 8, 4] moved past equations: 1"


@pytest.mark.parametrize(
    ("separate", "joined", "groups"),
    [
        ((2, 3, 4), (6, 4), ((2, 3), (4,))),
        ((2, 1, 4), (2, 4), ((2,), (1, 4))),
        ((2, 4, 1), (2, 4), ((2,), (4, 1))),
        ((2, 4), (2, 1, 4), ((2,), (), (4,))),
        ((1, 4), (1, 4), ((1,), (4,))),
        ((6, 4), (2, 3, 4), None),
        ((4, 6), (6, 4), None),
        ((0, 2), (0,), None),
        ((1,), (), None),
    ],
)
def test_a_merge_has_groups_and_anything_else_has_none(
    separate: Any, joined: Any, groups: Any
) -> None:
    assert merging(separate, joined) == groups


SHAPES = [
    (2, 3, 8, 4),
    (6, 8, 4),
    (2, 24, 4),
    (48, 4),
    (2, 3, 32),
    (2, 1, 3, 8, 4),
    (6, 32),
    (192,),
]
OPERATIONS = {
    "sin": lambda x, _: jnp.sin(x),
    "add": lambda x, y: x + y.reshape(x.shape),
    "double": lambda x, _: x * 2,
    "turn": lambda x, _: x.T.reshape(X.shape),
    "softmax": lambda x, _: jax.nn.softmax(x, -1),
    "gram": lambda x, _: (x[..., None] * x[..., None, :]).sum(-1),
    "cumsum": lambda x, _: jnp.cumsum(x, 0),
    "center": lambda x, _: x - x.max(0, keepdims=True),
}


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(OPERATIONS)),
            st.sampled_from(SHAPES),
            st.integers(0, 5),
            st.integers(0, 5),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_program_keeps_its_bits_and_gains_no_large_reshape(operations: Any) -> None:
    def function(x: Any) -> Any:
        values = [x]
        for name, shape, of, other in operations:
            value = values[of % len(values)].reshape(shape)
            values.append(OPERATIONS[name](value, values[other % len(values)]))
        return values[-2:]

    assert_bits_kept(function, X)


def test_a_thousand_equations_take_less_than_ten_seconds() -> None:
    def long(x: Any) -> Any:
        for _ in range(250):
            x = jnp.sin(x.reshape(6, 8, 4) * 2).reshape(2, 3, 8, 4)
        return x

    before = program(long, X)
    assert len(before.jaxpr.eqns) == 1000
    start = time.perf_counter()
    after = reshape_sinking(before).program
    assert time.perf_counter() - start < 10
    assert reshapes(after) == []
