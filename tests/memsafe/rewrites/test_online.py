"""A maximum and its sum of exponentials become one equation, and so one loop."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

import memsafe
from memsafe.function import Calls
from memsafe.options import DEFAULT_REWRITES, Asked, Options
from memsafe.plan import Plan
from memsafe.rewrites import online_sums, redundant
from tests.memsafe.rewrites.reading import names, program

pytestmark = pytest.mark.exhaustive

ROWS = np.random.default_rng(0).uniform(-9, 9, (24, 40)).astype(np.float32)
HALVES = jnp.asarray(ROWS).astype(jnp.bfloat16)
SQUARE = ROWS[:, :24]


def shifted(x: Any, shift: Any) -> Any:
    return jnp.sum(jnp.exp(x - shift), -1)


FORMS: dict[str, tuple[Any, Any]] = {
    "logsumexp": (jax.nn.logsumexp, ROWS),
    "logsumexp of rows": (lambda x: jax.nn.logsumexp(x, -1), ROWS),
    "logsumexp of columns": (lambda x: jax.nn.logsumexp(x, 0, keepdims=True), ROWS),
    "logsumexp of 16 bits": (lambda x: jax.nn.logsumexp(x, -1), HALVES),
    "logsumexp of a mask": (lambda x: jax.nn.logsumexp(jnp.where(x > 0, x, -jnp.inf), -1), ROWS),
    "logsumexp of what is converted": (
        lambda x: jax.nn.logsumexp(jnp.cos(x).astype("float32"), -1),
        HALVES,
    ),
    "softmax": (jax.nn.softmax, ROWS),
    "softmax of 16 bits": (jax.nn.softmax, HALVES),
    "log_softmax": (jax.nn.log_softmax, ROWS),
    "a gradient": (jax.grad(lambda x: jnp.sum(jax.nn.softmax(x) ** 2)), ROWS),
    "a batch": (jax.vmap(jax.nn.logsumexp), ROWS),
    "attention": (lambda x: jax.nn.softmax(x @ x.T) @ x, ROWS),
    "by hand": (lambda x: shifted(x, x.max(-1, keepdims=True)), ROWS),
    "by hand, reshaped": (lambda x: shifted(x, x.max(-1).reshape(24, 1)), ROWS),
    "by hand, at most 3": (lambda x: shifted(x, jnp.minimum(x.max(-1), 3.0)[:, None]), ROWS),
    "converted between": (
        lambda x: shifted(x.astype("float32"), x.max(-1, keepdims=True).astype("float32")),
        HALVES,
    ),
}


def rewritten(function: Any, *arguments: Any) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    before = redundant(program(function, *arguments)).program
    return before, online_sums(before).program


@pytest.mark.parametrize(("function", "x"), FORMS.values(), ids=FORMS.keys())
def test_what_is_written_in_many_ways_becomes_one_equation(function: Any, x: Any) -> None:
    before, after = rewritten(function, x)
    assert names(after).count("max_and_sumexp") == 1
    assert names(after).count("reduce_max") == names(before).count("reduce_max") - 1
    assert names(after).count("reduce_sum") == names(before).count("reduce_sum") - 1
    assert before.out_avals == after.out_avals


@pytest.mark.parametrize(("function", "x"), FORMS.values(), ids=FORMS.keys())
def test_what_is_computed_whole_stays_bit_for_bit_and_costs_the_same(function: Any, x: Any) -> None:
    before, after = (
        jax.jit(jaxpr_as_fun(each)).lower(x).compile() for each in rewritten(function, x)
    )
    for ours, theirs in zip(after(x), before(x), strict=True):
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()
    assert after.as_text().count(" exponential(") == before.as_text().count(" exponential(")
    taken = [each.memory_analysis().temp_size_in_bytes for each in (after, before)]
    assert taken[0] <= taken[1]


def test_the_note_says_what_is_reduced_and_where() -> None:
    (note,) = online_sums(program(FORMS["by hand"][0], ROWS)).notes
    place, text = note.split(": ", 1)
    assert "test_online.py:" in place
    assert text == "maximum and sum of exponentials of [24, 40] over [1] as one"


@pytest.mark.parametrize(
    ("function", "x"),
    [
        pytest.param(lambda x: shifted(x, x.max()), ROWS, id="the maximum of more"),
        pytest.param(lambda x: shifted(x, x.max(0)), SQUARE, id="the maximum of another dimension"),
        pytest.param(lambda x: shifted(x, x.max(1)), SQUARE, id="maxima of other rows"),
        pytest.param(
            lambda x: shifted(
                (y := x[..., None] * jnp.arange(3.0)),
                lax.reshape(y.max(-1), x.shape, dimensions=(1, 0))[..., None],
            ),
            SQUARE,
            id="maxima transposed by a reshape",
        ),
        pytest.param(
            lambda x: shifted(x, jnp.repeat(x.max(1), 2)[:24, None]), SQUARE, id="repeated"
        ),
        pytest.param(lambda x: shifted(x, jnp.cos(x).max(1)[:, None]), ROWS, id="of other values"),
        pytest.param(
            lambda x: shifted(x, x.max(1)[:, None] + x[:, :1]), ROWS, id="and something else"
        ),
        pytest.param(lambda x: shifted(x, x.min(1)[:, None]), ROWS, id="a minimum"),
        pytest.param(lambda x: shifted(x, 3.0), ROWS, id="a number"),
        pytest.param(lambda x: shifted(x, jnp.arange(40.0)), ROWS, id="a count"),
        pytest.param(lambda x: shifted(x, x[:, :1]), ROWS, id="the first"),
        pytest.param(
            lambda x: shifted(x, jnp.broadcast_to(x.max(-1, keepdims=True), (5, 1))),
            ROWS[:1],
            id="of one row for many",
        ),
        pytest.param(
            lambda x: shifted(x.astype("bfloat16"), x.max(1)[:, None].astype("bfloat16")),
            ROWS,
            id="rounded between",
        ),
        pytest.param(
            lambda x: shifted(x, x.astype("float8_e5m2").max(1).astype("float32")[:, None]),
            ROWS,
            id="of 8 bits",
        ),
        pytest.param(
            lambda x: shifted(x, x.astype(int).max(1).astype("float32")[:, None]),
            ROWS,
            id="of integers",
        ),
        pytest.param(lambda x: jnp.sum(jnp.exp(x.max(1)[:, None] - x)), ROWS, id="the other way"),
        pytest.param(lambda x: jnp.sum(jnp.tanh(x - x.max())), ROWS, id="no exponential"),
        pytest.param(lambda x: jnp.prod(jnp.exp(x - x.max())), ROWS, id="a product"),
        pytest.param(
            lambda x: jnp.sum(jnp.exp(x - x.max(1, keepdims=True))), ROWS, id="a sum over more"
        ),
    ],
)
def test_what_is_no_such_sum_stays(function: Any, x: Any) -> None:
    before, after = rewritten(function, x)
    assert after is before


def test_of_two_sums_under_one_maximum_one_is_taken() -> None:
    def twice(x: Any) -> Any:
        shift = x.max(-1, keepdims=True)
        return shifted(x, shift), shifted(x, jnp.minimum(shift, 3.0))

    before, after = rewritten(twice, ROWS)
    assert names(after).count("max_and_sumexp") == 1
    for ours, theirs in zip(jaxpr_as_fun(after)(ROWS), jaxpr_as_fun(before)(ROWS), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_print_beside_it_stays() -> None:
    def printing(x: Any) -> Any:
        jax.debug.print("{}", x[0, 0])
        return jax.nn.logsumexp(x)

    _, after = rewritten(printing, ROWS)
    assert {"debug_print", "debug_callback"} & set(names(after))
    assert "max_and_sumexp" in names(after)


LONG = 1 << 20
BUDGET = 2_000_000
"""Bytes: less than half of `LONG` numbers."""

ODD = {
    "finite": lambda at: jnp.sin(at) * 50,
    "masked at first": lambda at: jnp.where(at > LONG - 5, -800.0, -jnp.inf),
    "masked at last": lambda at: jnp.where(at < 5, -800.0, -jnp.inf),
    "masked": lambda at: jnp.where(at < 0, at, -jnp.inf),
    "an infinity": lambda at: jnp.where(at == LONG // 2, jnp.inf, -at),
    "a NaN": lambda at: jnp.where(at == LONG // 2, jnp.nan, -at),
    "rising": lambda at: at / 100,
}


def planned(function: Any, *arguments: Any, budget: int = BUDGET) -> Plan:
    calls = Calls(function=function, options=Options.checked(budget, Asked()))
    return calls.fit(arguments, {}).plan


def made(values: Any, scale: Array) -> Any:
    return values(jax.lax.iota(jnp.float32, LONG) * scale)


@pytest.mark.parametrize("values", ODD.values(), ids=ODD.keys())
def test_a_long_logsumexp_is_one_loop(values: Any) -> None:
    def f(scale: Array) -> Array:
        return jax.nn.logsumexp(made(values, scale))

    one = jnp.float32(1)
    assert [loop.count > 1 for loop in planned(f, one).loops] == [True]
    got, wanted = memsafe.memsafe(f, BUDGET)(one), jax.jit(f)(one)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_a_long_logsumexp_of_16_bits_is_one_loop() -> None:
    def f(scale: Array) -> Array:
        return jax.nn.logsumexp(made(jnp.sin, scale).astype("bfloat16"))

    one = jnp.float32(1)
    assert [loop.count > 1 for loop in planned(f, one, budget=BUDGET // 2).loops] == [True]
    got, wanted = memsafe.memsafe(f, BUDGET // 2)(one), jax.jit(f)(one)
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got.astype(float), wanted.astype(float), rtol=2**-8)


OUTER = np.random.default_rng(1).normal(size=(2, 1024, 4))


def of_pairs(x: Array, y: Array) -> Array:
    return jax.nn.logsumexp(x @ y.T)


def normalized(x: Array, y: Array) -> Array:
    """The expected score of all pairs."""
    scores = (x @ y.T).reshape(-1)
    return jnp.sum(jax.nn.softmax(scores) * scores)


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize(
    ("f", "loops"),
    [
        pytest.param(of_pairs, 1, id="logsumexp"),
        pytest.param(jax.grad(of_pairs), 2, id="its gradient"),
        pytest.param(normalized, 2, id="softmax"),
    ],
)
def test_the_scores_of_all_pairs_are_made_once_less(f: Any, loops: int) -> None:
    x, y = (jnp.asarray(each) for each in OUTER)
    assert len(planned(f, x, y).loops) == loops
    np.testing.assert_allclose(memsafe.memsafe(f, BUDGET)(x, y), jax.jit(f)(x, y), rtol=1e-12)
    before = [name for name in DEFAULT_REWRITES if name != "online"]
    asked = Options.checked(BUDGET, Asked(rewrites=before))
    fit = Calls(function=f, options=asked).fit((x, y), {})
    assert len(fit.plan.loops) == loops + 1


def test_a_row_that_does_not_fit_is_one_loop_inside_the_loop_over_rows() -> None:
    def f(scale: Array) -> Array:
        at = jax.lax.iota(jnp.float32, LONG) * scale * jnp.array([[1.0], [-2.0], [3.0]])
        return jax.nn.logsumexp(jnp.sin(at), axis=1)

    one = jnp.float32(1)
    (rows,) = planned(f, one).loops
    assert (rows.count, rows.length) == (3, 1)
    assert rows.inner is not None
    assert [loop.count > 1 for loop in rows.inner.loops] == [True]
    np.testing.assert_allclose(memsafe.memsafe(f, BUDGET)(one), jax.jit(f)(one), rtol=1e-6)


def test_what_was_traced_in_doubles_is_lowered_in_doubles() -> None:
    def f(x: Array) -> Array:
        return jax.nn.logsumexp(jnp.cos(jnp.outer(x, x)), axis=1)

    with jax.enable_x64(new_val=True):
        x = jnp.arange(512.0) / 7
        traced = jax.jit(memsafe.memsafe(f, 400_000)).trace(x)
        wanted = f(x)
        assert "max_and_sumexp" in str(planned(f, x, budget=400_000).graph.closed)
    compiled = traced.lower().compile()  # Double precision is off again.
    with jax.enable_x64(new_val=True):
        np.testing.assert_allclose(compiled(x), wanted, rtol=1e-12)
