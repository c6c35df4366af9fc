"""Gradients through a `while` whose steps have a bound are those of a `scan` of as many steps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

import memsafe
from tests.memsafe.budgets import (
    ROOM,
    assert_same,
    peak_bytes,
    points,
    product,
    safe,
    turned,
    weights,
)

pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("doubles")]

Going = Callable[[Any], Any]
Step = Callable[[Any], Any]


def plain(going: Going, step: Step, state: Any, _: int) -> Any:
    """The loop as a user writes it."""
    return lax.while_loop(going, step, state)


def by_hand(going: Going, step: Step, state: Any, most: int) -> Any:
    """The loop as a `scan`, which JAX differentiates; steps after the end change nothing."""

    def turn(state: Any, _: None) -> Any:
        return lax.cond(going(state), step, lambda state: state, state), None

    return lax.scan(turn, state, None, length=most)[0]


Loop = Callable[[Going, Step, Any, int], Any]


def root(loop: Loop, a: Array, most: int = 50) -> Array:
    """Square roots by Newton's method, which ends when all are found."""

    def far(state: Any) -> Any:
        return (state[0] < most) & (jnp.abs(state[1] ** 2 - a) > 1e-9 * a).any()

    def nearer(state: Any) -> Any:
        return state[0] + 1, (state[1] + a / state[1]) / 2

    return loop(far, nearer, (0, 1 + a), most)[1]


def numbers(count: int = 5) -> Array:
    return jnp.linspace(0.3, 2.0, count)


def assert_gradients_agree(
    f: Callable[..., Array], *arguments: Any, budget: int = 10_000_000
) -> None:
    """Asserts that `f` has equal values and gradients with `plain` (memsafe) and `by_hand`."""

    def loss(loop: Loop) -> Callable[..., Array]:
        return lambda *arguments: jnp.sum(f(loop, *arguments) * jnp.cos(arguments[0]))

    within = memsafe.memsafe(loss(plain), budget)
    wanted = jax.jit(jax.value_and_grad(loss(by_hand)))(*arguments)
    assert_same(jax.value_and_grad(within)(*arguments), wanted, 1e-12)
    assert_same(jax.jit(jax.value_and_grad(within))(*arguments), wanted, 1e-12)


@pytest.mark.parametrize("most", [0, 1, 2, 3, 4, 7, 50])
def test_an_iteration_is_differentiated_whether_it_ends_by_itself(most: int) -> None:
    assert_gradients_agree(lambda loop, a: root(loop, a, most), numbers())


def test_the_gradient_is_that_of_the_root() -> None:
    got = jax.grad(memsafe.memsafe(lambda a: root(plain, a).sum(), "1GB"))(numbers())
    np.testing.assert_allclose(got, 0.5 / np.sqrt(numbers()), rtol=1e-8)


@pytest.mark.parametrize("count", [-3, 0, 1, 6, 99, 100, 1000])
def test_a_loop_to_a_clipped_end_is_differentiated(count: int) -> None:
    def f(loop: Loop, x: Array, n: Array) -> Array:
        end = jnp.clip(n, 0, 100)

        def step(state: Any) -> Any:
            return state[0] + 1, jnp.sin(state[1]) + 0.1 * state[0]

        return loop(lambda state: state[0] < end, step, (0, x), 100)[1]

    assert_gradients_agree(f, numbers(), jnp.asarray(count))

    def counted(x: Array, n: Array) -> Array:
        step = lambda i, x: jnp.sin(x) + 0.1 * i  # noqa: E731
        return jnp.sum(lax.fori_loop(0, jnp.clip(n, 0, 100), step, x) * jnp.cos(x))

    got = jax.grad(memsafe.memsafe(counted, "1GB"))(numbers(), jnp.asarray(count))
    wanted = jax.grad(lambda x: jnp.sum(f(by_hand, x, jnp.asarray(count)) * jnp.cos(x)))(numbers())
    assert_same(got, wanted, 1e-12)


def test_a_step_that_is_not_taken_gives_no_nan() -> None:
    def f(loop: Loop, x: Array) -> Array:
        def step(state: Any) -> Any:
            return state[0] + 1, jnp.sqrt(state[1] - 1)

        return loop(lambda state: (state[0] < 9) & (state[1] > 1).all(), step, (0, x), 9)[1]

    def by_where(going: Going, step: Step, state: Any, most: int) -> Any:
        for _ in range(most):
            pairs = zip(step(state), state, strict=True)
            state = tuple(jnp.where(going(state), new, old) for new, old in pairs)
        return state

    assert_gradients_agree(f, 3 + numbers())
    gradients = (
        jax.grad(lambda x: f(by_where, x).sum())(3 + numbers()),
        jax.grad(memsafe.memsafe(lambda x: f(plain, x).sum(), "1GB"))(3 + numbers()),
    )
    assert [bool(np.isnan(each).any()) for each in gradients] == [True, False]


def test_what_is_read_and_what_is_carried_unchanged_have_gradients() -> None:
    def f(loop: Loop, x: Array, matrix: Array, shift: Array) -> Array:
        def step(state: Any) -> Any:
            at, x, shift, kept = state
            return at + 1, jnp.tanh(matrix @ x + shift), shift, kept

        last = loop(lambda state: state[0] < 11, step, (0, x, shift, 2 * shift), 11)
        return last[1] + last[2] * last[3]

    def loss(loop: Loop) -> Callable[..., Array]:
        return lambda *arguments: jnp.sum(f(loop, *arguments) ** 2)

    generator = np.random.default_rng(0)
    arguments = numbers(), jnp.asarray(generator.standard_normal((5, 5))), numbers() / 3
    wanted = jax.grad(loss(by_hand), (0, 1, 2))(*arguments)
    assert_same(jax.grad(memsafe.memsafe(loss(plain), "1GB"), (0, 1, 2))(*arguments), wanted, 1e-12)
    only = jax.grad(memsafe.memsafe(loss(plain), "1GB"), 2)(*arguments)
    assert_same(only, wanted[2], 1e-12)


@pytest.mark.parametrize("inner", [lambda _: 4, lambda at: at], ids=["square", "triangular"])
def test_loops_within_loops_are_differentiated(inner: Callable[[Any], Any]) -> None:
    def f(loop: Loop, x: Array, n: Array) -> Array:
        def step(state: Any) -> Any:
            at, x = state
            count = inner(at)

            def within(state: Any) -> Any:
                return state[0] + 1, jnp.sin(state[1]) * (1 + 0.1 * state[0])

            return at + 1, loop(lambda state: state[0] < count, within, (0, x), 6)[1] + 0.1 * x

        end = jnp.minimum(n, 6)
        return loop(lambda state: state[0] < end, step, (0, x), 6)[1]

    assert_gradients_agree(f, numbers(), jnp.asarray(5))


@pytest.mark.parametrize(
    "around",
    [
        jax.jit,
        jax.checkpoint,
        lambda f: lambda x: lax.cond(x[0] > 0, f, jnp.cos, x),
        lambda f: lambda x: lax.scan(lambda x, row: (f(x) + row, x[0]), x, jnp.ones((3, 5)))[0],
        lambda f: (
            lambda x: jax.jit(lambda x: lax.map(jax.checkpoint(f), x))(jnp.stack([x, 2 * x]))[1]
        ),
    ],
    ids=["jit", "checkpoint", "cond", "scan", "map"],
)
def test_a_loop_is_found_where_it_stands(around: Callable[..., Any]) -> None:
    assert_gradients_agree(lambda loop, x: around(lambda x: root(loop, x))(x), numbers())


def test_a_batch_of_loops_is_differentiated() -> None:
    """A loop of a batch that has ended keeps its state."""

    def steps(a: Array) -> Array:
        far = lambda state: (state[0] < 40) & (jnp.abs(state[1] ** 2 - a) > 1e-9)  # noqa: E731
        return lax.while_loop(far, lambda s: (s[0] + 1, (s[1] + a / s[1]) / 2), (0, 1 + a))[1]

    def one(a: Array) -> Array:
        far = lambda state: (state[0] < 40) & (jnp.abs(state[1] ** 2 - a) > 1e-9)  # noqa: E731
        return by_hand(far, lambda s: (s[0] + 1, (s[1] + a / s[1]) / 2), (0, 1 + a), 40)[1]

    wanted = jnp.stack([jax.grad(one)(each) for each in numbers()])
    inside = memsafe.memsafe(lambda a: jax.vmap(steps)(a).sum(), "1GB")
    assert_same(jax.grad(inside)(numbers()), wanted, 1e-12)
    outside = jax.vmap(jax.grad(memsafe.memsafe(steps, "1GB")))
    assert_same(outside(numbers()), wanted, 1e-12)


def test_derivatives_of_derivatives_are_those_by_hand() -> None:
    def loss(loop: Loop) -> Callable[[Array], Array]:
        return lambda a: jnp.sum(jnp.sin(root(loop, a, 9)))

    within, a = memsafe.memsafe(loss(plain), "1GB"), numbers()
    wanted = jax.hessian(loss(by_hand))(a)
    assert_same(jax.hessian(within)(a), wanted, 1e-11)
    assert_same(jax.jacrev(jax.grad(within))(a), wanted, 1e-11)
    along = jax.grad(lambda a: jax.jvp(within, (a,), (jnp.ones_like(a),))[1])(a)
    assert_same(along, wanted.sum(0), 1e-11)


def test_a_budget_keeps_carries_of_some_steps_only() -> None:
    """At most 400 steps of 8 kB: 13 MB by hand, 0.3 MB for segment starts and one segment."""

    def f(loop: Loop, x: Array) -> Array:
        def going(state: Any) -> Any:
            return (state[0] < 400) & (jnp.abs(state[1]).max() > 1e-6)

        def step(state: Any) -> Any:
            return state[0] + 1, 0.999 * jnp.sin(state[1]) * jnp.cos(x)

        return loop(going, step, (0, x), 400)[1]

    x = jnp.linspace(0.1, 0.2, 1000)
    by_jax = jax.grad(lambda x: jnp.sum(f(by_hand, x)))
    wanted = jax.jit(by_jax)(x)
    assert peak_bytes(by_jax, x) > 10_000_000
    for budget in (500_000, 310_000):
        within = jax.grad(memsafe.memsafe(lambda x: jnp.sum(f(plain, x)), budget))
        assert_same(within(x), wanted, 1e-12)
        assert peak_bytes(within, x) <= budget


def test_steps_are_split_in_slices() -> None:
    def f(loop: Loop, x: Array, v: Array) -> Array:
        def going(state: Any) -> Any:
            return (state[0] < 5) & (jnp.abs(state[1]).max() < 50)

        return product(loop(going, lambda s: (s[0] + 1, turned(s[1])), (0, x), 5)[1], v)

    def loss(loop: Loop) -> Callable[..., Array]:
        return lambda x, v: jnp.sum(f(loop, x, v))

    within = jax.grad(safe(loss(plain)))
    wanted = jax.jit(jax.grad(loss(by_hand)))(points(), weights())
    assert_same(within(points(), weights()), wanted)
    assert peak_bytes(within, points(), weights()) <= ROOM
    assert peak_bytes(jax.grad(loss(by_hand)), points(), weights()) > ROOM


def test_a_matrix_that_steps_read_is_not_kept_for_each() -> None:
    def f(x: Array, matrix: Array) -> Array:
        going = lambda state: (state[0] < 64) & (state[1].max() > 1e-9)  # noqa: E731
        step = lambda state: (state[0] + 1, jnp.tanh(matrix @ state[1]))  # noqa: E731
        return jnp.sum(lax.while_loop(going, step, (0, x))[1])

    x = numbers(200)
    matrix = jnp.eye(200) * 0.9
    within = jax.grad(memsafe.memsafe(f, "1GB"), (0, 1))
    assert peak_bytes(within, x, matrix) < 6 * matrix.nbytes


def test_steps_after_the_end_cost_next_to_nothing() -> None:
    """A `scan` of 100 million steps would take a minute, and 2.4 GB of carries."""
    f = memsafe.memsafe(lambda a: root(plain, a, 100_000_000).sum(), "100MB")
    assert_same(jax.grad(f)(numbers(3)), jax.grad(lambda a: root(by_hand, a).sum())(numbers(3)))


def test_random_keys_may_be_carried() -> None:
    def f(loop: Loop, x: Array) -> Array:
        def step(state: Any) -> Any:
            at, key, x = state
            key, used = jax.random.split(key)
            return at + 1, key, jnp.sin(x) * jax.random.normal(used, x.shape)

        state = (0, jax.random.key(3), x)
        return loop(lambda s: (s[0] < 12) & (s[2].max() > 0.01), step, state, 12)[2]

    assert_gradients_agree(f, numbers())


def test_prints_of_steps_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Array) -> Array:
        def step(state: Any) -> Any:
            jax.debug.print("step {}", state[0])
            return state[0] + 1, jnp.sin(state[1])

        return jnp.sum(lax.while_loop(lambda s: s[0] < 3, step, (0, x))[1])

    jax.value_and_grad(memsafe.memsafe(f, "1GB"))(numbers())
    jax.effects_barrier()
    assert capsys.readouterr().out.count("step") == 3


def test_a_counter_that_wraps_in_a_loop_around_is_no_start_with_a_bound() -> None:
    def f(x: Array) -> Array:
        def outer(state: Any, _: None) -> tuple[Any, None]:
            start, x = state
            inner = lambda s: (s[0] + 2**28, jnp.sin(s[1]) * 1.1)  # noqa: E731
            _, x = lax.while_loop(lambda s: s[0] < 10, inner, (start, x))
            return (start + 2**29, x), None  # From the fifth step on, it starts below zero.

        return jnp.sum(lax.scan(outer, (jnp.int32(0), x), None, length=8)[0][1])

    x = jnp.linspace(0.1, 1.0, 5)
    step = 1e-3
    slope = jax.jit(lambda at: f(x.at[0].add(at)))
    wanted = (slope(step) - slope(-step)) / (2 * step)
    got = jax.grad(memsafe.memsafe(f, "1GB"))(x)[0]
    assert got == pytest.approx(float(wanted), rel=0.02)


def test_a_loop_without_a_bound_is_refused_with_advice() -> None:
    def f(x: Array, n: Array) -> Array:
        return jnp.sum(lax.fori_loop(0, n, lambda _, x: jnp.sin(x), x))

    with pytest.raises(ValueError, match=r"Reverse-mode differentiation") as refused:
        jax.grad(memsafe.memsafe(f, "1GB"))(numbers(), 3)
    assert "fori_loop(0, jnp.minimum(n, 100), …)" in "".join(refused.value.__notes__)
    with pytest.raises(ValueError, match=r"Reverse-mode differentiation") as refused:
        memsafe.memsafe(jax.grad(f), "1GB")(numbers(), 3)
    assert "jax.grad(memsafe(f))" in "".join(refused.value.__notes__)


def test_a_loop_through_which_nothing_is_differentiated_needs_no_bound() -> None:
    def f(x: Array, n: Array) -> Array:
        scale = lax.fori_loop(0, n, lambda _, y: 2 * y, 1.0)
        return jnp.sum(jnp.sin(x) * scale)

    assert_same(jax.grad(memsafe.memsafe(f, "1GB"))(numbers(), 3), 8 * jnp.cos(numbers()))


def test_forward_mode_needs_no_bound() -> None:
    def f(x: Array, n: Array) -> Array:
        return lax.fori_loop(0, n, lambda _, x: jnp.sin(x), x)

    within = memsafe.memsafe(f, "1GB")
    assert_same(jax.jacfwd(within)(numbers(), 3), jax.jacfwd(f)(numbers(), 3))
