"""Maximum number of steps of a `while`: which programs show one, and its value."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from memsafe.loop_bounds import most_steps
from memsafe.ranges import Range, range_of, ranges_in

LARGEST = np.int32(2**31 - 1)


def loop(
    going: Callable[[Any], Any], start: Any = 0, by: Callable[[Any], Any] = lambda i: i + 1
) -> Callable[[Array, Array], Any]:
    """A loop with a counter: `going` is its condition, and `by` its step."""

    def f(x: Array, n: Array) -> Any:
        first = start(n) if callable(start) else start
        state = (jnp.asarray(first, jnp.int32), x)
        return lax.while_loop(
            lambda state: going(state[0]), lambda state: (by(state[0]), jnp.sin(state[1])), state
        )

    return f


def until(end: Callable[[Array], Any], start: Any = 0) -> Callable[[Array, Array], Any]:
    """A loop whose counter runs from `start` to `end(n)`."""
    return lambda x, n: lax.fori_loop(start, end(n), lambda _, x: jnp.sin(x), x)


def bound_of(f: Callable[[Array, Array], Any], *arguments: Any) -> int | None:
    given = arguments or (jnp.ones(3), jnp.int32(7))
    program = jax.make_jaxpr(f)(*given)
    known = ranges_in(program, [None for _ in given])
    (found,) = (each for each in program.jaxpr.eqns if each.primitive.name == "while")
    return most_steps(found, known)


@pytest.mark.parametrize(
    ("f", "steps"),
    [
        (loop(lambda i: i < 50), 50),
        (loop(lambda i: i <= 50), 51),
        (loop(lambda i: jnp.greater(50, i)), 50),
        (loop(lambda i: jnp.greater_equal(50, i)), 51),
        (loop(lambda i: i < 10, by=lambda i: 3 + i), 4),
        (loop(lambda i: i < 10, by=jax.jit(lambda i: (i + 4) - 1)), 4),
        (loop(lambda i: i > 0, 7, lambda i: i - 1), 7),
        (loop(lambda i: i >= 0, 7, lambda i: i + -2), 4),
        (loop(lambda i: jnp.less(0, i), 7, lambda i: i - 1), 7),
        (loop(lambda i: i < 5, 9), 0),
        (loop(lambda i: i < 5, lambda n: jnp.maximum(n, -5)), 10),
        (loop(lambda i: (i < 50) & (i < 40) & (i % 7 < 6)), 40),
        (loop(lambda i: jnp.logical_and(i % 7 < 6, jnp.logical_and(i < 50, i % 2 == 0))), 50),
        (loop(lambda i: i.astype(jnp.int64) < 50), 50),
        (until(lambda n: jnp.minimum(n, 100)), 100),
        (until(lambda n: jnp.clip(n, 0, 100)), 100),
        (until(lambda n: lax.clamp(np.int32(0), n, np.int32(100)), 10), 90),
        (until(jax.jit(lambda n: 2 * jnp.clip(n, 0, 100) + 1)), 201),
        (until(lambda n: jnp.clip(n, 0, 100) - 1), 99),
        (until(lambda n: jnp.where(n > 3, 30, jnp.minimum(n, 20))), 30),
        (until(lambda n: jnp.max(jnp.minimum(jnp.stack([n, 2 * n]), 100))), 100),
    ],
)
@pytest.mark.usefixtures("doubles")
def test_a_bound_is_seen(f: Callable[[Array, Array], Any], steps: int) -> None:
    assert bound_of(f) == steps


@pytest.mark.parametrize(
    "f",
    [
        until(lambda n: n),
        until(lambda n: jnp.maximum(n, 100)),
        until(lambda n: jnp.minimum(n, 100) - 1),  # The least integer minus 1 is the largest.
        loop(lambda i: i < 50, lambda n: n),
        loop(lambda i: (i < 50) | (i % 7 < 6)),
        loop(lambda i: ~(i < 50)),
        loop(lambda i: i < 50, by=lambda i: jnp.where(i % 2 == 0, i, i + 1)),
        loop(lambda i: i < 50, by=lambda i: i * 2),
        loop(lambda i: i < 50, by=lambda i: i - 1),
        loop(lambda i: i < 50, by=lambda i: i),
        loop(lambda i: i > 0, 7),
        loop(lambda i: i <= LARGEST, LARGEST - 9),  # Always true: the counter wraps around.
        loop(lambda i: i < LARGEST, LARGEST - 9, lambda i: i + 2),
        loop(lambda i: i < i + 1),
        loop(lambda i: jnp.sin(i) < 50),
    ],
)
def test_what_may_go_on_has_no_bound(f: Callable[[Array, Array], Any]) -> None:
    assert bound_of(f) is None


def test_a_counter_that_a_traced_number_is_added_to_has_none() -> None:
    def f(x: Array, n: Array) -> Any:
        return lax.while_loop(lambda s: s[0] < 50, lambda s: (s[0] + n, jnp.sin(s[1])), (0, x))

    assert bound_of(f) is None


def test_a_counter_of_floats_has_none() -> None:
    def f(x: Array, _: Array) -> Any:
        return lax.while_loop(lambda s: s[0] < 50, lambda s: (s[0] + 1, jnp.sin(s[1])), (0.0, x))

    assert bound_of(f) is None


def test_the_bound_of_a_batch_is_that_of_its_longest_loop() -> None:
    batch = jnp.ones((4, 3)), jnp.arange(4, dtype=jnp.int32)
    assert bound_of(jax.vmap(until(lambda n: jnp.clip(n, 0, 100))), *batch) == 100
    assert bound_of(jax.vmap(until(lambda n: n)), *batch) is None


def test_a_range_that_may_leave_its_type_is_not_known() -> None:
    def f(n: Array) -> Array:
        return jnp.clip(n, 0, 100) * jnp.int8(2)

    program = jax.make_jaxpr(f)(jnp.int8(3))
    known = ranges_in(program, [None])
    assert range_of(program.jaxpr.outvars[0], known) == Range(-128, 127)
    near = ranges_in(program, [Range(7, 9)])
    assert range_of(program.jaxpr.outvars[0], near) == Range(14, 18)


def wrapped(number: int) -> int:
    return (number + 128) % 256 - 128


@pytest.mark.parametrize("seed", range(8))
def test_a_bound_of_small_integers_is_the_number_of_their_steps(seed: int) -> None:
    """A counter that wraps around has no bound."""
    generator = np.random.default_rng(seed)
    compare: dict[Any, Callable[[int, int], bool]] = {
        lax.lt: lambda i, end: i < end,
        lax.le: lambda i, end: i <= end,
        lax.gt: lambda i, end: i > end,
        lax.ge: lambda i, end: i >= end,
    }
    seen = 0
    for _ in range(25):
        start, end, by = (int(each) for each in generator.integers(-128, 128, 3))
        for relation, holds in compare.items():

            def f(_: Array, first: Any = (relation, start, end, by)) -> Any:
                relation, start, end, by = first
                return lax.while_loop(
                    lambda i: relation(i, np.int8(end)), lambda i: i + np.int8(by), np.int8(start)
                )

            bound = bound_of(f, jnp.ones(3))
            at, steps, passed = start, 0, False
            while holds(at, end) and steps < 300:
                passed |= wrapped(at + by) != at + by
                at, steps = wrapped(at + by), steps + 1
            if bound is not None:
                seen += 1
                assert (bound, passed) == (steps, False)
    assert seen > 20
