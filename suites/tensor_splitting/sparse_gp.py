"""Sparse Gaussian process regression (SGPR): Titsias' evidence lower bound, as in GPflow.

Stock XLA runs out of memory on the matrix between inducing points and data, [M, N]. The paper stops
at 800 inducing points without its passes, and reaches 10,000 with them.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular

from suites.tensor_splitting.problems import Problem, array, normal

Parameters = dict[str, jax.Array]
Sums = tuple[jax.Array, jax.Array]
_JITTER = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionSizes:
    """Data, inducing points, dimensions; a loop by hand takes ``rows`` rows of data at a time."""

    data: int
    inducing: int
    dimensions: int = 3
    rows: int = 4096
    dtype: Any = np.float64


def regression_problem(sizes: RegressionSizes) -> Problem:
    """The bound at these sizes."""
    of = partial(array, dtype=sizes.dtype)
    parameters = {
        "log_lengthscales": of(sizes.dimensions),
        "log_variance": of(),
        "log_noise": of(),
        "inducing": of(sizes.inducing, sizes.dimensions),
    }
    arguments = (parameters, of(sizes.data, sizes.dimensions), of(sizes.data, 1))
    return Problem(
        plain=elbo,
        ways={"lax-map": partial(elbo_by_rows, sizes.rows)},
        arguments=arguments,
        values=partial(_values, arguments),
    )


def elbo(parameters: Parameters, x: jax.Array, y: jax.Array) -> jax.Array:
    """The bound on log p(y): hyperparameters and Z [M, D], x [N, D], y [N, 1] → scalar."""
    factor = _factor(parameters)
    return _bound(parameters, y, _sums(parameters, factor, x, y))


def elbo_by_rows(rows: int, parameters: Parameters, x: jax.Array, y: jax.Array) -> jax.Array:
    """`elbo` with a loop that sums over the data and is recomputed in the backward pass."""
    factor = _factor(parameters)
    some = jax.checkpoint(partial(_sums, parameters, factor))
    whole = x.shape[0] // rows * rows
    parts = (x[:whole].reshape(-1, rows, x.shape[1]), y[:whole].reshape(-1, rows, 1))

    def add(total: Sums, part: Sums) -> tuple[Sums, None]:
        return jax.tree.map(jnp.add, total, some(*part)), None

    total, _ = lax.scan(add, some(x[whole:], y[whole:]), parts)
    return _bound(parameters, y, total)


def _kernel(parameters: Parameters, x: jax.Array, y: jax.Array) -> jax.Array:
    lengthscales = jnp.exp(parameters["log_lengthscales"])
    x, y = x / lengthscales, y / lengthscales
    squared_distances = jnp.sum(x**2, -1)[:, None] + jnp.sum(y**2, -1)[None, :] - 2 * x @ y.T
    return jnp.exp(parameters["log_variance"] - 0.5 * jnp.maximum(squared_distances, 0))


def _factor(parameters: Parameters) -> jax.Array:
    inducing = parameters["inducing"]
    kuu = _kernel(parameters, inducing, inducing)
    return jnp.linalg.cholesky(kuu + _JITTER * jnp.eye(len(inducing), dtype=kuu.dtype))


def _sums(parameters: Parameters, factor: jax.Array, x: jax.Array, y: jax.Array) -> Sums:
    """A Aᵀ and A y, with A = L⁻¹ Kᵤf / σ."""
    sigma = jnp.exp(0.5 * parameters["log_noise"])
    kuf = _kernel(parameters, parameters["inducing"], x)
    a = solve_triangular(factor, kuf, lower=True) / sigma
    return a @ a.T, a @ y


def _bound(parameters: Parameters, y: jax.Array, sums: Sums) -> jax.Array:
    aat, ay = sums
    variance, noise = jnp.exp(parameters["log_variance"]), jnp.exp(parameters["log_noise"])
    lb = jnp.linalg.cholesky(aat + jnp.eye(len(aat), dtype=aat.dtype))
    c = solve_triangular(lb, ay, lower=True) / jnp.sqrt(noise)
    count = y.shape[0]
    bound = -0.5 * count * jnp.log(2 * jnp.pi * noise) - jnp.sum(jnp.log(jnp.diag(lb)))
    bound += 0.5 * (jnp.sum(c**2) - jnp.sum(y**2) / noise)
    return bound - 0.5 * (count * variance / noise - jnp.sum(jnp.diag(aat)))


def _values(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    generator = np.random.default_rng(0)
    parameters, x, y = arguments
    inducing = normal(generator, parameters["inducing"])
    return (
        normal(generator, parameters, scale=0.1) | {"inducing": inducing},
        normal(generator, x),
        normal(generator, y),
    )
