"""explain says in words what memsafe does, from shapes alone, and raises what memsafe raises."""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array, lax

import memsafe
from memsafe import BudgetError
from memsafe.budget import as_text
from tests.memsafe.budgets import (
    COUNT,
    ROOM,
    assert_same,
    assume,
    balanced,
    in_libraries,
    peak_bytes,
    points,
    product,
    safe,
    weights,
)

pytestmark = pytest.mark.usefixtures("doubles")

Said = Callable[..., str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Function that returns what `explain` prints for a call."""

    def printed(function: Any, budget: Any, *arguments: Any, **options: Any) -> str:
        memsafe.explain(function, budget, **options)(*arguments)
        return capsys.readouterr().out

    return printed


FILE = __file__.removeprefix(f"{Path.cwd()}/")  # The path as messages write it.


def line_of(text: str, file: str = FILE) -> str:
    """`file:line` of the only line of a file that contains `text`, except calls of `line_of`."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    (found,) = (n for n, line in enumerate(lines, 1) if text in line and "line_of(" not in line)
    return f"{file}:{found}"


def chain(a: Array, b: Array, v: Array) -> Array:
    return (a @ b) @ v  # the chain


def matrices() -> tuple[Array, Array, Array]:
    square = jnp.ones((200, 200))
    return square, square, jnp.ones(200)


CHAIN_ROOM = 2 * 8 * 200 * 200 + 50_000
"""Bytes: the two matrices, and less than a sixth of their product."""


def test_a_loop_is_told_by_its_axis_its_size_and_its_slices(said: Said) -> None:
    text = said(product, ROOM, points(), weights())
    loop = re.search(
        r"loop over (\d+) in (\d+) slices of (\d+), .* at a time: dimension (\d)", text
    )
    assert loop is not None, text
    size, count, length, dimension = map(int, loop.groups())
    assert (size, dimension) == (COUNT, 1)  # The short reduced dimension comes first.
    assert count == -(-size // length) > 1
    assert f"f64[3,{COUNT},{COUNT}]" in text
    assert f"makes 2.05 kB f64[{COUNT}] of dot_general" in text


def test_the_sizes_are_those_of_the_compiler(said: Said) -> None:
    arguments = points(), weights()
    text = said(product, ROOM, *arguments)
    first, *others = text.splitlines()
    within = as_text(peak_bytes(safe(product), *arguments))
    assert first.startswith(f"product in {as_text(ROOM)}: {within} compiled, ")
    assert f"  as written: {as_text(peak_bytes(product, *arguments))}" in others


def test_the_prediction_stands_beside_the_compiled_figure_and_near_it(said: Said) -> None:
    text = said(product, ROOM, points(), weights())
    predicted = re.search(r"predicted ([0-9.]+) kB without the arguments", text)
    compiled = re.search(r": ([0-9.]+) kB compiled", text)
    assert predicted is not None
    assert compiled is not None
    arguments = sum(each.nbytes for each in (points(), weights())) / 1e3
    assert float(predicted[1]) == pytest.approx(float(compiled[1]) - arguments, rel=0.2)


def test_values_are_told_by_the_user_s_own_line(said: Said) -> None:
    def f(x: Array) -> Array:
        return jnp.cos(x[:, None] * x[None, :]) @ x  # the pairs

    assert line_of("# the pairs") in said(f, ROOM, weights())


def test_what_is_kept_is_told_with_its_reason_and_the_user_s_line(said: Said) -> None:
    def f(x: Array) -> Array:
        near = jnp.cos(x[:, None] * x[None, :])
        whole = jnp.abs(jnp.fft.fft2(near)).sum()  # not to be split
        return whole + jnp.cos(near @ near).sum()

    plain = peak_bytes(f, weights())
    text = said(f, 0.95 * plain, weights())
    kept = [line for line in text.splitlines() if line.strip().startswith("kept: ")]
    assert any("fft" in line and line_of("# not to be split") in line for line in kept), text


def test_loops_within_a_scan_are_told_as_inside_it(said: Said) -> None:
    def f(x: Array) -> Array:
        return lax.scan(lambda c, _: (jnp.tanh(c + product(points(), c)), None), x, length=3)[0]

    text = said(f, ROOM, weights())
    assert re.search(r"inside scan at .*test_explain.py:\d+:\n +loop over 256", text), text


@pytest.mark.parametrize("axis", [0, 1])
def test_what_a_compiler_keeps_unforeseen_is_split_all_the_same(axis: int) -> None:
    """XLA of jax 0.10 stores the pairs, although the prediction counts them as fused."""

    def f(x: Array) -> Array:
        return jnp.cos(x[:, None] * x[None, :]).sum(axis)

    assert_same(safe(f)(weights()), f(weights()))
    assert peak_bytes(safe(f), weights()) <= ROOM


def test_a_program_that_fits_is_left_as_written(said: Said) -> None:
    plain = peak_bytes(product, points(), weights())
    text = said(product, plain, points(), weights())
    temporary = as_text(plain - points().nbytes - 2 * weights().nbytes)
    size = as_text(plain)
    held = as_text(in_libraries(product, points(), weights()))
    assert text.splitlines() == [
        f"product in {size}: {size} compiled, {temporary} of them temporary",
        f"  at most {held} of them in libraries, which the compiler does not report",
        "  unchanged: the program as written fits the budget",
    ]
    assert "left as written" not in said(product, plain - 1, points(), weights())


def test_a_program_that_only_a_rewrite_changes_is_not_left_as_written(said: Said) -> None:
    assert peak_bytes(chain, *matrices()) > CHAIN_ROOM
    text = said(chain, CHAIN_ROOM, *matrices())
    assert "left as written" not in text
    assert "loop over" not in text
    assert "1 plan compiled" in text
    assert f"rewritten: {line_of('# the chain')}: (a @ b) @ c as a @ (b @ c)" in text


def test_shapes_stand_for_arrays(said: Said) -> None:
    arrays = points(), weights()
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in arrays]
    assert said(product, ROOM, *shapes) == said(product, ROOM, *arrays)
    with pytest.raises(TypeError, match=r"got .*ShapeDtypeStruct; wanted .*; do this: .*explain"):
        safe(product)(*shapes)


def test_nothing_is_computed(said: Said) -> None:
    calls: list[int] = []

    def f(x: Array, v: Array) -> Array:
        jax.debug.callback(lambda: calls.append(1))
        return product(x, v)

    said(f, ROOM, points(), weights())
    jax.effects_barrier()
    assert calls == []
    safe(f)(points(), weights())
    jax.effects_barrier()
    assert calls == [1]


def test_what_cannot_fit_raises_as_memsafe_does(capsys: pytest.CaptureFixture[str]) -> None:
    messages = []
    for transform in (memsafe.explain, memsafe.memsafe):
        with pytest.raises(BudgetError, match="in the way") as caught:
            transform(product, 3_000)(points(), weights())
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert capsys.readouterr().out == ""


def test_a_refusal_names_what_is_large_and_what_keeps_it() -> None:
    def mirrored(x: Array) -> Array:
        k = jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1))
        return ((k - jnp.sin(k[::-1, ::-1])) ** 2).sum() + x[0, 0]

    with pytest.raises(BudgetError) as caught:
        memsafe.memsafe(jax.grad(mirrored), 60_000)(points())
    first, *others, advice = str(caught.value).splitlines()
    assert "the smallest reached" in first
    assert "arguments and results alone" in others[0]
    assert any("of exp at" in line and "rev cannot be split" in line for line in others[1:])
    assert "give a budget" in advice


@pytest.mark.parametrize(
    ("most", "advice"),
    [(1.05, "give a larger budget or max_slowdown"), (1e6, "give a budget of")],
)
def test_a_budget_is_advised_only_if_a_quick_plan_keeps_it(most: float, advice: str) -> None:
    with pytest.raises(BudgetError) as caught:
        memsafe.memsafe(jax.grad(balanced), 20_000, max_slowdown=most)(points())
    assert advice in str(caught.value).splitlines()[-1]


def test_what_slices_do_again_takes_less_time_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    safe = memsafe.memsafe(jax.grad(balanced), 40_000)
    assert safe(points()).shape == points().shape
    assume(monkeypatch, cached=1.0)
    with pytest.raises(BudgetError, match="times as long"):
        memsafe.memsafe(jax.grad(balanced), 40_000)(points())


def test_a_refusal_does_not_name_what_is_slight() -> None:
    def singular_values(x: Array) -> Array:
        return jnp.linalg.svd(x @ x.T)[1]

    with pytest.raises(BudgetError) as caught:
        memsafe.memsafe(singular_values, 60_000)(points())
    assert f"f64[{COUNT},{COUNT}] of svd" in str(caught.value)
    assert f"f64[{COUNT}] of svd" not in str(caught.value)


def test_a_refusal_names_no_small_value_of_a_slice_and_no_line_of_memsafe() -> None:
    """One slice of this gradient holds values of 8 bytes, which memsafe's own code cuts out."""
    x = weights(512)

    @jax.grad
    def gradient(x: Array) -> Array:
        return (jnp.tanh(x[:, None] * x[None]) @ weights(512)).sum()

    with pytest.raises(BudgetError) as caught:
        memsafe.memsafe(gradient, x.nbytes)(x)
    own = str(Path(memsafe.__file__).parent)
    assert own not in str(caught.value)
    assert " 8 B " not in str(caught.value)
    assert "values from 1% of the peak" in str(caught.value)
    first, *named = caught.value.blockers
    assert first.startswith("arguments and results alone")
    assert named
    assert all(f"{FILE}:" in each or "argument" in each for each in named)


def test_every_option_of_memsafe_is_one_of_explain(said: Said) -> None:
    def f(kind: str, x: Array, v: Array, *, times: int) -> Array:
        return {"sin": jnp.sin, "cos": jnp.cos}[kind](product(x, v)).repeat(times)

    explained = functools.partial(memsafe.explain, f, static_argnums=0, static_argnames="times")
    explained(ROOM)("sin", points(), weights(), times=3)
    with pytest.raises(TypeError, match="static_argnums=0"):
        memsafe.explain(f, ROOM)("sin", points(), weights(), times=3)
    donating = said(lambda x: x + 1, 10_000, points(), donate_argnums=0)
    assert f"{as_text(points().nbytes)} compiled" in donating
    with pytest.raises(BudgetError):
        memsafe.explain(lambda x: x + 1, 10_000)(points())
    assert "rewritten" not in said(chain, CHAIN_ROOM, *matrices(), rewrites=())
    split = said(product, None, points(), weights(), tensor_size_threshold="100kB")
    assert "loop over 256" in split
    finer = said(product, ROOM, points(), weights(), tensor_split_size="10kB")
    assert finer != said(product, ROOM, points(), weights())
    device = jax.devices()[-1]
    assert "loop over 256" in said(product, ROOM, points(), weights(), device=device)


def test_an_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match=r"got tensor_size=; wanted .*tensor_size_threshold"):
        memsafe.explain(product, ROOM, tensor_size=3)  # type: ignore[call-arg]
