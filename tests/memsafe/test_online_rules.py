"""A maximum and its sum of exponentials, merged from pieces, also with infinities and NaN."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array, lax
from jax.extend.core import ClosedJaxpr

from memsafe.factors import Piece
from memsafe.programs import flattened
from memsafe.rules import online
from memsafe.rules.online import MAX_AND_SUMEXP

from .exact_merges import _merged
from .pieces import assert_pieces_give_the_whole, last_equation

pytestmark = pytest.mark.exhaustive

ROWS = [((0,), (0, 0), False), ((1,), (None, None), True)]
SHIFTS = {
    "softmax": lambda largest: largest,
    "logsumexp": lambda largest: jnp.where(jnp.isfinite(largest), largest, 0),
    "half": lambda largest: largest / 2,
}


def program(shift: Any, dtype: Any = jnp.float32, within: Any = None) -> ClosedJaxpr:
    number = jax.ShapeDtypeStruct((), dtype)
    return flattened(jax.make_jaxpr(lambda largest: shift(largest).astype(within or dtype))(number))


def together(
    x: Array, axes: tuple[int, ...] = (1,), *, shift: Any = SHIFTS["softmax"], **kinds: Any
) -> list[Array]:
    within, summed = kinds.get("within", x.dtype), kinds.get("summed", x.dtype)
    params = {"shift": program(shift, x.dtype, within), "within": within, "summed": summed}
    results: list[Array] = MAX_AND_SUMEXP.bind(x, axes=axes, **params)
    return results


def drawn(*shape: int, dtype: Any = jnp.float32) -> Array:
    return jnp.asarray(np.random.default_rng(0).uniform(-9, 9, shape)).astype(dtype)


ODD = [
    [-jnp.inf] * 6,
    [-jnp.inf, -jnp.inf, -jnp.inf, -jnp.inf, -500.0, -501.0],
    [-500.0, -501.0, -jnp.inf, -jnp.inf, -jnp.inf, -jnp.inf],
    [500.0, 0.0, -500.0, 501.0, 90.0, -90.0],
    [jnp.inf, 1.0, 2.0, 3.0, 4.0, 5.0],
    [1.0, 2.0, 3.0, 4.0, jnp.inf, -jnp.inf],
    [-200.0, -300.0, 1.0, 2.0, 3.0, jnp.inf],
    [jnp.nan, 1.0, 2.0, 3.0, 4.0, 5.0],
    [1.0, 2.0, 3.0, 4.0, 5.0, jnp.nan],
    [jnp.nan, -jnp.inf, -jnp.inf, -jnp.inf, -jnp.inf, -jnp.inf],
    [1.0, -jnp.inf, -jnp.inf, -jnp.inf, -jnp.inf, 1.0],
    [-3e38, 3e38, -3e38, 3e38, 0.0, 1.0],
]  # fmt: skip


@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS.keys())
def test_infinities_and_nan_come_through_as_from_the_whole(shift: Any) -> None:
    assert_pieces_give_the_whole(lambda x: together(x, shift=shift), jnp.asarray(ODD), expect=ROWS)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_pieces_of_every_type_give_the_whole(dtype: Any) -> None:
    assert_pieces_give_the_whole(together, drawn(3, 6, dtype=dtype), expect=ROWS)


def test_pieces_give_the_whole_where_types_differ() -> None:
    kinds = {"within": jnp.float32, "summed": jnp.bfloat16}
    assert_pieces_give_the_whole(
        lambda x: together(x, **kinds), drawn(3, 6, dtype=jnp.bfloat16), expect=ROWS
    )


@pytest.mark.usefixtures("doubles")
def test_pieces_of_doubles_give_the_whole_to_double_rounding() -> None:
    assert_pieces_give_the_whole(together, drawn(3, 6, dtype=jnp.float64), expect=ROWS)


@settings(max_examples=12, derandomize=True)
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    shift=st.sampled_from(sorted(SHIFTS)),
    data=st.data(),
)
def test_pieces_of_any_shape_over_any_dimensions_give_the_whole(
    shape: list[int], shift: str, data: st.DataObject
) -> None:
    axes = tuple(sorted(data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1))))
    numbers = st.sampled_from([-np.inf, -600.0, -1.0, 0.0, 2.0, 600.0])
    count = int(np.prod(shape))
    values = data.draw(st.lists(numbers, min_size=count, max_size=count))
    kept = [dim for dim in range(len(shape)) if dim not in axes]
    expect = [
        ((dim,), (None if dim in axes else kept.index(dim),) * 2, dim in axes)
        for dim in range(len(shape))
        if shape[dim] > 1
    ]
    x = jnp.asarray(values, jnp.float32).reshape(shape)
    assert_pieces_give_the_whole(lambda x: together(x, axes, shift=SHIFTS[shift]), x, expect=expect)


@pytest.mark.usefixtures("doubles")
@settings(max_examples=25, derandomize=True)
@given(size=st.integers(2, 30), shift=st.sampled_from(sorted(SHIFTS)), data=st.data())
def test_slices_of_any_length_give_the_whole_to_double_rounding(
    size: int, shift: str, data: st.DataObject
) -> None:
    length = data.draw(st.integers(1, size - 1))
    numbers = st.floats(-700, 700) | st.just(-np.inf)
    x = jnp.asarray(data.draw(st.lists(numbers, min_size=size, max_size=size)), jnp.float64)
    seen = last_equation(lambda x: together(x, (0,), shift=SHIFTS[shift]), x)
    (factor,) = online.RULES[MAX_AND_SUMEXP.name].factors(seen.equation)
    for got, wanted in zip(_merged(factor, seen, length), seen.results, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_batch_is_one_more_kept_dimension(dim: int) -> None:
    x = drawn(3, 4, 5)
    got = jax.vmap(together, dim)(x)
    wanted = [together(lax.index_in_dim(x, at, dim, keepdims=False)) for at in range(x.shape[dim])]
    batched = last_equation(jax.vmap(together, dim), x, primitive="max_and_sumexp").equation
    assert batched.primitive is MAX_AND_SUMEXP
    for number, result in enumerate(got):
        np.testing.assert_array_equal(result, jnp.stack([each[number] for each in wanted]))


def test_exponentials_of_half_precision_add_up_in_single_precision() -> None:
    """In float16, 2048 + 1 is 2048, so a sum of ones, added one by one, stops there."""
    zeros = jnp.zeros(4096, jnp.float16)
    equation = last_equation(lambda x: together(x, (0,)), zeros).equation
    (factor,) = online.RULES[MAX_AND_SUMEXP.name].factors(equation)
    merge = factor.merge
    assert merge is not None

    def step(index: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        part = merge.part(equation, factor, [zeros[:1]], Piece(start=index, length=1))
        return merge.combine(state, part, first=index == 0)

    state = lax.fori_loop(0, 4096, step, merge.start(equation))
    _, total = merge.finish(equation, state, [None])
    assert (total.dtype, float(total)) == (jnp.float16, 4096.0)


def unscaled(total: Array, _before: Array, _largest: Array) -> Array:
    return total


def unguarded(total: Array, before: Array, largest: Array) -> Array:
    return total * lax.exp(before - largest)


def guarded_by_zero(total: Array, before: Array, largest: Array) -> Array:
    return total * lax.exp(online._finite(before, total.dtype) - largest)


@pytest.mark.parametrize("wrong", [unscaled, unguarded, guarded_by_zero])
def test_a_wrong_scale_is_caught(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "_rescaled", wrong)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_pieces_give_the_whole(together, jnp.asarray(ODD[1:4]), expect=ROWS)


def test_an_index_counted_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    x = jnp.zeros((3, 7))
    assert_pieces_give_the_whole(together, x, expect=ROWS)
    monkeypatch.setattr(online, "masked", lambda x, *_: x)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_pieces_give_the_whole(together, x, expect=ROWS)
