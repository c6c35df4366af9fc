"""Values that a loop only reads are computed in its body, if that takes little work."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.extend.core import ClosedJaxpr

from memsafe.programs import evaluate, flattened
from memsafe.rewrites.invariants import loop_invariants
from memsafe.sub_jaxprs import sub_jaxprs_of

POINTS = jnp.linspace(0.0, 1.0, 40)


def scanned(invariant: Array, x: Array) -> Array:
    return lax.scan(lambda c, _: (jnp.tanh(invariant @ c), None), x, None, length=3)[0]


def looped(invariant: Array, x: Array) -> Array:
    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        return state[0] + 1, jnp.tanh(invariant @ state[1])

    return lax.while_loop(lambda state: state[0] < 3, step, (jnp.zeros((), int), x))[1]


def distances(x: Array) -> Array:
    return jnp.sum((x[:, None, None] - x[None, :, None]) ** 2, axis=-1)


def causal(x: Array) -> Array:
    return jnp.tril(jnp.ones((len(x), len(x))))


def solved(x: Array) -> Array:
    return jnp.linalg.inv(jnp.diag(x + 1))


def product(x: Array) -> Array:
    wide = x[:, None] * jnp.ones(4000)
    return wide @ wide.T


LOOPS = pytest.mark.parametrize("loop", [scanned, looped])


@LOOPS
@pytest.mark.parametrize("invariant", [distances, causal])
def test_a_matrix_made_from_little_is_made_in_the_body(
    loop: Callable[..., Array], invariant: Callable[[Array], Array]
) -> None:
    def program(x: Array) -> Array:
        return loop(invariant(x), x)

    written = flattened(jax.make_jaxpr(program)(POINTS))
    result = loop_invariants(written)
    assert largest_read(written) == POINTS.size**2
    assert largest_read(result.program) <= POINTS.size
    assert len(result.notes) == 1
    assert "made in its body" in result.notes[0]
    (got,) = evaluate(result.program, [POINTS])
    np.testing.assert_allclose(got, program(POINTS), rtol=1e-6)


@LOOPS
@pytest.mark.parametrize("invariant", [solved, product])
def test_a_matrix_that_takes_much_to_make_is_made_once(
    loop: Callable[..., Array], invariant: Callable[[Array], Array]
) -> None:
    written = flattened(jax.make_jaxpr(lambda x: loop(invariant(x), x))(POINTS))
    assert loop_invariants(written).program is written


@LOOPS
def test_an_argument_is_read_as_it_is(loop: Callable[..., Array]) -> None:
    written = flattened(jax.make_jaxpr(loop)(jnp.ones((40, 40)), POINTS))
    assert loop_invariants(written).program is written


@LOOPS
def test_a_matrix_from_one_as_large_is_made_once(loop: Callable[..., Array]) -> None:
    def program(matrix: Array, x: Array) -> Array:
        return loop(jnp.exp(matrix), x)

    written = flattened(jax.make_jaxpr(program)(jnp.ones((40, 40)), POINTS))
    assert loop_invariants(written).program is written


def test_a_matrix_used_beside_the_loop_too_stays_there() -> None:
    def program(x: Array) -> Array:
        costs = distances(x)
        return jnp.sum(scanned(costs, x) @ costs)

    result = loop_invariants(flattened(jax.make_jaxpr(program)(POINTS)))
    assert largest_read(result.program) <= POINTS.size
    np.testing.assert_allclose(evaluate(result.program, [POINTS])[0], program(POINTS), rtol=1e-6)


def largest_read(closed: ClosedJaxpr) -> int:
    """Number of elements of the largest operand of a loop."""
    loops: list[Any] = [each for each in closed.jaxpr.eqns if sub_jaxprs_of(each)]
    assert loops
    return max(atom.aval.size for each in loops for atom in each.invars)
