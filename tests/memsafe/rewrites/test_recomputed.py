"""What a forward pass leaves for a gradient is computed again, segment by segment."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from memsafe.rewrites import recomputed
from tests.memsafe.rewrites.reading import names, program, same_bits

LAYERS = 12
WIDTH = 16


@pytest.fixture(autouse=True)
def _doubles() -> Any:
    with jax.enable_x64(new_val=True):
        yield


def normal(*shape: int) -> Array:
    return jnp.asarray(0.3 * np.random.default_rng(len(shape)).standard_normal(shape))


def layers(weights: list[Array], x: Array) -> Array:
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return jnp.mean(x**2)


def residual(weights: list[Array], x: Array) -> Array:
    """A stream that every layer reads and adds to, with statistics over the batch."""
    for weight in weights:
        centred = (x - x.mean(0)) * jax.lax.rsqrt(x.var(0) + 1e-5)
        x = x + jax.nn.relu(centred @ weight)
    return jnp.mean(x**2)


def skipping(weights: list[Array], x: Array) -> Array:
    """The first layers' results are read once more by the last ones."""
    found = []
    for weight in weights[: LAYERS // 2]:
        x = jnp.sin(x @ weight)
        found.append(x)
    for weight in weights[LAYERS // 2 :]:
        x = jnp.cos(x @ weight) + found.pop()
    return jnp.mean(x**2)


FUNCTIONS = [layers, residual, skipping]


def gradient(function: Callable[..., Any], batch: int = 64) -> tuple[ClosedJaxpr, list[Array]]:
    weights, x = [normal(WIDTH, WIDTH)] * LAYERS, normal(batch, WIDTH)

    def flat(*leaves: Array) -> list[Array]:
        value, (slopes, of_x) = jax.value_and_grad(function, (0, 1))(list(leaves[:-1]), leaves[-1])
        return [value, *slopes, of_x]

    return program(flat, *weights, x), [*weights, x]


def temp_bytes(closed: ClosedJaxpr, given: list[Array]) -> int:
    compiled = jax.jit(jaxpr_as_fun(closed)).lower(*given).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("segments", [2, 4, 7])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_gradient_in_segments_has_the_same_bits(
    function: Callable[..., Any], segments: int, *, hidden: bool
) -> None:
    written, given = gradient(function)
    again = recomputed(written, segments, hidden=hidden)
    assert again.notes
    assert same_bits(written, again.program, *given)


@pytest.mark.parametrize(("function", "share"), [(layers, 0.7), (residual, 0.9)])
def test_three_segments_take_less_memory(function: Callable[..., Any], share: float) -> None:
    written, given = gradient(function, batch=4096)
    again = recomputed(written, 3, hidden=True)
    assert temp_bytes(again.program, given) <= share * temp_bytes(written, given)


def test_each_product_is_computed_at_most_once_more() -> None:
    written, _ = gradient(layers)
    again = recomputed(written, 4)
    extra = names(again.program).count("dot_general") - names(written).count("dot_general")
    assert 0 < extra <= LAYERS


def test_minus_zero_and_nan_keep_their_bits() -> None:
    def odd(weights: list[Array], x: Array) -> Array:
        for weight in weights:
            x = jnp.copysign(jnp.sin(x @ weight), x)
        return jnp.sum(x**2)

    written, given = gradient(odd)
    given[-1] = given[-1].at[0].set(-0.0).at[1, 0].set(jnp.nan).at[2, 0].set(jnp.inf)
    again = recomputed(written, 4, hidden=True)
    assert again.notes
    assert same_bits(written, again.program, *given)


def test_a_program_without_a_backward_pass_is_left() -> None:
    weights, x = [normal(WIDTH, WIDTH)] * LAYERS, normal(64, WIDTH)
    written = program(layers, weights, x)
    assert recomputed(written, 4).program is written


def test_what_a_callback_gives_is_asked_for_once() -> None:
    @jax.custom_jvp
    def noise(x: Array) -> Array:
        return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    @noise.defjvp
    def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        return noise(*primals), tangents[0]

    def with_callback(weights: list[Array], x: Array) -> Array:
        for weight in weights:
            x = jnp.sin(x @ weight) * noise(x)
        return jnp.mean(x**2)

    weights, x = [normal(WIDTH, WIDTH)] * LAYERS, normal(64, WIDTH)
    written = program(jax.grad(with_callback), weights, x)
    again = recomputed(written, 4)
    assert again.notes
    assert names(again.program).count("pure_callback") == LAYERS
