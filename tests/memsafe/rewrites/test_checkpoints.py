"""Values that loops keep for gradients are computed again in segments, with equal results."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from memsafe import BudgetError, fit, memsafe
from memsafe.planner import Planner
from memsafe.rewrites import checkpointed_loops, checkpoints
from memsafe.rewrites.branch_pairs import branches_again
from memsafe.rewrites.checkpoints import _Segments
from tests.memsafe.rewrites.reading import names, normal, outputs, program, same_bits

STEPS = 64
WIDTH = 8


pytestmark = pytest.mark.usefixtures("doubles")


def recurrent(weight: Array, rows: Array) -> Array:
    last, _ = lax.scan(lambda h, x: (jnp.tanh(h @ weight + x), None), rows[0], rows)
    return jnp.sum(last**2)


def layers(weights: Array, x: Array) -> Array:
    """A loop whose steps have their own weights, each with a gradient."""
    return jnp.mean(lax.scan(lambda x, w: (jnp.sin(x @ w), None), x, weights)[0] ** 2)


def backwards(weight: Array, rows: Array) -> Array:
    """A loop in reverse, whose results are used too."""
    step = lambda h, x: (jnp.tanh(h @ weight + x), h * x)  # noqa: E731
    last, stacked = lax.scan(step, rows[0], rows, reverse=True)
    return jnp.sum(last) + jnp.sum(stacked**2)


def rematerialised(weight: Array, rows: Array) -> Array:
    """A loop that keeps only its carry for the gradient."""
    step = jax.checkpoint(lambda h, x: (jnp.tanh(jnp.sin(h @ weight) + x), None))
    return jnp.sum(lax.scan(step, rows[0], rows)[0] ** 2)


def counted(weight: Array, rows: Array) -> Array:
    """A loop that carries an integer, chooses by it, and is unrolled by two steps."""

    def step(carry: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        h, count = carry
        h = jnp.where(count % 3 == 0, jnp.cos(h @ weight), h) + x
        return (h, count + 1), count

    (last, _), numbers = lax.scan(step, (rows[0], jnp.int32(0)), rows, unroll=2)
    return jnp.sum(last**3) + jnp.sum(numbers)


def nested(weight: Array, rows: Array) -> Array:
    """Loops in the steps of a loop, each with its own gradient."""
    outer = jax.checkpoint(lambda h, x: (recurrent(weight, h + rows * x), None))
    return lax.scan(outer, 1.0, rows[:4, 0])[0]


def branched(weight: Array, rows: Array) -> Array:
    """A loop in a branch, whose derivative is in a branch of its own."""
    product = lambda weight, rows: jnp.sum(jnp.sin(rows @ weight))  # noqa: E731
    return lax.cond(rows[0, 0] < 9, recurrent, product, weight, rows)


def ended(weight: Array, rows: Array) -> Array:
    """A bounded number of steps, in nested loops, as equinox writes a bounded `while`."""

    def step(carry: tuple[Array, Array], x: Array) -> tuple[Array, Array]:
        h, count = carry
        return jnp.tanh(h @ weight + x), count + 1

    def some(carry: tuple[Array, Array], xs: Array) -> tuple[tuple[Array, Array], None]:
        is_on = lambda carry: carry[1] < len(rows) - 3  # noqa: E731
        stay = lambda carry, _: carry  # noqa: E731
        one = lambda carry, x: (lax.cond(is_on(carry), step, stay, carry, x), None)  # noqa: E731
        inner = lambda carry, xs: lax.scan(one, carry, xs)[0]  # noqa: E731
        return lax.cond(is_on(carry), inner, stay, carry, xs), None

    xs = rows[: len(rows) // 4 * 4].reshape(4, -1, *rows.shape[1:])
    (last, _), _ = lax.scan(jax.checkpoint(some), (rows[0], jnp.int32(0)), xs)
    return jnp.sum(last**2)


FUNCTIONS = [recurrent, layers, backwards, rematerialised, counted, nested, branched, ended]
IN_CI = [*((each, STEPS, 1) for each in FUNCTIONS), (recurrent, 61, 2), (branched, 61, 3)]


def arguments(function: Callable[..., Any], steps: int = STEPS) -> tuple[Array, Array]:
    if function is layers:
        return normal(steps, WIDTH, WIDTH), normal(32, WIDTH)
    return normal(WIDTH, WIDTH), normal(steps, WIDTH)


def gradient(function: Callable[..., Any], steps: int = STEPS) -> tuple[ClosedJaxpr, Any]:
    given = arguments(function, steps)
    return program(jax.value_and_grad(function, (0, 1)), *given), given


def temp_bytes(closed: ClosedJaxpr, given: Any) -> int:
    compiled = jax.jit(jaxpr_as_fun(closed)).lower(*given).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize(
    ("function", "steps", "levels"),
    [
        pytest.param(*each, marks=[pytest.mark.exhaustive] * (each not in IN_CI))
        for each in itertools.product(FUNCTIONS, (STEPS, 61), (1, 2, 3))
    ],
)
def test_a_gradient_in_segments_has_the_same_values(
    function: Callable[..., Any], steps: int, levels: int
) -> None:
    written, given = gradient(function, steps)
    again = checkpointed_loops(written, levels)
    assert again.notes
    if function is counted or levels > 1:
        # Fusion changes rounding: in jax 0.12, and in all versions in segments of 1 step.
        pairs = zip(outputs(written, *given), outputs(again.program, *given), strict=True)
        for wanted, got in pairs:
            np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-15)
    else:
        assert same_bits(written, again.program, *given)


@pytest.mark.parametrize("function", [recurrent, backwards, rematerialised, branched])
def test_segments_keep_two_roots_of_the_rows(function: Callable[..., Any]) -> None:
    written, given = gradient(function, 4096)
    row = 8 * WIDTH
    before = temp_bytes(written, given)
    after = temp_bytes(checkpointed_loops(written).program, given)
    saved = before - after
    # Rows of each array that the steps keep: 4096 before, 2 · 64 after.
    assert saved >= 0.9 * (4096 - 128) * row


def damped(speeds: Array, friction: Array, field: Array) -> Array:
    """60 steps of a wave, each of which keeps three arrays for the gradient and carries two."""

    def step(fields: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        now, before = fields
        tension = jnp.roll(now, 1) + jnp.roll(now, -1) - 2 * now
        force = speeds**2 * tension - jnp.sin(now) - friction * (now - before)
        return (2 * now - before + 0.01 * force, now), None

    return (lax.scan(step, (field, field), length=60)[0][0] ** 2).mean()


@pytest.mark.exhaustive  # Takes half a minute.
def test_where_two_levels_are_refused_a_third_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    given, wanted = [normal(4096) for _ in range(3)], jax.value_and_grad(damped, (0, 1, 2))
    memory = jax.jit(wanted).lower(*given).compile().memory_analysis()
    own = memory.argument_size_in_bytes + memory.output_size_in_bytes
    budget = (own + memory.temp_size_in_bytes) // 4
    got = memsafe(wanted, budget)(*given)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted(*given)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)
    monkeypatch.setattr(fit, "deepest", lambda *_: ())
    with pytest.raises(BudgetError):
        memsafe(wanted, budget).lower(*given)


def test_two_levels_keep_less_than_one() -> None:
    written, given = gradient(recurrent, 4096)
    one, two = (temp_bytes(checkpointed_loops(written, each).program, given) for each in (1, 2))
    assert two < 0.7 * one


def integrated(weight: Array, rows: Array) -> Array:
    """Runge-Kutta steps, each of which keeps over 30 times the bytes that it carries."""
    wide = jnp.tile(weight, (1, 4))
    slope = lambda x: jnp.tanh(x @ wide) @ wide.T  # noqa: E731

    def step(x: Array, _: None) -> tuple[Array, None]:
        found = slope(x)
        for _ in range(3):
            found = slope(x + 0.05 * found)
        return x + 0.1 * found, None

    return jnp.sum(lax.scan(step, rows, None, STEPS)[0] ** 2)


@pytest.mark.parametrize(("levels", "length"), [(1, 1), (2, 8)])
def test_large_rows_are_kept_of_single_steps(levels: int, length: int) -> None:
    written, _ = gradient(integrated, 4096)
    (note,) = checkpointed_loops(written, levels).notes
    assert note.endswith(f"in segments of {length}")


@pytest.mark.parametrize(("is_loop", "exact"), [(False, True), (True, False)])
def test_a_segment_of_one_step_is_predicted_as_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch, *, is_loop: bool, exact: bool
) -> None:
    if is_loop:
        monkeypatch.setattr(_Segments, "_is_one", lambda *_: False)
    written, given = gradient(integrated, 4096)
    again = checkpointed_loops(written, 2).program
    planner = Planner(slice_bytes=16e6)
    predicted = planner.plan(again, float("inf")).predicted
    assert (0.9 < predicted / temp_bytes(again, given) < 1.2) == exact


@pytest.mark.parametrize("share", [0.6, 0.3])
def test_loops_keep_the_share_that_is_asked_for(share: float) -> None:
    written, given = gradient(rematerialised, 4096)
    rows = 4096 * 8 * WIDTH
    kept = temp_bytes(checkpointed_loops(written, 1, share).program, given)
    # The longest segment has a third of the rows.
    assert min(share, 1 / 3) - 0.1 <= kept / rows <= share + 0.05


def test_a_note_names_the_line_the_steps_and_the_segments() -> None:
    written, _ = gradient(rematerialised)
    (note,) = checkpointed_loops(written).notes
    assert note.startswith(str(Path(__file__).relative_to(Path.cwd())))
    assert note.endswith("64 steps of a scan computed once more for its gradient, in segments of 8")


@pytest.mark.parametrize("function", [branched, ended])
@pytest.mark.parametrize("is_joined", [True, False])
def test_a_loop_in_a_branch_keeps_less_if_branches_are_joined(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], *, is_joined: bool
) -> None:
    if not is_joined:
        monkeypatch.setattr(checkpoints, "branches_again", lambda closed: closed)
    written, given = gradient(function, 4096)
    rows = 1024 * 8 * WIDTH  # One array for the steps of an inner loop of `ended`.
    saved = temp_bytes(written, given) - temp_bytes(checkpointed_loops(written).program, given)
    assert (saved >= 0.5 * rows) == is_joined


def test_branches_without_a_loop_to_cut_are_left() -> None:
    written = program(lambda choice, x: chosen(choice, choice, x), np.bool_(1), normal(WIDTH))
    assert branches_again(written) is not written
    assert checkpointed_loops(written).program is written


def chosen(first: Array, second: Array, x: Array) -> Array:
    """Two choices: the second one reads the value that the first one keeps."""
    kept = lax.cond(first, jnp.sin, jnp.cos, x)
    return lax.cond(second, lambda kept, x: kept * x, lambda kept, x: kept + x, kept, x)


@pytest.mark.parametrize("is_first", [True, False])
def test_branches_taken_together_are_computed_in_one(*, is_first: bool) -> None:
    given = np.bool_(is_first), normal(WIDTH)
    written = program(lambda choice, x: chosen(choice, choice, x), *given)
    again = branches_again(written)
    assert (names(written).count("cond"), names(again).count("cond")) == (2, 1)
    assert same_bits(written, again, *given)


def test_branches_of_two_choices_are_left() -> None:
    written = program(chosen, np.bool_(1), np.bool_(0), normal(WIDTH))
    assert branches_again(written) is written


def test_branches_whose_value_is_a_result_are_left() -> None:
    def both(choice: Array, x: Array) -> tuple[Array, Array]:
        kept = lax.cond(choice, jnp.sin, jnp.cos, x)
        return kept, lax.cond(choice, jnp.sin, jnp.cos, kept)

    written = program(both, np.bool_(1), normal(WIDTH))
    assert branches_again(written) is written


def test_branches_with_effects_are_left() -> None:
    def shown(choice: Array, x: Array) -> Array:
        printing = lambda x: (jax.debug.print("{}", x[0]), jnp.sin(x))[1]  # noqa: E731
        kept = lax.cond(choice, printing, jnp.cos, x)
        return lax.cond(choice, jnp.sin, jnp.cos, kept)

    written = program(shown, np.bool_(1), normal(WIDTH))
    assert branches_again(written) is written


def test_branches_that_draw_anew_are_left() -> None:
    def drawn(choice: Array, x: Array) -> Array:
        kept = lax.cond(choice, lambda x: x * lax.rng_uniform(0.0, 1.0, x.shape), jnp.cos, x)
        return lax.cond(choice, jnp.sin, jnp.cos, kept)

    written = program(drawn, np.bool_(1), normal(WIDTH))
    assert branches_again(written) is written


def kept_by_the_caller(weight: Array, rows: Array) -> tuple[Array, Array]:
    """The value that the gradient reads is a result as well."""

    def stacked(weight: Array) -> tuple[Array, Array]:
        last, found = lax.scan(lambda h, _: (jnp.tanh(h @ weight),) * 2, rows[0], rows)
        return jnp.sum(last), found

    (_, found), slope = jax.value_and_grad(stacked, has_aux=True)(weight)
    return found, slope


def test_what_is_a_result_too_is_not_computed_again() -> None:
    given = arguments(recurrent)
    written = program(kept_by_the_caller, *given)
    again = checkpointed_loops(written)
    assert same_bits(written, again.program, *given)
    found = [out.aval.shape for out in again.program.jaxpr.outvars]
    assert found == [(STEPS, WIDTH), (WIDTH, WIDTH)]


def turning(count: int, weight: Array, rows: Array) -> Array:
    """Layers of a recurrent network, each in the direction opposite to that before."""
    for layer in range(count):
        step = lambda h, x: (h := jnp.tanh(h @ weight + x), h)  # noqa: E731
        _, rows = lax.scan(step, jnp.zeros_like(rows[0]), rows, reverse=bool(layer % 2))
    return jnp.sum(rows**2)


def read_together(weight: Array, rows: Array) -> Array:
    """Two loops whose results a third reads, in the other direction."""
    step = lambda h, x: (h := jnp.tanh(h @ weight + x), h)  # noqa: E731
    _, first = lax.scan(step, rows[0], rows)
    _, second = lax.scan(step, rows[1], rows)
    back = lambda h, pair: (jnp.tanh(h @ weight + pair[0] * pair[1]), None)  # noqa: E731
    return lax.scan(back, rows[0], (first, second), reverse=True)[0]


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(partial(turning, 3), id="a loop of two pairs"),
        pytest.param(read_together, id="two first loops of one second"),
        pytest.param(jax.grad(partial(turning, 2)), id="a gradient of such loops"),
    ],
)
@pytest.mark.parametrize("levels", [1, 2])
def test_a_loop_is_computed_again_for_one_other(function: Callable[..., Any], levels: int) -> None:
    given = arguments(recurrent)
    written = program(function, *given)
    again = checkpointed_loops(written, levels)
    assert again.notes
    assert same_bits(written, again.program, *given)


def test_loops_that_no_gradient_reads_are_left() -> None:
    written = program(recurrent, *arguments(recurrent))
    assert checkpointed_loops(written).program is written


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_loops_of_few_steps_are_left(steps: int) -> None:
    written, _ = gradient(recurrent, steps)
    assert checkpointed_loops(written).program is written


def test_loops_with_effects_are_left() -> None:
    def shown(weight: Array, rows: Array) -> Array:
        def step(h: Array, x: Array) -> tuple[Array, None]:
            jax.debug.print("{}", h[0])
            return jnp.tanh(h @ weight + x), None

        return jnp.sum(lax.scan(step, rows[0], rows)[0])

    written = program(jax.grad(shown), *arguments(recurrent))
    assert checkpointed_loops(written).program is written


def test_loops_that_draw_anew_are_left() -> None:
    def dropped(weight: Array, rows: Array) -> Array:
        def step(h: Array, x: Array) -> tuple[Array, None]:
            return jnp.tanh(h @ weight + x) * lax.rng_uniform(x[0], 1 + x[0], ()), None

        return jnp.sum(lax.scan(step, rows[0], rows)[0])

    written = program(jax.grad(dropped), *arguments(recurrent))
    assert checkpointed_loops(written).program is written


def test_a_batch_of_gradients_has_the_same_bits() -> None:
    given = (normal(3, WIDTH, WIDTH), normal(STEPS, WIDTH))
    batched = jax.vmap(jax.grad(recurrent), in_axes=(0, None))
    written = program(partial(batched), *given)
    again = checkpointed_loops(written)
    assert again.notes
    assert same_bits(written, again.program, *given)
