"""Derivatives of a kernel product by JAX transforms other than `grad`.

They are derivatives with respect to the scale of each dimension.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from suites.tensor_splitting.kernels import KernelSizes, by_products
from suites.tensor_splitting.problems import Function, Problem, array, normal_values
from suites.tensor_splitting.variants import INSIDE

Transform = Callable[[Function], Function]


def derivative_problem(transform: Transform, sizes: KernelSizes, budget_bytes: int) -> Problem:
    """The transform of a product at these sizes, as written and of memsafe's product."""
    of = partial(array, dtype=sizes.dtype)
    arguments = (
        of(sizes.dimensions),
        of(sizes.points, sizes.dimensions),
        of(sizes.others, sizes.dimensions),
        of(sizes.others, 1),
    )
    return Problem(
        plain=transform(scaled),
        ways={INSIDE: partial(_within, transform, budget_bytes)},
        arguments=arguments,
        values=partial(normal_values, arguments),
    )


def scaled(scales: jax.Array, x: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
    """The product of points that are scaled first: [D], [N, D], [M, D], [M, 1] → [N, 1]."""
    return by_products(x * scales / 4, y * scales / 4, v)


def tangent(function: Function) -> Function:
    """The function's value, and its change if all scales grow in proportion, by `jax.jvp`."""
    return lambda scales, *rest: jax.jvp(lambda s: function(s, *rest), (scales,), (scales,))


def linear(function: Function) -> Function:
    """The results of `tangent`, by `jax.linearize`."""

    def run(scales: jax.Array, *rest: Any) -> Any:
        value, along = jax.linearize(lambda s: function(s, *rest), scales)
        return value, along(scales)

    return run


def jacobian(function: Function) -> Function:
    """The function's derivatives with respect to each scale, by `jax.jacfwd`: [N, 1, D]."""
    return jax.jacfwd(function)


def hessian(function: Function) -> Function:
    """The second derivatives of the function's mean square, by `jax.hessian`: [D, D]."""
    return jax.hessian(lambda *arguments: jnp.mean(function(*arguments) ** 2))


def _within(transform: Transform, budget_bytes: int, *arguments: jax.Array) -> Any:
    """The transform of memsafe's product; the budget is that of each program that JAX derives."""
    from memsafe import memsafe

    return transform(memsafe(scaled, budget_bytes))(*arguments)
