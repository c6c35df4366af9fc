"""Reductions in pieces of kept dimensions, or of reduced ones, merged by the same operation."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array, lax

from memsafe.factors import Axis, Piece, Rule
from memsafe.merges import MAX, MIN, SUM, Monoid
from memsafe.rules import reductions, rule_of

from .pieces import assert_pieces_give_the_whole, last_equation

pytestmark = pytest.mark.exhaustive

NUMBERS = {
    "reduce_sum": lax.reduce_sum,
    "reduce_prod": lax.reduce_prod,
    "reduce_max": lax.reduce_max,
    "reduce_min": lax.reduce_min,
}
BITS = {
    "reduce_and": lax.reduce_and,
    "reduce_or": lax.reduce_or,
    "reduce_xor": lax.reduce_xor,
}
ROWS = [((0,), (0,), False), ((1,), (None,), True)]
DTYPES = (
    jnp.float32, jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float8_e5m2,
    jnp.int8, jnp.int32, jnp.uint8, jnp.uint32,
)  # fmt: skip
PAIRS = [(name, dtype) for name in NUMBERS for dtype in DTYPES] + [
    (name, dtype) for name in BITS for dtype in (jnp.bool_, jnp.int8, jnp.uint32)
]


def named(value: Any) -> str:
    return value if isinstance(value, str) else np.dtype(value).name


def drawn(dtype: Any) -> Array:
    """Negative numbers if the type has any, so that a zero in place of a neutral element fails."""
    values = np.random.default_rng(0).integers(1, 4, (3, 6))
    if jnp.issubdtype(dtype, jnp.unsignedinteger) or dtype == jnp.bool_:
        return jnp.asarray(values % 2 if dtype == jnp.bool_ else values).astype(dtype)
    return jnp.asarray(-values).astype(dtype)


@pytest.mark.parametrize(("name", "dtype"), PAIRS, ids=named)
def test_pieces_of_every_reduction_of_every_type_give_the_whole(name: str, dtype: Any) -> None:
    reduction: Callable[..., Array] = {**NUMBERS, **BITS}[name]
    assert_pieces_give_the_whole(lambda x: reduction(x, (1,)), drawn(dtype), expect=ROWS)


def test_every_reduction_rule_is_tested() -> None:
    assert reductions.RULES.keys() == {"reduce", *NUMBERS, *BITS}


def test_of_an_operation_of_ones_own_the_kept_dimensions_are_apart() -> None:
    def furthest(x: Array, at: Array) -> tuple[Array, Array]:
        def further(one: Any, other: Any) -> tuple[Array, Array]:
            is_first = abs(one[0]) >= abs(other[0])
            return tuple(jnp.where(is_first, *pair) for pair in zip(one, other, strict=True))

        return lax.reduce((x, at), (jnp.float32(0), jnp.int32(-1)), further, (1,))

    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 6, 4))).astype(jnp.float32)
    at = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    rows = [((dim, dim, None, None), (place, place), False) for dim, place in ((0, 0), (2, 1))]
    assert_pieces_give_the_whole(furthest, x, at, expect=rows, primitive="reduce")


@pytest.mark.parametrize("name", NUMBERS)
def test_pieces_of_doubles_give_the_whole(name: str) -> None:
    with jax.enable_x64(new_val=True):
        x = jnp.linspace(0.1, 0.9, 12, dtype=jnp.float64).reshape(3, 4)
        assert_pieces_give_the_whole(lambda x: NUMBERS[name](x, (1,)), x, expect=ROWS, rounds=True)


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_prod"])
def test_pieces_of_complex_numbers_give_the_whole(name: str) -> None:
    x = drawn(jnp.float32) + 1j
    assert_pieces_give_the_whole(lambda x: NUMBERS[name](x, (1,)), x, expect=ROWS, rounds=True)


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_complex_numbers_have_no_least_one_to_begin_with(name: str) -> None:
    equation = last_equation(lambda x: NUMBERS[name](x, (1,)), drawn(jnp.float32)).equation
    complex_aval = equation.invars[0].aval.update(dtype=jnp.dtype(jnp.complex64))
    operand = type(equation.invars[0])(complex_aval)
    (kept,) = reductions.RULES[name].factors(equation.replace(invars=[operand]))
    assert kept.merge is None


ODD = [
    [jnp.nan, 1.0, 2.0, -jnp.inf],
    [jnp.inf, -jnp.inf, 1.0, 2.0],
    [-jnp.inf, -jnp.inf, -jnp.inf, -jnp.inf],
    [jnp.inf, jnp.inf, jnp.inf, jnp.inf],
    [-1.0, 2.0, jnp.inf, 0.0],
]


@pytest.mark.parametrize("name", NUMBERS)
def test_nan_and_infinities_come_through_as_from_the_whole(name: str) -> None:
    x = jnp.asarray(ODD)
    assert_pieces_give_the_whole(lambda x: NUMBERS[name](x, (1,)), x, expect=ROWS)


@settings(max_examples=12, derandomize=True)
@given(
    shape=st.lists(st.integers(1, 6), max_size=3),
    name=st.sampled_from(sorted(NUMBERS)),
    data=st.data(),
)
def test_pieces_of_any_reduction_give_the_whole(
    shape: list[int], name: str, data: st.DataObject
) -> None:
    dims = range(len(shape))
    axes = data.draw(st.sets(st.sampled_from(dims))) if shape else set()
    kept = [dim for dim in dims if dim not in axes]
    expect = [
        ((dim,), (None if dim in axes else kept.index(dim),), dim in axes)
        for dim in dims
        if shape[dim] > 1
    ]
    x = jnp.asarray(np.random.default_rng(0).integers(1, 4, shape)).astype(jnp.float32)

    def reduced(x: Array) -> Array:
        params = {"axes": tuple(sorted(axes)), "out_sharding": None}
        return getattr(lax, f"{name}_p").bind(x, **params)

    assert_pieces_give_the_whole(reduced, x, expect=expect)


def test_pieces_of_half_precision_add_up_in_single_precision() -> None:
    """In float16, 2048 + 1 is 2048, so a sum of ones, added one by one, stops there."""
    ones = jnp.ones(4096, jnp.float16)
    equation = last_equation(lambda x: lax.reduce_sum(x, (0,)), ones).equation
    (factor,) = reductions.RULES["reduce_sum"].factors(equation)
    assert factor.merge is not None
    merge = factor.merge

    def step(index: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        part = merge.part(equation, factor, [ones[:1]], Piece(start=index, length=1))
        return merge.combine(state, part, first=index == 0)

    state = lax.fori_loop(0, 4096, step, merge.start(equation))
    (total,) = merge.finish(equation, state, [None])
    assert (total.dtype, float(total)) == (jnp.float16, 4096.0)


def test_a_reduction_that_says_where_its_result_lies_stays_whole() -> None:
    equation = last_equation(lambda x: lax.reduce_sum(x, (1,)), jnp.ones((3, 4))).equation
    rule = rule_of(equation)
    assert rule is not None
    assert (
        rule.factors(equation.replace(params={**equation.params, "out_sharding": object()})) == ()
    )


class _BlindToBlocks(Monoid):
    def part(self, equation: Any, factor: Any, operands: Any, piece: Any) -> tuple[Array, ...]:
        fine = replace(factor, operands=(Axis(factor.operands[0].dim),))
        return SUM.part(equation, fine, operands, piece)


class _MasksTooMuch(Monoid):
    def part(self, equation: Any, factor: Any, operands: Any, piece: Any) -> tuple[Array, ...]:
        beyond = None if piece.counted is None else piece.counted + 1
        return SUM.part(equation, factor, operands, replace(piece, counted=beyond))


ADDING: dict[str, Any] = {"combined": SUM.combined, "neutral": SUM.neutral, "rounds": SUM.rounds}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("reduce_max", replace(MAX, combined=lax.add)),
        ("reduce_max", replace(MAX, neutral=MIN.neutral)),
        ("reduce_max", replace(MAX, neutral=SUM.neutral)),
        ("reduce_max", MIN),
        ("reduce_sum", _BlindToBlocks(**ADDING)),
        ("reduce_sum", _MasksTooMuch(**ADDING)),
    ],
    ids=["added", "starts at the top", "starts at zero", "least", "blind to blocks", "too much"],
)
def test_a_wrong_merge_is_caught(name: str, wrong: Any) -> None:
    right = reductions.RULES[name]

    def factors(equation: Any) -> Any:
        return tuple(
            replace(factor, merge=factor.merge and wrong) for factor in right.factors(equation)
        )

    def whole(x: Array) -> Array:
        return NUMBERS[name](x, (1,))

    assert_pieces_give_the_whole(whole, drawn(jnp.float32), expect=ROWS)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_pieces_give_the_whole(
            whole,
            drawn(jnp.float32),
            expect=ROWS,
            rule=Rule(factors=factors, apply=right.apply),
        )
