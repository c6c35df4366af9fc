"""Values that are cut along all their dimensions are computed in blocks; all others are left."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.extend.core import ClosedJaxpr
from jax.sharding import PartitionSpec

import memsafe
from memsafe.options import REWRITES
from memsafe.programs import evaluate
from memsafe.rewrites import computed_in_blocks, redundant
from memsafe.rewrites.rewritten import Rewritten
from tests.memsafe.budgets import peak_bytes
from tests.memsafe.rewrites.reading import names, program

pytestmark = pytest.mark.exhaustive

N, MORE = 40, 47
ALL = N + MORE
X = np.random.default_rng(0).standard_normal((N, 3))
Y = np.random.default_rng(1).standard_normal((MORE, 3))
V = np.random.default_rng(2).standard_normal(ALL)


@pytest.fixture(autouse=True)
def _doubles() -> Any:
    with jax.enable_x64(new_val=True):
        yield


def kernel(x: Array, y: Array) -> Array:
    return jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, axis=-1))


def of_all(x: Array, y: Array) -> Array:
    both = jnp.concatenate([x, y])
    return kernel(both, both)


def discrepancy(x: Array, y: Array) -> Array:
    """The maximum mean discrepancy of two samples, as people write it."""
    n, k = len(x), of_all(x, y)
    return k[:n, :n].mean() + k[n:, n:].mean() - 2 * k[:n, n:].mean()


def one_after_the_other(x: Array, y: Array) -> Array:
    k = of_all(x, y)
    return jnp.sin(k[:N][:, :N]).sum() + jnp.cos(k[N:][:, N:]).sum()


def split_up(x: Array, y: Array) -> Array:
    above, below = jnp.split(of_all(x, y), [N], axis=0)
    (a, b), (c, d) = (jnp.split(half, [N], axis=1) for half in (above, below))
    return a.sum() + b.mean() * c.mean() + jnp.sin(d).sum()


def put_together(x: Array, y: Array) -> Array:
    k = jnp.block([[kernel(x, x), kernel(x, y)], [kernel(y, x), kernel(y, y)]])
    return jnp.sin(k) @ V


def of_heads(x: Array, y: Array) -> Array:
    k = jnp.stack([of_all(x, y), of_all(2 * x, y)])
    return k[:, :N, :N].sum() + jnp.sin(k[:, N:, N:]).sum()


def framed(x: Array, y: Array) -> Array:
    k = jnp.pad(kernel(x, y), ((3, 2), (1, 4)), constant_values=2.0)
    return jnp.sum(k * jnp.cos(k), axis=0)


def reduced(x: Array, y: Array) -> tuple[Array, ...]:
    """Reductions of every kind along both dimensions."""
    k = of_all(x, y) * jnp.arange(1.0, ALL + 1)
    corner = k[:N, :N].max(axis=1)
    found = [by(k, axis=axis) for by in (jnp.max, jnp.prod, jnp.argmax, jnp.sum) for axis in (0, 1)]
    return corner, *found, lax.top_k(k.T, 3)[1], jnp.cumsum(k, axis=0)[-1], k[N:, N:].sum()


def narrow(x: Array, y: Array) -> Array:
    k = of_all(x, y).astype(jnp.bfloat16)
    return (k[:N, :N].sum() + k[N:, N:].sum() + (k @ jnp.ones(ALL, k.dtype)).sum()).astype(float)


def whole_numbers(x: Array, y: Array) -> Array:
    k = jnp.floor(4 * of_all(x, y)).astype(jnp.int32)
    return jnp.sum(k[:N, :N] ^ 3) + jnp.sum(k[N:, N:] & 5)


CUT = [
    discrepancy,
    one_after_the_other,
    split_up,
    put_together,
    of_heads,
    framed,
    reduced,
    narrow,
    whole_numbers,
]


def prepared(function: Callable[..., Any], *arguments: Any) -> ClosedJaxpr:
    return redundant(program(function, *arguments)).program


def assert_same(rewritten: Rewritten, function: Callable[..., Any], *arguments: Any) -> None:
    results = evaluate(rewritten.program, arguments)
    for got, wanted in zip(results, jax.tree.leaves(function(*arguments)), strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def is_made(closed: ClosedJaxpr, function: Callable[..., Any]) -> bool:
    """Whether an equation makes the matrix that is cut, or an array of such matrices, whole."""
    rows, columns = (N + 5, MORE + 5) if function is framed else (ALL, ALL)
    made = (out.aval.shape for equation in closed.jaxpr.eqns for out in equation.outvars)
    return any((rows, columns) in itertools.pairwise(shape) for shape in made)


@pytest.mark.parametrize("function", CUT)
def test_a_value_cut_along_both_dimensions_is_computed_in_blocks(
    function: Callable[..., Any],
) -> None:
    written = prepared(function, X, Y)
    rewritten = computed_in_blocks(written)
    assert is_made(written, function)
    assert not is_made(rewritten.program, function)
    assert len(rewritten.notes) == 1
    assert "blocks along dimension" in rewritten.notes[0]
    assert "test_blocks.py" in rewritten.notes[0]
    assert_same(rewritten, function, X, Y)


@pytest.mark.parametrize("function", CUT[:6])
def test_its_gradient_is_too(function: Callable[..., Any]) -> None:
    gradient = jax.value_and_grad(lambda *both: jnp.sum(function(*both)), (0, 1))
    written = prepared(gradient, X, Y)
    rewritten = computed_in_blocks(written)
    assert is_made(written, function)
    assert not is_made(rewritten.program, function)
    assert_same(rewritten, gradient, X, Y)


def test_blocks_are_joined_again_for_who_reads_all_of_a_small_result() -> None:
    def sorted_rows(x: Array, y: Array) -> Array:
        k = of_all(x, y)
        return jnp.sort(k.sum(axis=1)) * (k[:N, :N].sum() + k[N:, N:].sum())

    rewritten = computed_in_blocks(prepared(sorted_rows, X, Y))
    assert names(rewritten.program).count("sort") == 1
    assert_same(rewritten, sorted_rows, X, Y)


def test_two_values_are_computed_in_blocks_at_once() -> None:
    def both(x: Array, y: Array) -> Array:
        return discrepancy(x, y) * jnp.exp(discrepancy(3 * x, y))

    rewritten = computed_in_blocks(prepared(both, X, Y))
    assert len(rewritten.notes) == 2
    assert_same(rewritten, both, X, Y)


def test_the_body_of_a_loop_is_too(capsys: pytest.CaptureFixture[str]) -> None:
    def repeated(x: Array, y: Array) -> Array:
        return lax.scan(lambda x, _: (x - discrepancy(x, y), None), x, None, length=3)[0]

    memsafe.explain(repeated, budget="64kB")(X, Y)
    (told,) = (line for line in capsys.readouterr().out.splitlines() if "rewritten" in line)
    assert "[87, 87] in 2 blocks along dimension 0, where it is cut" in told


def rows_alone(x: Array, y: Array) -> Array:
    """The columns are left whole: a loop can run along them."""
    k = of_all(x, y)
    return k[:N].sum() + jnp.sin(k[N:]).sum()


def overlapping(x: Array, y: Array) -> Array:
    """The cuts overlap: their blocks would be put together again, which is a copy."""
    k = of_all(x, y)
    return jnp.sum((k[1:, 1:] - k[:-1, :-1]) ** 2)


def read_whole_too(x: Array, y: Array) -> tuple[Array, Array]:
    k = of_all(x, y)
    return k[:N, :N].sum() + k[N:, N:].sum(), k


def sorted_too(x: Array, y: Array) -> Array:
    k = of_all(x, y)
    return k[:N, :N].sum() + k[N:, N:].sum() + jnp.sort(jnp.sort(k, axis=0), axis=1)[0].sum()


def of_many(x: Array, y: Array) -> Array:
    k = of_all(x, y)
    return sum((k[at : at + 8, at : at + 8].sum() for at in range(0, ALL - 8, 8)), jnp.zeros(()))


def strided(x: Array, y: Array) -> Array:
    k = of_all(x, y)
    return k[::2, ::2].sum() + k[1::2, 1::2].sum()


def moved_on(x: Array, y: Array) -> Array:
    """Padded on one side and cropped on the other."""
    return lax.pad(of_all(x, y), 0.0, [(-2, 2, 0), (3, -1, 0)]).sum()


def little(x: Array, y: Array) -> Array:
    return jnp.concatenate([x[:4, 0], y[:4, 0]])[2:6].sum() * kernel(x, y).sum()


@pytest.mark.parametrize(
    "function",
    [rows_alone, overlapping, read_whole_too, sorted_too, of_many, strided, moved_on, little],
)
def test_others_stay_as_they_are(function: Callable[..., Any]) -> None:
    written = prepared(function, X, Y)
    assert computed_in_blocks(written).program is written


def test_an_argument_is_sliced_as_it_was() -> None:
    written = prepared(lambda k: k[:N, :N].sum() + k[N:, N:].sum(), np.ones((ALL, ALL)))
    assert computed_in_blocks(written).program is written


def operations(said: str) -> float:
    (line,) = [line for line in said.splitlines() if "the operations of the program" in line]
    return float(line.split()[0])


def test_a_gradient_of_blocks_of_one_matrix_keeps_a_budget(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x, y = np.tile(X, (20, 1)), np.tile(Y, (20, 1))

    gradient = jax.value_and_grad(discrepancy, (0, 1))
    budget = peak_bytes(gradient, x, y) // 40
    safe = memsafe.memsafe(gradient, budget)
    got, wanted = (jax.tree.leaves(each(x, y)) for each in (safe, gradient))
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert peak_bytes(safe, x, y) <= budget
    memsafe.explain(gradient, budget)(x, y)
    assert operations(capsys.readouterr().out) <= 1
    others = [name for name in REWRITES if name not in ("blocks", "distances")]
    memsafe.explain(gradient, budget, rewrites=others)(x, y)
    assert operations(capsys.readouterr().out) > 1.4


def test_a_prediction_of_blocks_is_enough_inside_shard_map() -> None:
    x, y = np.tile(X, (20, 1)), np.tile(Y, (20, 1))
    mesh = jax.make_mesh((1,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
    gradient = jax.value_and_grad(discrepancy, (0, 1))

    def on_each(function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(
            jax.shard_map(function, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec())
        )

    plain, safe = on_each(gradient), on_each(memsafe.memsafe(gradient, "3MB"))
    assert peak_bytes(safe, x, y) < peak_bytes(plain, x, y) / 4
    for got, wanted in zip(*(jax.tree.leaves(each(x, y)) for each in (safe, plain)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)
