"""A scan over the rows of a transposed argument reads them from the argument itself."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from memsafe.programs import evaluate, flattened
from memsafe.rewrites.redundant import redundant
from memsafe.rewrites.rows import rows_in_place

SEQUENCES = jnp.asarray(np.random.default_rng(0).standard_normal((64, 32, 16)))
WEIGHT = jnp.asarray(np.random.default_rng(1).standard_normal((16, 16))) / 4


def recurrent(weight: Array, x: Array, *, reverse: bool = False) -> Array:
    step = lambda state, row: (jnp.tanh(state @ weight + row), None)  # noqa: E731 - a step
    rows = jnp.swapaxes(x, 0, 1)
    return lax.scan(step, jnp.zeros_like(x[:, 0]), rows, reverse=reverse)[0]


def backwards(weight: Array, x: Array) -> Array:
    return recurrent(weight, x, reverse=True)


def columns_last(weight: Array, x: Array) -> Array:
    """A scan over rows whose own dimensions are transposed too."""
    step = lambda state, row: (jnp.tanh(weight @ state + row), None)  # noqa: E731 - a step
    return lax.scan(step, jnp.zeros_like(x[:, 0].T), x.transpose(1, 2, 0))[0]


def gradients(weight: Array, x: Array) -> tuple[Array, Array]:
    both: tuple[Array, Array] = jax.grad(lambda *given: recurrent(*given).sum(), (0, 1))(weight, x)
    return both


def results(program: Callable[..., Array]) -> tuple[bool, list[Array], list[Array]]:
    """Whether a program changes, and its results as written and as rewritten."""
    written = flattened(jax.make_jaxpr(program)(WEIGHT, SEQUENCES))
    rewritten = rows_in_place(written)
    got = [evaluate(each, [WEIGHT, SEQUENCES]) for each in (written, rewritten.program)]
    return bool(rewritten.notes), *got


@pytest.mark.parametrize("program", [recurrent, backwards, columns_last, gradients])
def test_rows_are_taken_of_the_argument_itself(program: Callable[..., Array]) -> None:
    changes, written, rewritten = results(program)
    assert changes
    for one, other in zip(written, rewritten, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(lambda w, x: (recurrent(w, x), jnp.swapaxes(x, 0, 1)), id="a result"),
        pytest.param(lambda w, x: recurrent(w, x) * jnp.swapaxes(x, 0, 1)[0], id="read whole"),
        pytest.param(lambda w, x: recurrent(w, jnp.sin(x)), id="no argument"),
        pytest.param(lambda w, x: recurrent(w, jnp.swapaxes(x, 0, 1)), id="not transposed"),
    ],
)
def test_what_is_needed_whole_or_takes_no_more_memory_is_left(
    program: Callable[..., Array],
) -> None:
    written = flattened(jax.make_jaxpr(program)(WEIGHT, SEQUENCES))
    assert not rows_in_place(redundant(written).program).notes
