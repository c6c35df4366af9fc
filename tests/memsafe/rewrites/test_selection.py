"""A sort of which few elements are read becomes a selection: the same bits, ties and places."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.extend.core import ClosedJaxpr

import memsafe
from memsafe.rewrites import redundant, selected
from memsafe.rewrites import selection as selecting
from tests.memsafe.budgets import assert_same, peak_bytes
from tests.memsafe.rewrites.reading import names, outputs, program, same_bits

pytestmark = pytest.mark.exhaustive

SIZE = 1 << 14
RANKS = np.array([[0, 5], [SIZE - 1, 7000]], np.int32)


def numbers(dtype: Any = np.float32) -> Array:
    """Numbers that repeat, unsorted, without the extremes of their type."""
    drawn = np.random.default_rng(0).integers(-3000, 3000, SIZE)
    whole = jnp.issubdtype(dtype, jnp.integer)
    return jnp.asarray(np.abs(drawn) if whole else drawn / 7).astype(dtype)


def special(dtype: Any = np.float32) -> Array:
    """NaNs of both signs, infinities, and numbers near zero."""
    x = np.array(numbers(np.float32))
    x[::3], x[1::9], x[4::9] = np.nan, -np.nan, np.inf
    x[7::9], x[2::27] = -np.inf, np.finfo(np.float32).tiny
    return jnp.asarray(x).astype(dtype)


def written(function: Callable[..., Any], *arguments: Any) -> ClosedJaxpr:
    return redundant(program(function, *arguments)).program


def has_sort(closed: ClosedJaxpr) -> bool:
    return "sort" in names(closed)


def two_medians(x: Array) -> Array:
    return jnp.median(x) + jnp.median(jnp.abs(x - jnp.median(x)))


READ: dict[str, Callable[[Array], Any]] = {
    "median": jnp.median,
    "quantile": lambda x: jnp.quantile(x, 0.3),
    "quantiles": lambda x: jnp.quantile(x, jnp.array([0.1, 0.5, 0.99])),
    "percentile": lambda x: jnp.percentile(x, 90, method="nearest"),
    "nanmedian": jnp.nanmedian,
    "nanquantile": lambda x: jnp.nanquantile(x, 0.8),
    "of a matrix": lambda x: jnp.median(x.reshape(128, -1), keepdims=True),
    "two medians": two_medians,
    "largest": lambda x: jnp.sort(x)[-5:],
    "in steps": lambda x: jnp.sort(x)[10:9000:2000],
    "by a narrow index": lambda x: lax.dynamic_slice(jnp.sort(x), (jnp.uint8(200),), (2,)),
    "one": lambda x: lax.dynamic_slice(jnp.sort(x), (jnp.int32(SIZE),), (3,)),
    "several": lambda x: jnp.sort(x)[RANKS],
    "beyond the end": lambda x: jnp.sort(x).at[RANKS * 2].get(mode="fill"),
    "nearest to the end": lambda x: jnp.sort(x).at[RANKS * 2].get(mode="clip"),
    "place": lambda x: jnp.argsort(x)[RANKS],
    "sum of all": lambda x: (jnp.sort(x)[3], jnp.sum(jnp.sort(x) > 1)),
}


@pytest.mark.parametrize("x", [numbers(), special()], ids=["numbers", "special"])
@pytest.mark.parametrize("name", READ)
def test_elements_of_few_ranks_are_the_same_bits(name: str, x: Array) -> None:
    closed = written(READ[name], x)
    rewritten = selected(closed)
    assert has_sort(closed)
    assert not has_sort(rewritten.program)
    for got, wanted in zip(outputs(rewritten.program, x), outputs(closed, x), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "uint32", "int32", "int64", "uint64", "float64"]
)
def test_elements_of_every_type_are_the_same_bits(dtype: str) -> None:
    with jax.enable_x64(new_val=True):
        x = numbers(dtype)
        closed = written(lambda x: jnp.sort(x)[RANKS], x)
        rewritten = selected(closed).program
        assert not has_sort(rewritten)
        assert same_bits(closed, rewritten, x)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_elements_of_half_precision_are_the_same(dtype: Any) -> None:
    x = special(dtype)
    closed = written(lambda x: jnp.sort(x)[RANKS], x)
    (got,), (wanted,) = outputs(selected(closed).program, x), outputs(closed, x)
    np.testing.assert_array_equal(got.astype(float), wanted.astype(float))


def test_places_of_equal_elements_are_in_order() -> None:
    x = jnp.asarray(np.random.default_rng(0).choice([-0.0, 0.0, 1.0, np.nan, -np.nan], SIZE))
    closed = written(lambda x: jnp.argsort(x)[RANKS + 1000], x)
    assert same_bits(closed, selected(closed).program, x)


WRITTEN: dict[str, Callable[[Array], Array]] = {
    name: READ[name] for name in ("median", "quantiles", "percentile", "nanmedian", "largest")
} | {
    "several": lambda x: jnp.sum(jnp.sort(x)[RANKS] * RANKS),
    "beyond the end": lambda x: jnp.sum(jnp.sort(x).at[RANKS * 2].get(mode="fill", fill_value=0)),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_gradient_goes_to_the_same_elements(name: str) -> None:
    """All numbers differ, because in jax 0.12 the sort of a quantile takes any of equal ones."""
    x = jnp.asarray(np.random.default_rng(0).permutation(SIZE), np.float32)
    closed = written(jax.grad(lambda x: jnp.sum(WRITTEN[name](x) ** 2)), x)
    rewritten = selected(closed).program
    assert not has_sort(rewritten)
    (got,), (wanted,) = outputs(rewritten, x), outputs(closed, x)
    assert np.count_nonzero(wanted) > 0
    np.testing.assert_array_equal(got, wanted)


def test_a_note_tells_how_many_passes_select() -> None:
    (note,) = selected(written(jnp.median, numbers())).notes
    assert note.endswith("2 of 16384 sorted elements selected in 8 passes")


LEFT: dict[str, Callable[[Array], Any]] = {
    "all sorted": jnp.sort,
    "too many": lambda x: jnp.sort(x)[:33],
    "by what is read": lambda x: jnp.sort(x)[jnp.sort(x)[3].astype(int)],
    "in their order": lambda x: jnp.sum(jnp.cumsum(jnp.sort(x))),
    "with others": lambda x: lax.sort((x, x + 1), num_keys=1)[1][5],
    "by two keys": lambda x: lax.sort((x, x + 1), num_keys=2)[0][5],
    "along rows": lambda x: jnp.median(x.reshape(4, -1), axis=1),
    "of four bits": lambda x: jnp.sort(x.astype(jnp.int4))[5],
    "little": lambda x: jnp.median(x[1:]),
    "tangents": lambda x: jax.jvp(jnp.median, (x,), (x,)),
}


@pytest.mark.parametrize("name", LEFT)
def test_a_sort_that_is_read_otherwise_is_left(name: str) -> None:
    closed = written(LEFT[name], numbers())
    rewritten = selected(closed)
    assert has_sort(rewritten.program)
    assert rewritten.notes == ()


def test_a_count_that_is_off_by_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of the comparison in the tests above."""
    x, found = jnp.arange(float(SIZE)), selecting.of_ranks
    closed = written(jnp.median, x)
    monkeypatch.setattr(
        selecting, "of_ranks", lambda image, ranks, sizes: found(image, ranks + 1, sizes)
    )
    assert not same_bits(closed, selected(closed).program, x)


def distances(x: Array) -> Array:
    return jnp.sum((x[:, None] - x[None]) ** 2, axis=-1)


def bandwidth(x: Array) -> Array:
    d = distances(x)
    return jnp.mean(jnp.exp(-d / lax.stop_gradient(jnp.median(d))))


def through(x: Array) -> Array:
    d = distances(x)
    return jnp.mean(jnp.exp(-d / jnp.median(d)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.median(distances(x)),
        lambda x: jnp.nanquantile(jnp.where(distances(x) < 1, jnp.nan, distances(x)), 0.2),
        jax.value_and_grad(bandwidth),
        jax.value_and_grad(through),
    ],
    ids=["median", "nanquantile", "bandwidth", "through"],
)
def test_a_median_of_all_pairs_takes_a_quarter(function: Callable[..., Any]) -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((400, 2)), np.float32)
    budget = peak_bytes(function, x) // 4
    safe = memsafe.memsafe(function, budget)
    assert_same(safe(x), jax.jit(function)(x), 1e-6)
    assert peak_bytes(safe, x) <= budget
    with pytest.raises(memsafe.BudgetError, match="sort cannot be split"):
        memsafe.memsafe(function, budget, rewrites=("redundant", "reshapes"))(x)


@pytest.mark.parametrize(("share", "is_selected"), [(1, False), (1 / 4, True)])
def test_a_median_that_fits_is_sorted(
    share: float, capsys: pytest.CaptureFixture[str], *, is_selected: bool
) -> None:
    def median(x: Array) -> Array:
        return jnp.median(distances(x))

    x = jnp.asarray(np.random.default_rng(0).standard_normal((400, 2)), np.float32)
    memsafe.explain(median, int(share * peak_bytes(median, x)))(x)
    assert ("sorted elements selected" in capsys.readouterr().out) == is_selected
