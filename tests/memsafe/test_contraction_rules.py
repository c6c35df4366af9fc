"""`dot_general` in pieces of batch, free and contracted dimensions; sums have enough bits."""

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
from memsafe.merges import SUM, Monoid
from memsafe.rules import contractions, rule_of

from .pieces import assert_pieces_give_the_whole, last_equation

pytestmark = pytest.mark.exhaustive

RULE = contractions.RULES["dot_general"]
MATRICES = [((0, None), (0,), False), ((None, 1), (1,), False), ((1, 0), (None,), True)]
UNSUMMED = MATRICES[:2]
DTYPES = (
    jnp.float32, jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.complex64, jnp.int8, jnp.uint32,
)  # fmt: skip


def numbers(shape: tuple[int, ...], dtype: Any = jnp.float32, seed: int = 0) -> Array:
    """Small whole numbers, whose products and sums are exact."""
    drawn = np.random.default_rng(seed).integers(-3, 4, shape)
    return jnp.asarray(drawn).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_pieces_of_a_matrix_product_of_every_type_give_the_whole(dtype: Any) -> None:
    assert_pieces_give_the_whole(
        lax.dot, numbers((4, 6), dtype), numbers((6, 3), dtype, 1), expect=MATRICES
    )


def test_pieces_of_a_matrix_product_of_doubles_give_the_whole() -> None:
    with jax.enable_x64(new_val=True):
        x = jnp.linspace(0.1, 0.9, 24, dtype=jnp.float64).reshape(4, 6)
        assert_pieces_give_the_whole(lax.dot, x, jnp.sin(x.T), expect=MATRICES, rounds=True)


@st.composite
def products(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """Two shapes, and which of their dimensions are summed and which are batch dimensions."""
    kinds = draw(st.lists(st.sampled_from("bcrl"), max_size=5))
    sizes = [draw(st.integers(1, 4)) for _ in kinds]
    left = draw(st.permutations([at for at, kind in enumerate(kinds) if kind != "r"]))
    right = draw(st.permutations([at for at, kind in enumerate(kinds) if kind != "l"]))

    def dims(wanted: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        both = [at for at, kind in enumerate(kinds) if kind == wanted]
        return tuple(map(left.index, both)), tuple(map(right.index, both))

    shapes = tuple(sizes[at] for at in left), tuple(sizes[at] for at in right)
    return *shapes, (dims("c"), dims("b"))


@settings(max_examples=12, derandomize=True)
@given(product=products())
def test_pieces_of_any_product_give_the_whole(product: Any) -> None:
    left, right, dimension_numbers = product
    (left_summed, right_summed), (left_batch, right_batch) = dimension_numbers
    # Listed independently as einsum's letters, in the order of dot_general's result.
    letters = [
        *((one, other, False) for one, other in zip(left_batch, right_batch, strict=True)),
        *((dim, None, False) for dim in range(len(left)) if dim not in left_batch + left_summed),
        *((None, dim, False) for dim in range(len(right)) if dim not in right_batch + right_summed),
    ]
    expect = [
        ((one, other), (at,), merged)
        for at, (one, other, merged) in enumerate(letters)
        if (left[one] if one is not None else right[other]) > 1
    ] + [
        ((one, other), (None,), True)
        for one, other in zip(left_summed, right_summed, strict=True)
        if left[one] > 1
    ]
    assert_pieces_give_the_whole(
        lambda x, y: lax.dot_general(x, y, dimension_numbers),
        numbers(left),
        numbers(right, seed=1),
        expect=expect,
    )


def test_infinity_in_what_is_counted_makes_no_nan() -> None:
    x = numbers((2, 3)).at[0, 1].set(jnp.inf).at[1].set(2.0)
    y = jnp.ones((3, 2)).at[1, 0].set(-jnp.inf)
    assert_pieces_give_the_whole(lax.dot, x, y, expect=MATRICES)


def test_infinity_masked_in_one_operand_only_is_caught() -> None:
    x, y = numbers((2, 3)), jnp.ones((3, 2)).at[1].set(jnp.inf)
    assert_pieces_give_the_whole(lax.dot, jnp.abs(x) + 1, y, expect=MATRICES)
    with pytest.raises(AssertionError, match="nan"):
        assert_pieces_give_the_whole(
            lax.dot, jnp.abs(x) + 1, y, expect=MATRICES, rule=with_merge(_LeftOnly(**fields(SUM)))
        )


def test_pieces_of_half_precision_add_up_in_single_precision() -> None:
    """In bfloat16, 256 and 1 add to 256: adding ones one by one ends there."""
    ones = jnp.ones((1, 1024), jnp.bfloat16)
    equation = last_equation(lax.dot, ones, ones.T).equation
    (factor,) = [one for one in RULE.factors(equation) if one.merge]
    assert factor.merge is not None
    state = factor.merge.start(equation)
    for start in range(1024):
        piece = Piece(start=jnp.int32(start), length=1)
        part = factor.merge.part(equation, factor, [ones[:, :1], ones.T[:1]], piece)
        state = factor.merge.combine(state, part, first=jnp.bool_(start == 0))
    (total,) = factor.merge.finish(equation, state, [None, None])
    assert (total.dtype, float(total[0, 0])) == (jnp.bfloat16, 1024.0)


def test_a_product_of_booleans_is_not_summed_in_parts() -> None:
    x = jnp.ones((3, 3), bool)
    assert_pieces_give_the_whole(lax.dot, x, x, expect=UNSUMMED)


def test_an_asked_for_type_is_kept() -> None:
    assert_pieces_give_the_whole(
        lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32),
        jnp.full((3, 6), 100, jnp.int8),
        jnp.full((6, 2), 100, jnp.int8),
        expect=MATRICES,
    )


def test_a_product_that_says_where_its_result_lies_stays_whole() -> None:
    equation = last_equation(lax.dot, numbers((4, 6)), numbers((6, 3))).equation
    rule = rule_of(equation)
    assert rule is not None
    assert (
        rule.factors(equation.replace(params={**equation.params, "out_sharding": object()})) == ()
    )


def test_a_sum_that_counts_an_index_twice_is_caught() -> None:
    x, y = jnp.ones((4, 6)), jnp.ones((6, 3))
    with pytest.raises(AssertionError, match="tolerance"):
        assert_pieces_give_the_whole(
            lax.dot, x, y, expect=MATRICES, rule=with_merge(_Unmasked(**fields(SUM)))
        )


def test_free_dimensions_taken_for_one_another_are_caught() -> None:
    def swapped(equation: Any) -> Any:
        left, right, summed = RULE.factors(equation)
        return (
            replace(left, results=(Axis(1),)),
            replace(right, results=(Axis(0),)),
            summed,
        )

    x, y = numbers((4, 6)), numbers((6, 4), seed=1)
    with pytest.raises(AssertionError):
        assert_pieces_give_the_whole(
            lax.dot,
            x,
            y,
            expect=[((0, None), (1,), False), ((None, 1), (0,), False), MATRICES[2]],
            rule=Rule(factors=swapped, apply=RULE.apply),
        )


class _Unmasked(Monoid):
    def part(self, equation: Any, factor: Any, operands: Any, piece: Any) -> tuple[Array, ...]:
        return SUM.part(equation, factor, operands, replace(piece, counted=None))


class _LeftOnly(Monoid):
    def part(self, equation: Any, factor: Any, operands: Any, piece: Any) -> tuple[Array, ...]:
        one_side = replace(factor, operands=(factor.operands[0], None))
        return SUM.part(equation, one_side, operands, piece)


def fields(merge: Monoid) -> dict[str, Any]:
    return {"combined": merge.combined, "neutral": merge.neutral, "rounds": merge.rounds}


def with_merge(merge: Monoid) -> Rule:
    def factors(equation: Any) -> Any:
        return tuple(
            replace(factor, merge=factor.merge and merge) for factor in RULE.factors(equation)
        )

    return Rule(factors=factors, apply=RULE.apply)
