"""Values that a forward pass keeps for a gradient are computed again, segment by segment."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from memsafe.graph import Graph
from memsafe.memory import usage
from memsafe.rewrites import recomputed
from tests.memsafe.rewrites.reading import names, normal, program, same_bits

LAYERS = 12
WIDTH = 16


pytestmark = pytest.mark.usefixtures("doubles")


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
@pytest.mark.parametrize(("segments", "parts"), [(2, 1), (4, 1), (7, 1), (2, 2), (2, 4), (3, 3)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_gradient_in_segments_has_the_same_bits(
    function: Callable[..., Any], segments: int, parts: int, *, hidden: bool
) -> None:
    written, given = gradient(function)
    again = recomputed(written, segments, parts, hidden=hidden)
    assert again.notes
    assert same_bits(written, again.program, *given)


@pytest.mark.parametrize(("function", "share"), [(layers, 0.7), (residual, 0.9)])
def test_three_segments_take_less_memory(function: Callable[..., Any], share: float) -> None:
    written, given = gradient(function, batch=4096)
    again = recomputed(written, 3, hidden=True)
    assert temp_bytes(again.program, given) <= share * temp_bytes(written, given)


def test_parts_of_segments_take_less_memory() -> None:
    written, given = gradient(layers, batch=4096)
    whole, parted = (recomputed(written, 2, parts, hidden=True) for parts in (1, 3))
    assert temp_bytes(parted.program, given) <= 0.7 * temp_bytes(whole.program, given)
    assert parted.notes[0].endswith("2 segments of 3 parts")


def test_a_barrier_keeps_nothing_for_the_others_that_it_hands_on() -> None:
    def handed_on(x: Array, total: Array) -> Array:
        large, total = jax.lax.optimization_barrier((jnp.sin(x @ x), total))
        return jnp.cos((x * jnp.sum(large)) @ x).sum() + total

    graph = Graph(program(handed_on, normal(WIDTH, WIDTH), normal()))
    spans = usage(graph.units, graph.size.__getitem__, graph.outputs).spans
    of = {value: graph.equations[at].primitive.name for value, at in graph.definition.items()}
    (dead,) = [last for value, (_, last) in spans.items() if of[value] == "sin"]
    (summed, _) = [at for value, at in graph.definition.items() if of[value] == "reduce_sum"]
    assert dead == summed


def waiting(closed: ClosedJaxpr) -> list[bool]:
    """For each weight's gradient, whether a recomputed value waits for it."""
    barriers = [each for each in closed.jaxpr.eqns if each.primitive.name == "optimization_barrier"]
    tied = {value for each in barriers for value in each.outvars}
    return [value in tied for value in closed.jaxpr.outvars[1 : LAYERS + 1]]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_segments_wait_for_the_gradients_of_later_weights(function: Callable[..., Any]) -> None:
    written, _ = gradient(function)
    found = waiting(recomputed(written, 4).program)
    # Nothing is recomputed after the first segment. The last gradient may exist at the peak.
    assert all(found[LAYERS // 4 : -1])
    assert not found[0]


def test_the_control_of_waiting_has_no_barrier() -> None:
    assert not any(waiting(gradient(layers)[0]))


def test_each_product_is_computed_at_most_once_more() -> None:
    written, _ = gradient(layers)
    again = recomputed(written, 4)
    extra = names(again.program).count("dot_general") - names(written).count("dot_general")
    assert 0 < extra <= LAYERS


@pytest.mark.parametrize("hidden", [False, True])
def test_no_product_is_computed_again_where_they_are_kept(*, hidden: bool) -> None:
    written, given = gradient(residual, batch=4096)
    again = recomputed(written, 4, products=True, hidden=hidden)
    assert names(again.program).count("dot_general") == names(written).count("dot_general")
    assert names(again.program).count("rsqrt") > names(written).count("rsqrt")
    assert same_bits(written, again.program, *given)
    assert again.notes[0].endswith("products kept")


def test_minus_zero_and_nan_keep_their_bits() -> None:
    def odd(weights: list[Array], x: Array) -> Array:
        for weight in weights:
            x = jnp.copysign(jnp.sin(x @ weight), x)
        return jnp.sum(x**2)

    written, given = gradient(odd)
    given[-1][0], given[-1][1, 0], given[-1][2, 0] = -0.0, np.nan, np.inf
    again = recomputed(written, 4, hidden=True)
    assert again.notes
    assert same_bits(written, again.program, *given)


def largest(weights: list[Array], x: Array) -> Array:
    """Each layer adds the largest feature of the layer before to its result."""
    before = jnp.zeros_like(x[:, :1])
    for weight in weights:
        x = jnp.sin(x @ weight)
        top = x.max(1, keepdims=True)
        x, before = jnp.tanh(x) + before, top
    return jnp.mean(x**2)


def compares_again() -> bool:
    """Whether recomputed equations ask which numbers are the largest."""
    written, _ = gradient(largest)
    found = names(recomputed(written, 4).program)
    return "eq" in found[found.index("optimization_barrier") :]


def test_which_is_the_largest_is_asked_once() -> None:
    assert not compares_again()
    written, given = gradient(largest)
    assert same_bits(written, recomputed(written, 4).program, *given)


def test_the_control_comparisons_would_be_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("memsafe.rewrites.recomputed")  # A function has this name too.
    monkeypatch.setattr(module, "compares_numbers", lambda _: False)
    assert compares_again()


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


def masked(weights: list[Array], x: Array) -> Array:
    """Every layer selects by the same mask, as large as its values and made of no argument."""
    mask = jnp.arange(x.shape[0])[:, None] >= jnp.arange(x.shape[1])
    for weight in weights:
        x = jnp.tanh(jnp.where(mask, x, -1.0) @ weight)
    return jnp.mean(x**2)


def held_types(closed: ClosedJaxpr) -> set[Any]:
    barriers = [each for each in closed.jaxpr.eqns if each.primitive.name == "optimization_barrier"]
    return {atom.aval.dtype for barrier in barriers for atom in barrier.invars}


def test_no_segment_waits_for_a_mask() -> None:
    written, given = gradient(masked)
    again = recomputed(written, 4)
    assert held_types(again.program) == {np.dtype(float)}
    assert same_bits(written, again.program, *given)


def attending(weights: list[Array], x: Array) -> Array:
    """Each layer compares all rows with each other; this matrix is the largest value."""
    for weight in weights:
        x = jnp.tanh(x + jnp.exp(-jnp.abs(x @ x.T)) @ x @ weight)
    return jnp.mean(x**2)


@pytest.mark.parametrize("whole", [True, False])
def test_no_segment_waits_for_what_is_sliced(*, whole: bool) -> None:
    batch = 64
    written, given = gradient(attending, batch)
    most = float("inf") if whole else 8.0 * batch * WIDTH
    again = recomputed(written, 5, most=most)
    barriers = [each for each in again.program.jaxpr.eqns if len(each.invars) > 1]
    held = [
        atom.aval for each in barriers if "barrier" in str(each.primitive) for atom in each.invars
    ]
    assert held
    assert all(aval.shape != (batch, batch) for aval in held)
    assert same_bits(written, again.program, *given)
