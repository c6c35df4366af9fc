"""Random bits by pieces: each element is counted by its place in the whole array."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array
from jax.extend.core import JaxprEqn
from jax.extend.random import threefry_prng_impl

from memsafe import memsafe
from memsafe.factors import Piece
from memsafe.programs import flattened, retraced
from memsafe.rules import factors_of, rule_of
from tests.memsafe.budgets import peak_bytes
from tests.memsafe.pieces import assert_pieces_give_the_whole

pytestmark = pytest.mark.exhaustive


def counters(shape: tuple[int, ...]) -> JaxprEqn:
    """The equation that counts the elements of an array of `shape`; no such array is made."""
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    closed = jax.make_jaxpr(lambda key: threefry_prng_impl.random_bits(key, 32, shape))(key)
    named = [one for one in flattened(closed).jaxpr.eqns if one.primitive.name == "iota_2x32_shape"]
    (equation,) = named
    return equation


def places(equation: JaxprEqn, dim: int, start: int, length: int) -> list[int]:
    """The counters of a piece along `dim`, as Python's integers."""
    factor = next(one for one in factors_of(equation) if one.results[0].dim == dim)
    piece = Piece(start=jnp.int32(start), length=length)
    high, low = (np.asarray(one) for one in rule_of(equation).apply(equation, factor, [], piece))
    return [int(a) << 32 | int(b) for a, b in zip(high.ravel(), low.ravel(), strict=True)]


def test_counters_are_cut_along_every_dimension() -> None:
    assert_pieces_give_the_whole(
        lambda key: threefry_prng_impl.random_bits(key, 32, (4, 1, 6)),
        np.array([1, 2], np.uint32),
        primitive="iota_2x32_shape",
        expect=[((), (0, 0), False), ((), (2, 2), False)],
    )


def largest(key: Array) -> Array:
    return jax.random.normal(key, (500,)).max()


@pytest.mark.parametrize("shape", [(300,), (12, 25)])
def test_each_key_of_a_batch_gives_its_own_numbers(shape: tuple[int, ...]) -> None:
    of_each = largest
    for _ in shape:
        of_each = jax.vmap(of_each)
    keys = jax.random.split(jax.random.key(0), shape)
    within = memsafe(of_each, peak_bytes(of_each, keys) // 2)
    np.testing.assert_array_equal(within(keys), jax.jit(of_each)(keys))


@pytest.mark.parametrize("shape", [(2**31 - 1, 5), (5, 2**31 - 1, 3), (2**31 - 1, 2**2, 3)])
def test_counters_beyond_32_bits_are_exact(shape: tuple[int, ...]) -> None:
    dim = shape.index(2**31 - 1)
    start = 2**31 - 6
    array = [range(size) for size in shape]
    array[dim] = range(start, start + 4)
    strides = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
    wanted = [
        sum(index * stride for index, stride in zip(place, strides, strict=True))
        for place in np.ndindex(*map(len, array))
        for place in [[of[at] for of, at in zip(array, place, strict=True)]]
    ]
    assert max(wanted) >= 2**32
    assert places(counters(shape), dim, start, 4) == wanted


@settings(max_examples=25)
@given(st.data())
def test_counters_of_any_piece_are_the_places_in_the_whole(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([7, 2**16, 2**31 - 1]) | st.integers(2, 2**31 - 1))
    before = data.draw(st.integers(1, 4))
    after = data.draw(st.integers(1, 4))
    length = data.draw(st.integers(1, min(3, size)))
    start = data.draw(st.integers(0, size - length))
    wanted = [
        (first * size + start + at) * after + last
        for first in range(before)
        for at in range(length)
        for last in range(after)
    ]
    assert places(counters((before, size, after)), 1, start, length) == wanted


DRAWS: dict[str, Callable[[Array], Array]] = {
    "bits": lambda key: jax.random.bits(key, (4, 5, 6)),
    "bytes": lambda key: jax.random.bits(key, (4, 5, 6), jnp.uint8),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, (4, 5, 6)),
    "normal": lambda key: jax.random.normal(key, (4, 5, 6)),
}


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("draw", DRAWS)
def test_draws_from_pieces_of_counters_are_the_whole_draw(draw: str, dim: int) -> None:
    key = jax.random.key(7)
    closed = flattened(jax.make_jaxpr(DRAWS[draw])(key))
    named = [equation.primitive.name for equation in closed.jaxpr.eqns]
    index = named.index("iota_2x32_shape")
    equation = closed.jaxpr.eqns[index]
    rule, factor = rule_of(equation), factors_of(equation)[dim]

    def by_pieces(_: object) -> list[Array]:
        pieces = [
            rule.apply(equation, factor, [], Piece(start=jnp.int32(at), length=1))
            for at in range(factor.size)
        ]
        return [jnp.concatenate(words, dim) for words in zip(*pieces, strict=True)]

    cut = retraced(closed, {index: by_pieces})
    assert "iota_2x32_shape" not in [one.primitive.name for one in cut.jaxpr.eqns]
    (got,) = jax.jit(jax.extend.core.jaxpr_as_fun(cut))(key)
    np.testing.assert_array_equal(got, DRAWS[draw](key))
