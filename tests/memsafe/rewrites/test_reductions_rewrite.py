"""Reductions over a short last dimension stay with XLA, because its CPU library is slow there."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from memsafe.options import Options
from memsafe.rewrites import short_reductions
from tests.memsafe.rewrites.reading import names, outputs, program, same_bits

RANDOM = np.random.default_rng(0)
X, Y = (RANDOM.standard_normal((n, 5)).astype(np.float32) for n in (120, 130))
LIBRARY = "__ynn_fusion"

SUMS = {
    "squared": lambda x, y: jnp.sum((x[:, None] - y) ** 2, -1),
    "a difference read twice by one": jax.vmap(
        jax.vmap(lambda x, y: jnp.linalg.norm(x - y), (None, 0)), (0, None)
    ),
    "with a scalar": lambda x, y: jnp.sum(jnp.abs(x[:, None] / y[0, 0] - 2 * y), -1),
    "kept dimension": lambda x, y: jnp.sum((x[:, None] - y) ** 2, -1, keepdims=True),
    "a last dimension of one": lambda x, y: jnp.sum((x[:, None, :, None] - y[..., None]) ** 2, 2),
    "masked by an iota": lambda x, y: jnp.sum(
        jnp.where(lax.broadcasted_iota(int, (120, 130, 5), 2) < 3, x[:, None] - y, 0.0), -1
    ),
    "weighed by an iota of what is kept": lambda x, y: jnp.sum(
        lax.broadcasted_iota(jnp.float32, (120, 130, 5), 1) * (x[:, None] - y), -1
    ),
    "weighed by a matrix": lambda x, y: jnp.sum((x @ y.T)[:, :, None] * (x[:, None] - y), -1),
    "16 bits added up in 32": lambda x, y: jnp.sum(x[:, None].astype("bfloat16") * 2 + y, -1),
    "reshaped": lambda x, y: jnp.sum((x.reshape(120, 1, 5) - y.reshape(1, 130, 5)) ** 2, -1),
}
AS_THEY_LIE = {
    "not elementwise": lambda x, y: jnp.sum(jnp.cumsum(x[:, None] - y, 0) ** 2, -1),
    "of an argument": lambda x, y: jnp.sum(jnp.tile(x, (200, 1)) ** 2, -1) + y[0, 0],
    "read elsewhere": lambda x, y: (d := (x[:, None] - y) ** 2, jnp.sum(d, -1)),
}


@pytest.mark.parametrize("name", [*SUMS, *AS_THEY_LIE])
def test_sums_keep_their_values(name: str) -> None:
    function = {**SUMS, **AS_THEY_LIE}[name]
    before = program(function, X, Y)
    after = short_reductions(before)
    assert before.out_avals == after.program.out_avals
    assert len(after.notes) == 1
    assert "reduce_sum" not in names(after.program)
    (reduction,) = (each for each in after.program.jaxpr.eqns if each.primitive.name == "reduce")
    # Values made from small arrays have the reduced dimension first.
    assert (reduction.params["dimensions"] == (0,)) == (name in SUMS)
    for ours, theirs in zip(outputs(after.program, X, Y), outputs(before, X, Y), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * np.abs(theirs).max())


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("reduced", [jnp.sum, jnp.max, jnp.min])
def test_the_compiler_hands_none_to_its_library(reduced: Any, kind: Any) -> None:
    with jax.enable_x64(new_val=True):
        x, y = X.astype(kind), Y.astype(kind)
        before = program(lambda x, y: reduced((x[:, None] - y) ** 2, -1), x, y)
        assert LIBRARY in compiled(before, x, y)
        assert LIBRARY not in compiled(short_reductions(before).program, x, y)


def compiled(closed: Any, *arguments: Any) -> str:
    return jax.jit(jax.extend.core.jaxpr_as_fun(closed)).lower(*arguments).compile().as_text()


def test_those_in_the_body_of_a_loop_too() -> None:
    def step(total: Any, x: Any) -> Any:
        return total + jnp.sum((x[:, None] - Y) ** 2, -1), None

    before = program(lambda x: lax.scan(step, jnp.zeros((120, 130)), x)[0], X[None])
    found = Options.checked(None, {}).prepared(before, "cpu")
    (loop,) = (each for each in found.program.jaxpr.eqns if each.primitive.name == "scan")
    assert "reduce" in names(loop.params["jaxpr"])
    assert len(found.notes) == 1


@pytest.mark.parametrize("reduced", [jnp.max, jnp.min])
def test_the_largest_and_the_least_stay_bit_for_bit(reduced: Any) -> None:
    x = X.copy()
    x[4, 1], x[5, 0] = np.inf, -np.inf
    before = program(lambda x, y: reduced(x[:, None] - y, -1), x, Y)
    after = short_reductions(before).program
    assert after is not before
    assert same_bits(before, after, x, Y)


@pytest.mark.parametrize("reduced", [jnp.max, jnp.min])
def test_a_nan_among_the_terms_is_the_largest_and_the_least(reduced: Any) -> None:
    """As jax defines it. XLA's own reduction on a CPU drops the NaN, so it is no reference."""
    x = X.copy()
    x[3, 2] = np.nan
    before = program(lambda x, y: reduced(x[:, None] - y, -1), x, Y)
    (values,) = outputs(short_reductions(before).program, x, Y)
    np.testing.assert_array_equal(values, getattr(np, reduced.__name__)(x[:, None] - Y, -1))
    assert np.isnan(values[3]).all()


@settings(max_examples=25)
@given(
    dims=st.permutations(["left", "right", "last", "other"]),
    last=st.integers(1, 6),
    other=st.integers(1, 4),
    summed=st.sampled_from([("last",), ("last", "other"), ("other",)]),
)
def test_dimensions_in_any_order_give_the_same_integers(
    dims: list[str], last: int, other: int, summed: tuple[str, ...]
) -> None:
    sizes = {"left": 190, "right": 180, "last": last, "other": other}

    def points(own: str) -> Any:
        shape = [sizes[dim] if dim in (own, "last", "other") else 1 for dim in dims]
        return RANDOM.integers(-9, 9, shape).astype(np.float32)

    def function(x: Any, y: Any) -> Any:
        return jnp.sum((x - y) ** 2, [dims.index(dim) for dim in summed])

    x, y = points("left"), points("right")
    before = program(function, x, y)
    after = short_reductions(before).program
    assert same_bits(before, after, x, y)
    last_wide = [dim for dim in dims if sizes[dim] > 1][-1]
    terms = math.prod(sizes[dim] for dim in summed)
    large = math.prod(sizes.values()) >= 1 << 16
    done = large and 1 < terms <= 24 and last_wide in summed
    assert (after is not before) == done


def test_the_note_says_what_is_reduced_and_where() -> None:
    (note,) = short_reductions(program(SUMS["squared"], X, Y)).notes
    place, text = note.split(": ", 1)
    assert "test_reductions_rewrite.py:" in place
    assert text == "reduce_sum of [120, 130, 5] over [2] by XLA's own loops"


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, y: jnp.sum((x[:, None] - y) ** 2, 1), id="last one kept"),
        pytest.param(lambda x, y: jnp.sum((x[:, None] - y) ** 2), id="all"),
        pytest.param(lambda x, y: jnp.sum((x[:10, None] - y) ** 2, -1), id="small"),
        pytest.param(lambda x, y: jnp.prod(x[:, None] - y, -1), id="a product"),
        pytest.param(lambda x, y: jnp.any(x[:, None] > y, -1), id="booleans"),
        pytest.param(
            lambda x, y: jnp.sum(x.astype(int)[:, None] - y.astype(int), -1), id="integers"
        ),
        pytest.param(
            lambda x, y: lax.reduce_sum((x[:, None] - y).astype("bfloat16"), (2,)), id="16 bits"
        ),
        pytest.param(
            lambda x, y: jnp.sum((jnp.tile(x, 5)[:, None] - jnp.tile(y, 5)) ** 2, -1), id="long"
        ),
        pytest.param(
            lambda x, y: jnp.sum(jnp.tile(x, (40, 4)) ** 2, -1) + y[0, 0], id="long as it lies"
        ),
        pytest.param(
            lambda x, y: jnp.sum((x.reshape(-1, 1, 5, 1) - y.T) ** 2, (1, 3)), id="long kept last"
        ),
    ],
)
def test_what_is_fast_stays(function: Any) -> None:
    before = program(function, X, Y)
    assert short_reductions(before).program is before
