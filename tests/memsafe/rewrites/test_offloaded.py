"""Values that loops keep for gradients wait on the host: the same bits, and nothing else moves."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from memsafe.programs import nbytes
from memsafe.rewrites import offloaded, segmented_loops
from tests.memsafe.rewrites.reading import names, normal, program

pytestmark = pytest.mark.usefixtures("doubles")

STEPS, ROWS, WIDTH = 16, 512, 32
STACK_BYTES = 8 * STEPS * ROWS * WIDTH


def layers(weights: Array, x: Array) -> Array:
    """Each step keeps its input and a cosine."""
    return jnp.mean(lax.scan(lambda x, w: (jnp.sin(x @ w), None), x, weights)[0] ** 2)


def rematerialised(weights: Array, x: Array) -> Array:
    """Each step keeps its input."""
    step = jax.checkpoint(lambda x, w: (jnp.sin(jnp.tanh(x @ w)), None))
    return jnp.mean(lax.scan(step, x, weights)[0] ** 2)


def inside(weights: Array, x: Array) -> Array:
    """The pair of loops is inside a loop."""
    outer = jax.checkpoint(lambda total, scale: (total + layers(weights * scale, x), None))
    return lax.scan(outer, 0.0, jnp.arange(1.0, 3.0))[0]


FUNCTIONS = {layers: 2, rematerialised: 1, inside: 2 * 2}
"""Number of stacks that each function moves; `inside` moves its stacks in each of two steps."""


def gradient(function: Callable[..., Any]) -> tuple[ClosedJaxpr, Any]:
    given = normal(STEPS, WIDTH, WIDTH), normal(ROWS, WIDTH)
    return program(jax.value_and_grad(function, (0, 1)), *given), given


def on_host(closed: ClosedJaxpr) -> list[int]:
    """The bytes of each value that equations leave in host memory."""
    return [
        value.aval.size * value.aval.dtype.itemsize
        for equation in closed.jaxpr.eqns
        for value in equation.outvars
        if value.aval.memory_space is jax.memory.Space.Host
    ]


def same(first: ClosedJaxpr, second: ClosedJaxpr, given: Any) -> bool:
    one, other = (jax.jit(jaxpr_as_fun(each))(*given) for each in (first, second))
    return all(bool((a == b).all()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_stacks_move_and_every_bit_is_the_same(function: Callable[..., Any]) -> None:
    closed, given = gradient(function)
    found = offloaded(closed)
    assert found.moved == FUNCTIONS[function] * STACK_BYTES
    (note,) = found.notes
    assert "16 steps of a scan keep for its gradient wait in host memory" in note
    assert same(closed, found.program, given)


def test_a_stack_is_on_the_host_and_takes_nothing_of_the_device() -> None:
    closed, _ = gradient(layers)
    found = offloaded(closed).program
    assert (on_host(closed), on_host(found)) == ([], 2 * [STACK_BYTES])
    sizes = [nbytes(value) for equation in found.jaxpr.eqns for value in equation.outvars]
    assert max(sizes) < STACK_BYTES


def test_carries_of_segments_move_where_the_rest_is_computed_again() -> None:
    closed, given = gradient(layers)
    again = segmented_loops(closed, 4).program
    found = offloaded(again)
    # Three carries of four segments are too few to move. Both rows of the last four steps move.
    assert found.moved == 2 * STACK_BYTES * 4 // STEPS
    assert same(closed, found.program, given)


def test_a_stack_that_is_a_result_too_stays() -> None:
    def both(weights: Array, x: Array) -> tuple[Array, Array]:
        _, kept = lax.scan(lambda x, w: (jnp.sin(x @ w), x), x, weights)
        last, _ = lax.scan(lambda x, row: (x + row, None), x, kept, reverse=True)
        return last, kept

    given = normal(STEPS, WIDTH, WIDTH), normal(ROWS, WIDTH)
    assert offloaded(program(both, *given)).moved == 0
    assert offloaded(program(lambda *given: both(*given)[0], *given)).moved == STACK_BYTES


def test_a_program_without_gradients_is_left_as_it_is() -> None:
    closed = program(layers, normal(STEPS, WIDTH, WIDTH), normal(ROWS, WIDTH))
    found = offloaded(closed)
    assert (found.notes, found.moved) == ((), 0)
    assert names(found.program) == names(closed)
